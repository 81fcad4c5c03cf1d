"""Compiled layers of stacked networks."""
