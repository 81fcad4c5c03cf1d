"""Rank policies: ratings, alpha-rank, the next matches to play."""
