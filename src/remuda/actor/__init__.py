"""The actor role, which plays."""
