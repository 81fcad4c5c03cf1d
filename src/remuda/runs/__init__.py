"""A run on disk: its directory, metrics, recorded matches, saved weights and result."""
