"""The Python API: train, open runs, play their policies; training in Sorrel environments."""
