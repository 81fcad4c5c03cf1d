"""The coordinator: supervises the processes of a run, and writes its files.

It wakes four times a second, and a tick does a bounded amount of work. A tick computes one record,
or else encodes what earlier ticks computed. Lines of metrics, TensorBoard events and statuses are
encoded in pieces (`bounded_work.py`), and the last piece writes them whole. With few policies all
of it fits into one tick; with hundreds it takes several, and the next line or status waits for the
previous one. Texts of frozen copies are cached (`frozen_json.py`). There is no thread and no
buffer: a coordinator that dies leaves complete lines and events, and the previous status. The end
of a run finishes all pieces (`tests/coordinator/test_ticks.py`).
"""
