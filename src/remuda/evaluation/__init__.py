"""Play without learning: evaluation, `Policy`, cross-play and tournaments."""
