"""Remuda trains many reinforcement-learning policies at once, in games that agents share."""

__version__ = "0.1.0"
