"""Dealers, which assign the members of a population to the seats of an actor's matches."""
