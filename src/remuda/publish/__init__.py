"""Weights on their way from the learners to the actors."""
