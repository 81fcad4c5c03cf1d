"""Game trees: exact play, best responses and exploitability."""
