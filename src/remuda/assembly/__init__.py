"""Build the parts of a run from its configuration: layout, memory plan, calibration."""
