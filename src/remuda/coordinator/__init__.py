"""The coordinator, which supervises the processes of a run and writes the run's files.

The coordinator wakes four times a second, and does a bounded amount of work in each such tick. A
tick computes one record of metrics, or encodes records of earlier ticks. Lines of metrics,
TensorBoard events and statuses are encoded in pieces (`bounded_work.py`), and the last piece writes
them whole. With few policies a record and its encoding fit into one tick. With hundreds they take
several ticks, and the next line or status waits for the previous one. Texts of frozen copies are
cached (`FrozenTexts`). These files are written without a thread or a buffer, so a coordinator
that dies leaves complete lines and events, and the previous status. The end of a run finishes all
pieces (`tests/coordinator/test_ticks.py`).
"""
