"""Policies: stacked networks, losses, algorithms and action selection.

The parameters of K policies of one layout are one tensor [K, P] (`stack.py`); networks are batched
matrix products over K. Row k is all of policy k, so publishing and loading are one copy. Buffers,
such as moments that normalise inputs, are in the row too, without a gradient.

Exact schedules need equal bits from equal numbers. Besides the terms, three things decide the last
bits of a sum:

- the alignment of an operand, so inputs of products and rows of a stack start on a cache line;
- the number of policies multiplied at once, so exact schedules train them one by one;
- the version of a compiled loop that its arrays' addresses select, so only loops that write nothing
  may add in any order (`networks/kernels/activations.py`).

`tests/equivalence/test_layouts.py` compares random settings in processes with different memory.
"""
