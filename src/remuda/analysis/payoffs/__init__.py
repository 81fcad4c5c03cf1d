"""Payoffs between policies, with errors."""
