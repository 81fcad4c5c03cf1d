"""Adapters of other libraries' environments to `VectorEnv`."""
