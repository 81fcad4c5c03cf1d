"""What a run can go on from, on disk."""
