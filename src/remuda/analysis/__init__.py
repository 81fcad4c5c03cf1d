"""Exact values of small games, and statistics of populations."""
