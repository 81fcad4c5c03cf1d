"""The learner role, which trains."""
