"""Environments: built-in games, adapters, and the `VectorEnv` interface they all implement."""
