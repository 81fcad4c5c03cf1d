"""Train best responses to fixed opponents: PSRO and exploiters."""
