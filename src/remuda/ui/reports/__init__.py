"""Reports of runs and comparisons."""
