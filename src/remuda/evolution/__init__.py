"""Operators of evolution: pure functions on numbers, fitness and weights."""
