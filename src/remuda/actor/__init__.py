"""The actor role, which plays the environment."""
