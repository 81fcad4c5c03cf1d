"""The state of a run on disk, from which it resumes."""
