"""The table of a population in shared memory."""
