"""One run on several nodes."""
