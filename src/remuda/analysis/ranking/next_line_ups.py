"""Choose the line-ups of an empirical game whose next match would settle the most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remuda.analysis.as_json import Summary
from remuda.analysis.payoffs.empirical_game import (
    LARGEST,
    EmpiricalGame,
    every_profile,
    exact_game,
)
from remuda.analysis.payoffs.game_draws import moderated, variance_between
from remuda.analysis.ranking.next_matches import share_out
from remuda.types import Integers, Numbers

NEXT = 5  # line-ups that are named


@dataclass(frozen=True)
class NextLineUp(Summary):
    """A line-up to play next."""

    line_up: str
    matches: int  # played so far
    share: float  # of the variance that one match of each such line-up would remove


def next_line_ups(
    game: EmpiricalGame, mixtures: Sequence[Numbers] | None, most: int = NEXT
) -> tuple[NextLineUp, ...]:
    """Return the line-ups whose next match reduces the variance of deviation payoffs the most.

    A deviation payoff is a sum over line-ups, each weighted by its probability while one seat
    deviates and the others play `mixtures`. One more match of a line-up with n matches reduces the
    variance of its mean by v / (n (n + 1)), where v is the variance of a return. Before the first
    match the mean has the variance b of means of other line-ups, and that match reduces it by
    b^2 / (b + v). (For normal returns, this is the one-step allocation of Gupta and Miescke 1996,
    "Bayesian look ahead one-stage sampling allocations".) None are returned if the
    equilibrium is unknown, if the game is too large, or if no line-up was played twice. As long as
    line-ups are missing, only these are returned.

    `mixtures`: by role, [n_r]
    """
    if mixtures is None or not (game.counts > 1).any():
        return ()
    size = game.num_strategies
    if game.num_profiles * size**2 > LARGEST:
        return ()
    profiles = np.array(list(every_profile(game.roles)))
    likely = exact_game(game.roles, lambda _: np.zeros(size)).chances(mixtures)
    row_of = {tuple(profile): row for row, profile in enumerate(profiles.tolist())}
    matches = np.zeros(len(profiles))
    matches[[row_of[tuple(each)] for each in game.profiles.tolist()]] = game.counts
    variance, between, number = _variances(game), variance_between(game), matches[:, None]
    settled = variance / np.maximum(number * (number + 1.0), 1.0)
    both = between + variance
    first = np.divide(between**2, both, out=np.zeros_like(both), where=both > 0.0)
    gains = (likely**2 * np.where(number > 0, settled, first)).sum(1)
    if not game.is_whole:
        gains = np.where(matches > 0, 0.0, gains)
    total = float(gains.sum())
    order = np.argsort(-gains, kind="stable")[:most]
    return tuple(
        NextLineUp(game.describe(profiles[row]), int(matches[row]), float(gains[row]) / total)
        for row in order
        if gains[row] > 0.0
    )


def _variances(game: EmpiricalGame) -> Numbers:
    """Return the variance of each strategy's return in one match, over its line-ups: [S]."""
    within = np.diagonal(moderated(game), axis1=1, axis2=2)
    seated = (game.profiles > 0).sum(0)
    found: Numbers = within.sum(0) / np.maximum(seated, 1)
    return found


def allocate_line_ups(
    game: EmpiricalGame, mixtures: Sequence[Numbers], matches: int, explore: float = 0.1
) -> Integers:
    """Return the number of matches that each line-up plays next: [P].

    All line-ups were played. Their shares of all matches are proportional to sqrt(sum_s w_s^2 v_s),
    which minimises the sum of the variances of deviation payoffs (Neyman 1934, "On the two
    different aspects of the representative method"). w_s is the probability of the line-up while
    one seat plays s and the others play `mixtures`, mixed with a uniform choice by `explore`.
    """
    explored = [(1.0 - explore) * each + explore / len(each) for each in mixtures]
    weights = np.sqrt((game.chances(explored) ** 2 * _variances(game)).sum(1))
    if not weights.any():
        weights = np.ones(len(weights))
    target = weights / weights.sum() * (game.counts.sum() + matches)
    return share_out(np.maximum(target - game.counts, 0.0), matches)


def line_ups_in_words(game: EmpiricalGame, following: Sequence[NextLineUp]) -> str:
    """Say how many line-ups were played, and which ones would settle the most."""
    if not game.counts_profiles:
        return "There are too many line-ups to list; select fewer policies."
    text = f"{len(game.profiles):,} of {game.num_profiles:,} line-ups were played"
    if not following:
        return f"{text}."
    names = "; ".join(each.line_up for each in following[:3])
    if game.is_whole:
        return f"{text}; more matches of these would settle the most: {names}."
    return f"{text}; of the others these would settle the most: {names}."


def line_ups_summary(
    game: EmpiricalGame, following: Sequence[NextLineUp]
) -> dict[str, object] | None:
    """Return JSON values; None: too many line-ups."""
    if not game.counts_profiles:
        return None
    return {
        "played": len(game.profiles),
        "possible": game.num_profiles,
        "next": [each.as_summary() for each in following],
    }
