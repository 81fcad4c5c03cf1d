"""Directors, which decide which policies exist."""
