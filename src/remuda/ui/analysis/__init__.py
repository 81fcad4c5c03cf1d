"""Analyses, tournaments, PSRO and exploiters: their setup, and their results as tables."""
