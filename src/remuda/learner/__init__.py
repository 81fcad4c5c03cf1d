"""The role that trains."""
