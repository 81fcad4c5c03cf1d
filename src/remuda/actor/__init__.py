"""The role that plays."""
