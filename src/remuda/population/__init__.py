"""Populations: members, matchmaking, births and results.

To deal a seat means to assign a member to it for one match. A member's slot (`place` in code) is
its row in all arrays of the population.
"""
