"""Double oracle (PSRO): populations that grow by best responses to their meta-mixtures."""
