"""Foundations of all packages: shared memory, processes, checkpoints, random numbers, output."""
