"""The commands that analyse, and their tables."""
