"""Runtimes, which run actors and learners: all in this process, or each in a separate one."""
