"""Metrics columns of each member of a population whose seats are dealt."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.coordinator.columns import NEWEST, TOTAL, column


@dataclass
class MemberRecord:
    """One member of a population; not changed once made."""

    games: int = column(
        "Games played: seats on which it took part in matches that are over.", "seats", TOTAL
    )
    mean_return: float | None = column(
        "Mean over these of the undiscounted return; empty: it has not played.",
        "return",
        TOTAL,
        shown=False,
    )
    rating: float = column(
        "Mean of its skill, on openskill's scale, which begins at 25.", "rating", NEWEST
    )
    uncertainty: float = column("The standard deviation of that.", "rating", NEWEST, shown=False)
    learns: bool = column("Whether its weights still change.", "0 or 1", NEWEST, shown=False)
    win_rate: float | None = column(
        "The share of meetings with others that it won, draws halved; empty: it has met no other.",
        "share",
        TOTAL,
        shown=False,
    )
    total_reward: float | None = column(
        "Total reward: the sum of the undiscounted returns of its games. Empty: one was not "
        "finite.",
        "return",
        TOTAL,
        shown=False,
    )
    parent: str | None = column("Whose weights it began with.", "name", NEWEST, shown=False)
    born: int = column(
        "Matches that were over when it came.", "matches", NEWEST, shown=False, default=0
    )
    hyperparameters: dict[str, float] = column(
        "Of one that learns: those that its children may inherit.",
        "",
        NEWEST,
        shown=False,
        factory=dict,
    )
    payoff: float | None = column(
        "Of one that learns: its mean payoff against the other members that the newest analysis "
        "looked at. Empty: it met none of them often enough, or there was no analysis.",
        "return",
        NEWEST,
    )
    nash: float | None = column(
        "Of one that learns: its probability in the equilibrium of the newest analysis. Empty: it "
        "was not among those that met each other.",
        "probability",
        NEWEST,
    )
