"""Matchmakers, which choose the policies of each match."""
