"""Runtimes that run the roles: in this process, or in a separate process each."""
