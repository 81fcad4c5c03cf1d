"""Runs in a browser, during training and after it: `remuda dashboard`."""
