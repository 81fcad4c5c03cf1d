"""The table of a population's members, in shared memory."""
