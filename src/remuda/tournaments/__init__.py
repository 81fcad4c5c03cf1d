"""Tournaments: all against all on every seat, many matches at once, kept in a file as they end."""
