"""Draws of the payoffs of an empirical game with roles, from their posterior."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from remuda.analysis.payoffs.empirical_game import EmpiricalGame
from remuda.analysis.payoffs.payoffs import KNOWN, PRIOR, UNLIKE, Payoffs
from remuda.errors import UsageError
from remuda.types import Integers, Numbers


def moderated(game: EmpiricalGame) -> Numbers:
    """Return covariances of one match, shrunk like those of `Payoffs.moderated`: [P, S, S].

    They are shrunk towards the covariances of two seats' roles, pooled over all profiles. 0: a
    strategy has no seat.
    """
    known = game.counts < KNOWN
    freedom = np.where(known, np.maximum(game.counts - 1.0, 0.0), 0.0)
    seated = game.profiles > 0
    both = seated[:, :, None] & seated[:, None, :]
    if not known.any():
        return np.zeros(both.shape)
    if not freedom.any():
        raise UsageError(
            "no line-up was played twice, so the uncertainty of its returns is unknown; play more "
            "matches"
        )
    own = np.where(both & (freedom > 0.0)[:, None, None], game.covariances, 0.0)
    prior, same = np.zeros(own.shape[1:]), np.eye(game.num_strategies, dtype=np.bool_)
    weights = both * (freedom / (freedom + UNLIKE))[:, None, None]
    for rows in game.columns:
        for columns in game.columns:
            for diagonal in (True, False):
                cells = np.zeros(same.shape, np.bool_)
                cells[rows, columns] = same[rows, columns] == diagonal
                total = weights[:, cells].sum()
                if total > 0.0:
                    prior[cells] = (weights * own)[:, cells].sum() / total
    # If the matches of each line-up all ended equally, use the differences between line-ups.
    between = variance_between(game)
    constant = same & (np.diagonal(prior) <= 1e-12 * between)
    prior = np.where(constant, between, prior)
    weight, heavy = freedom[:, None, None], np.where(known, PRIOR, 0.0)[:, None, None]
    total = np.where(weight + heavy > 0.0, weight + heavy, 1.0)
    found: Numbers = np.where(both, (weight * own + heavy * prior) / total, 0.0)
    return found


def variance_between(game: EmpiricalGame) -> Numbers:
    """Return the variance of each strategy's mean returns over its line-ups: [S]."""
    seated = game.profiles > 0
    number = seated.sum(0)
    means = np.where(seated, game.means, 0.0)
    middle = means.sum(0) / np.maximum(number, 1)
    squares = np.where(seated, (means - middle) ** 2, 0.0).sum(0)
    found: Numbers = squares / np.maximum(number - 1, 1)
    return found


def draws(game: EmpiricalGame, samples: int, rng: np.random.Generator) -> Iterator[Numbers]:
    """Draw mean returns one after another: [P, S] each; NaN: the strategy has no seat.

    Line-ups are independent and have t distributions, jointly over their strategies.
    """
    roots = roots_of(game)
    for _ in range(samples):
        normal = rng.standard_normal(game.profiles.shape)
        scale = scales(game.counts, 1, rng)[0]
        yield game.means + (roots @ normal[:, :, None])[:, :, 0] * scale[:, None]


def roots_of(game: EmpiricalGame) -> Numbers:
    """Return square roots of the moderated covariances of one match: [P, S, S]."""
    values, vectors = np.linalg.eigh(moderated(game))
    found: Numbers = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return found


def scales(counts: Integers, samples: int, rng: np.random.Generator) -> Numbers:
    """Draw the scales of the t distributions of line-ups with `counts` matches: [samples, P]."""
    freedom = np.where(counts >= KNOWN, 1.0, counts - 1.0 + PRIOR)
    found: Numbers = np.sqrt(freedom / rng.chisquare(freedom, (samples, len(counts))) / counts)
    return found


def pair_draws(
    game: EmpiricalGame, payoffs: Payoffs, samples: int, rng: np.random.Generator
) -> Iterator[Numbers]:
    """Draw the payoffs by meeting of two roles with several seats: [2, n_1, n_2] each.

    A match is a meeting of every two opponents in it, so its noise is shared by several cells.
    `Payoffs.sample` draws cells independently, which is right for means over opponents, but too
    narrow for sums over rows and columns. Here the noise is drawn by line-up.

    `payoffs`: from the matches of `game`, whose two roles have their strategies.
    """
    first, second = game.columns
    ours, theirs = (game.profiles[:, own].astype(np.float64) for own in (first, second))
    # the weight of a line-up in each cell, as in `add_up`
    both = ours[:, :, None] * theirs[:, None, :]
    most = np.maximum(
        game.roles[1].seats * ours[:, :, None], game.roles[0].seats * theirs[:, None, :]
    )
    weights = game.counts[:, None, None] * both / np.maximum(most, 1.0)
    weights /= np.maximum(weights.sum(0), 1e-300)
    covariances = moderated(game)
    # Returns in a cell also vary with the other seats.
    within = float(np.diagonal(covariances, axis1=1, axis2=2)[game.profiles > 0].mean())
    cells = float(np.diagonal(payoffs.moderated).mean())
    wider = np.sqrt(max(cells / within, 1.0)) if within > 0.0 else 1.0
    values, vectors = np.linalg.eigh(covariances)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :] * wider
    freedom = PRIOR + max(float(game.counts.sum()) - len(game.profiles), 0.0)
    for _ in range(samples):
        normal = rng.standard_normal(game.profiles.shape) / np.sqrt(game.counts)[:, None]
        noise = (roots @ normal[:, :, None])[:, :, 0] * np.sqrt(freedom / rng.chisquare(freedom))
        drawn = (
            np.einsum("pij,pi->ij", weights, noise[:, first]),
            np.einsum("pij,pj->ij", weights, noise[:, second]),
        )
        yield payoffs.means + np.stack(drawn)
