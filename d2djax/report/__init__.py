"""The interactive page of results."""
