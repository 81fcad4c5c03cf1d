"""The Python API, and training in Sorrel environments."""
