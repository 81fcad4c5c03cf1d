"""Remuda trains many reinforcement-learning policies at once, in games that several agents share."""

__version__ = "0.1.0"
