"""The foundation of every room: shared memory, processes, checkpoints, random numbers, output."""
