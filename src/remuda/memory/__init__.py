"""Shared memory without a name, atomic words, and one way to wait."""
