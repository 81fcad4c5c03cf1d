"""Adapters of other libraries' environments to `VectorEnv`, and back (`export`)."""
