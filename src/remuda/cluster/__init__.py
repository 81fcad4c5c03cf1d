"""A run on several machines: each node has all of its shared memory, and bridges keep it alike."""
