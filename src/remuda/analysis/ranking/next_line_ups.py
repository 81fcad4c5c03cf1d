"""Choose the line-ups of an empirical game whose next match would settle the most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remuda.analysis.as_json import Summary
from remuda.analysis.payoffs.empirical_game import EmpiricalGame, every_profile, exact_game
from remuda.analysis.payoffs.game_draws import moderated, variance_between
from remuda.analysis.payoffs.profile_sums import LARGEST
from remuda.types import Numbers

NEXT = 5  # line-ups that are named


@dataclass(frozen=True)
class NextLineUp(Summary):
    """A line-up to play next."""

    line_up: str
    matches: int  # played so far
    share: float  # of the variance that one match of each such line-up would remove


def next_line_ups(
    game: EmpiricalGame | None, mixtures: Sequence[Numbers] | None, most: int = NEXT
) -> tuple[NextLineUp, ...]:
    """Return the line-ups whose next match reduces the variance of deviation payoffs the most.

    A deviation payoff is a sum over line-ups, each weighted by its probability while one seat
    deviates and the others play `mixtures`. One more match of a line-up with n matches reduces the
    variance of its mean by v / (n (n + 1)), where v is the variance of a return. Before the first
    match the mean has the variance b of means of other line-ups, and that match reduces it by
    b^2 / (b + v). (For normal returns, this is the one-step allocation of Gupta and Miescke 1996,
    "Bayesian look ahead one-stage sampling allocations".) None are returned if the game or its
    equilibrium is unknown, if the game is too large, or if no line-up was played twice. As long as
    line-ups are missing, only these are returned.

    `mixtures`: by role, [n_r]
    """
    if game is None or mixtures is None or not (game.counts > 1).any():
        return ()
    count, size = game.num_profiles, game.num_strategies
    if count * size**2 > LARGEST:
        return ()
    profiles = np.array(list(every_profile(game.roles)))
    likely = exact_game(game.roles, lambda _: np.zeros(size)).chances(mixtures)
    row_of = {tuple(profile): row for row, profile in enumerate(profiles.tolist())}
    matches = np.zeros(count)
    matches[[row_of[tuple(each)] for each in game.profiles.tolist()]] = game.counts
    within = np.diagonal(moderated(game), axis1=1, axis2=2)
    seated = (game.profiles > 0).sum(0)
    variance = within.sum(0) / np.maximum(seated, 1)
    between = variance_between(game)
    number = matches[:, None]
    settled = variance / np.maximum(number * (number + 1.0), 1.0)
    both = between + variance
    first = np.divide(between**2, both, out=np.zeros_like(both), where=both > 0.0)
    gains = (likely**2 * np.where(number > 0, settled, first)).sum(1)
    if not game.is_whole:
        gains = np.where(matches > 0, 0.0, gains)
    total = float(gains.sum())
    if not total > 0.0:
        return ()
    order = np.argsort(-gains, kind="stable")[:most]
    return tuple(
        NextLineUp(game.describe(profiles[row]), int(matches[row]), float(gains[row]) / total)
        for row in order
        if gains[row] > 0.0
    )


def line_ups_in_words(game: EmpiricalGame | None, following: Sequence[NextLineUp]) -> str:
    """Say how many line-ups were played, and which ones would settle the most."""
    if game is None:
        return "There are too many line-ups to list; select fewer policies."
    text = f"{len(game.profiles):,} of {game.num_profiles:,} line-ups were played"
    if not following:
        return f"{text}."
    names = "; ".join(each.line_up for each in following[:3])
    if game.is_whole:
        return f"{text}; more matches of these would settle the most: {names}."
    return f"{text}; of the others these would settle the most: {names}."


def line_ups_summary(
    game: EmpiricalGame | None, following: Sequence[NextLineUp]
) -> dict[str, object] | None:
    """Return JSON values; None: too many line-ups."""
    if game is None:
        return None
    return {
        "played": len(game.profiles),
        "possible": game.num_profiles,
        "next": [each.as_summary() for each in following],
    }
