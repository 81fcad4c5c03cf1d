"""Payoffs of team-mates: what a policy earns beside another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from remuda.analysis.payoffs.from_ledger import Adjust, read_payoffs
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.population.ledger.records import PolicyRef


def with_team_mates(
    payoffs: Payoffs,
    path: Path,
    sides: Sequence[int],
    adjust: Adjust | None = None,
) -> Payoffs:
    """Fill cells of policies that never met with their mean returns as team-mates, from a ledger.

    `payoffs`: symmetric, by meeting, from the same ledger; `sides`: the team number of each seat,
    -1: a scripted seat; `adjust`: as for `read_payoffs`.
    """
    payoffs.check_symmetric("team-mates")

    def listed(ref: PolicyRef) -> bool:
        return str(ref) in payoffs.names

    means, counts = payoffs.means.copy(), payoffs.counts.copy()
    covariances = payoffs.covariances.copy()
    meetings, every = payoffs.met.copy(), slice(None)
    for side in sorted(set(sides) - {-1}):
        seats = [seat if each == side else -1 for seat, each in enumerate(sides)]
        if sum(seat >= 0 for seat in seats) < 2:
            continue
        team = read_payoffs(path, sides=seats, keep=listed, adjust=adjust)
        places = [payoffs.names.index(name) for name in team.names]
        index: tuple[Any, ...] = np.ix_(places, places)
        new = (counts[index] == 0) & (team.counts > 0)
        for whole, own in ((counts, team.counts), (meetings, team.met)):
            whole[index] = np.where(new, own, whole[index])
        means[(every, *index)] = np.where(new, team.means, means[(every, *index)])
        cells = (every, every, *index)
        covariances[cells] = np.where(new, team.covariances, covariances[cells])
    return replace(payoffs, means=means, covariances=covariances, counts=counts, meetings=meetings)
