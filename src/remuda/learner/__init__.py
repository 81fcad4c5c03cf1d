"""Learners, which train policies."""
