"""Tournaments: all against all in every seat, with recorded matches."""
