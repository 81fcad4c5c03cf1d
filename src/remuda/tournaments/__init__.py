"""Tournaments: all against all on every seat, with recorded matches."""
