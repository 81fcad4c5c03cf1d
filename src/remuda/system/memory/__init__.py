"""Anonymous shared memory, atomic words, and one way to wait."""
