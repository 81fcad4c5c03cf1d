"""Policies and games of saved runs."""
