"""The state of a run on disk, from which it resumes.

`store.py` writes and verifies checkpoints, `state.py` defines the format, `fitting.py` checks every
value before use, and `opening.py` opens files that may not be ours.
`tests/system/checkpoint/test_store_deaths.py` kills the coordinator at every line.
"""
