"""Distributed runs over several nodes."""
