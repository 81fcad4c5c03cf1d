"""Environments of other libraries, as `VectorEnv`."""
