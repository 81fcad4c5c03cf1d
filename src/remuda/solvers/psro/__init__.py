"""Double oracle (PSRO): populations that grow by best responses to mixtures of their policies."""
