"""What every room uses: shared memory, processes, checkpoints, random numbers, kernels, output."""
