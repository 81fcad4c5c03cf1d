"""Double oracle: populations that grow by best responses to their own meta-mixtures (PSRO)."""
