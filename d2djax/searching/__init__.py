"""Search over settings: what is sought, the journal of the trials, the search itself."""
