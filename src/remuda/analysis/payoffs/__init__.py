"""Payoffs between policies, with standard errors."""
