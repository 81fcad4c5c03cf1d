"""Policies: stacked networks, losses, algorithms and action selection.

The parameters of K policies of one layout are one tensor [K, P] (`stack.py`); networks are batched
matrix products over K. Row k is all of policy k, so publishing and loading are one copy. Buffers,
such as moments that normalise inputs, are in the row too, without a gradient.

Reproducible schedules need bit-identical results. Besides the summands, three things decide the
last bits of a sum:

- the alignment of an operand, so inputs of products and rows of a stack start on a cache line;
- the number of policies multiplied at once, so these schedules train policies one by one;
- the version of a compiled loop, selected at run time by the addresses of its arrays. So only loops
  that write nothing, or use a single array, may sum in any order (`kernels/activations.py`).

`tests/equivalence/test_layouts.py` compares random settings in processes with different memory.
"""
