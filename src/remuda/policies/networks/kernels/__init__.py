"""Compiled layers of stacked networks.

On the CPU, matrix products are our own (`gemm.py`), one thread each, because torch's library leaves
half of the vector registers unused on some CPUs. `llvm_tiles.py` generates the innermost loop for
the CPU's registers. Each sum adds its terms in a fixed order, so a row's result depends on no other
row, and is the same in acting and in training. `perceptron.py` has one autograd function for all
linear layers, and `convolution.py` one for convolutions. With `learners.threads` above 1, on GPUs
and in exported graphs, torch computes the products. For acting, one compiled call runs the networks
of all policies (`compiled_pass.py`).
"""
