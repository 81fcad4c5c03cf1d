"""Populations: members, matchmaking, births and results."""
