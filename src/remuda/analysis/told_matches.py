"""How many matches payoffs are made of, as it is told."""

from __future__ import annotations

import numpy as np

from remuda.analysis.payoff import KNOWN, Payoffs


def count_matches(payoffs: Payoffs) -> str:
    """How many matches payoffs are made of: `12,345 matches`; empty: they are known without.

    Where more than two sit in a match and the number of matches is unknown, it is how many times
    two met: `12,345 meetings`.
    """
    upper = np.triu(payoffs.met)
    meetings = int(np.ceil(upper[upper < KNOWN].sum() - 1e-6))
    if not meetings:
        return ""
    # Without weights of their own, matches are of two seats each: then these are the meetings.
    shared = payoffs.units is not None and bool((payoffs.units[~payoffs.missing] != 1.0).any())
    if payoffs.matches is None and shared:
        return f"{meetings:,} meetings" if meetings > 1 else "1 meeting"
    matches = meetings if payoffs.matches is None else payoffs.matches
    return f"{matches:,} matches" if matches > 1 else "1 match"
