"""Networks, written for K policies at once."""
