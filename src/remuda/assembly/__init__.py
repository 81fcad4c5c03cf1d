"""Build the parts of a run from its `RunSpec`: layout, memory plan, calibration."""
