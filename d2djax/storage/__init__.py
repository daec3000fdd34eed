"""Results on disk: paths, atomic file writes, checksums, locks, and the store that a sweep fills chunk by chunk."""
