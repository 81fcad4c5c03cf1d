"""Compiled layers of stacked networks.

On the CPU, matrix products are our own (`gemm.py`), one thread each, because torch's library leaves
half of the vector registers unused on some CPUs. `llvm_tiles.py` writes the innermost loop for the
CPU's registers. Each sum runs in one order, so a row has the same result alone, among others,
gathered or not, in acting and in training. `perceptron.py` is one autograd step for all linear
layers, `convolution.py` for convolutions. With `learners.threads` above 1, on GPUs and in exported
graphs, products are torch's. For acting, one compiled call evaluates each stream of all policies
once (`compiled_pass.py`).
"""
