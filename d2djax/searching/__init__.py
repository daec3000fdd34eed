"""Search over settings: objectives, the journal of trials, and the search itself."""
