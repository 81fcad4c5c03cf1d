"""Anonymous shared memory, atomic words, and one way to wait.

There are no locks. Each shared word (a 64-bit integer) has one writer. The class that lays out the
words states which process writes them, and what happens if that process dies at any instruction. A
reader that may be overtaken reads a sequence number, copies, and reads the sequence again (a
seqlock). Sequences and counters are stored with release and loaded with acquire ordering
(`atomic.py`), so nothing depends on the ordering of x86. All arrays of a run are cut from a few
anonymous files (`shared.Arena`), so the number of open files does not grow with policies or actors;
each process adds one file for its wake-up.
"""
