"""Decide which policies exist."""
