"""Policies: stacked networks, losses, algorithms and action selection."""
