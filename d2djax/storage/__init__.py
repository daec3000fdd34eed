"""Results on disk: paths and whole files, checksums, locks, and the store that is filled chunk by chunk."""
