"""How policies learn: one readable file for each algorithm."""
