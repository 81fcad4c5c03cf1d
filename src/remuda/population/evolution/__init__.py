"""Population based training (PBT): selection, hyperparameter search, operators on weights."""
