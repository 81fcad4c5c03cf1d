"""The learner role, which trains policies."""
