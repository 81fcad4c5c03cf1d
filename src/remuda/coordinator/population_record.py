"""Metrics columns of a population as a whole, and their computation."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

from remuda.coordinator.columns import EPISODES, NEWEST, TOTAL, UPDATES, column


@dataclass(frozen=True)
class AnalysisNumbers:
    """Numbers of an analysis of the payoffs; None: too few meetings."""

    analysed: int | None = column(
        "Members that the analysis is of: each met each of the others.", "members", NEWEST
    )
    unmet: float | None = column(
        "The share of pairs that met fewer than 10 times, of the members that were looked at.",
        "share",
        NEWEST,
    )
    diversity: float | None = column(
        "As how many wholly different ones the members fare: the expected cardinality of a "
        "determinantal point process on their payoffs (Perez-Nieves et al. 2021), in units of the "
        "standard deviation of payoffs, corrected for the noise of the matches. What of it is left "
        "makes it too large where matches are few. Empty too where equal members would seem as "
        "diverse in more than 5% of cases.",
        "members",
        NEWEST,
    )
    nash_support: int | None = column(
        "Members that the Nash equilibrium of the payoffs plays; of several equilibria of a "
        "zero-sum game, that of the largest entropy. Empty too where the game is not zero-sum and "
        "members never met themselves.",
        "members",
        NEWEST,
    )
    nash_entropy: float | None = column(
        "Entropy of that mixture; 0: one member is best against all.", "nats", NEWEST
    )
    nash_live: float | None = column(
        "Probability of policies that learn in that mixture; the rest is of frozen copies.",
        "probability",
        NEWEST,
    )
    transitive_share: float | None = column(
        "Share of skill in what payoffs differ by, 0 to 1, the rest being cycles (Balduzzi et al. "
        "2018), with the noise of the matches taken out; empty too where nothing is left of it.",
        "share",
        NEWEST,
    )
    exploitability: float | None = column(
        "Gain per match of the best reply among the analysed members to the uniform mixture of "
        "the learning policies, over what these earn among themselves: a lower bound of what an "
        "opponent could gain. It is the largest of several noisy means, so too large where "
        "matches are few.",
        "return",
        NEWEST,
    )


@dataclass(frozen=True)
class PopulationRecord(AnalysisNumbers):
    """A population in one interval, and its newest analysis."""

    fitness_mean: float | None = column(
        "Mean over the policies of their mean return; of those that had an episode.",
        "return",
        EPISODES,
    )
    fitness_best: float | None = column("The greatest of these mean returns.", "return", EPISODES)
    fitness_spread: float | None = column(
        "Standard deviation over the policies of their mean returns.", "return", EPISODES
    )
    staleness: float | None = column(
        "Mean over the policies of their staleness.", "versions", UPDATES
    )
    matches: int | None = column(
        "Matches that are over; empty: seats are not dealt.", "matches", TOTAL
    )
    analysis_age: float | None = column(
        "Seconds since the newest analysis was requested; empty: there was none.", "seconds", NEWEST
    )


def population_record(
    returns: Collection[float | None],
    staleness: Iterable[float | None],
    matches: int | None,
    analysis: AnalysisNumbers | None,
    age: float | None,
) -> dict[str, float | None]:
    """Return the named columns of a population; empty with one policy and no match."""
    if len(returns) < 2 and matches is None:
        return {}
    known = np.array([each for each in returns if each is not None], np.float64)
    stale = [each for each in staleness if each is not None]
    found = PopulationRecord(
        **vars(analysis or AnalysisNumbers()),
        fitness_mean=float(known.mean()) if len(known) else None,
        fitness_best=float(known.max()) if len(known) else None,
        fitness_spread=float(known.std()) if len(known) else None,
        staleness=sum(stale) / len(stale) if stale else None,
        matches=matches,
        analysis_age=age if analysis is not None else None,
    )
    return dict(vars(found))
