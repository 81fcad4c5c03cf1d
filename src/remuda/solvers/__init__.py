"""Train policies against fixed opponents: PSRO and exploiters."""
