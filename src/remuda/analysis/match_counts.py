"""The number of matches behind payoffs, as text."""

from __future__ import annotations

import numpy as np

from remuda.analysis.payoff import KNOWN, Payoffs


def count_matches(payoffs: Payoffs) -> str:
    """Return the number of matches, as `12,345 matches`; empty: payoffs known without any.

    With more than two seats and an unknown number of matches, it counts meetings of two: `12,345
    meetings`.
    """
    upper = np.triu(payoffs.met)
    meetings = int(np.ceil(upper[upper < KNOWN].sum() - 1e-6))
    if not meetings:
        return ""
    # Without weights, matches have two seats each: then these are the meetings.
    shared = payoffs.units is not None and bool((payoffs.units[~payoffs.missing] != 1.0).any())
    if payoffs.matches is None and shared:
        return f"{meetings:,} meetings" if meetings > 1 else "1 meeting"
    matches = meetings if payoffs.matches is None else payoffs.matches
    return f"{matches:,} matches" if matches > 1 else "1 match"
