"""Experience: segments in shared memory, from actors to learners."""
