"""Tournaments: all entrants against all others in every seat, with recorded matches."""
