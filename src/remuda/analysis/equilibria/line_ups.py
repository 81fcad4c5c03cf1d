"""Correlated equilibria over the line-ups of an empirical game that were played.

In a game of interchangeable seats a mediator may draw a line-up (a profile) and deal it to the
seats at random. A line-up distribution is a correlated equilibrium if no seat gains by playing t
whenever it is dealt s (Papadimitriou and Roughgarden 2008, "Computing correlated equilibria in
multi-player games", section 4), and a coarse one if no seat gains by always playing t. Many
matchmakers never deal some line-ups, such as two seats to one policy. Then only deviations to
played line-ups count, and an equilibrium may not exist; the result then has the least regret.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remuda.analysis.equilibria.maximum_entropy import maximize, solve_program
from remuda.analysis.equilibria.regret import Solution, to_distribution
from remuda.analysis.payoffs.empirical_game import EmpiricalGame
from remuda.errors import UsageError
from remuda.types import Integers, Numbers

ENOUGH = 1e-9  # accepted regret, relative to the range of the payoffs
SIZE = 10_000_000  # most line-ups times deviations; more need minutes and many gigabytes
INCOMPLETE = "only deviations to line-ups that were played"


@dataclass(frozen=True)
class Swaps:
    """All swaps of a seat from strategy s to t, K in number, between line-ups that were played."""

    role: Integers  # [K]
    before: Integers  # [K] the number of s
    after: Integers  # [K] the number of t
    line_ups: Integers  # [K, P] the line-up after the swap; -1: not played, or no seat plays s
    seats: Numbers  # [K, P] the share of the role's seats that play s

    @staticmethod
    def of(game: EmpiricalGame) -> Swaps:
        """List the swaps of a game."""
        row_of = {tuple(profile): row for row, profile in enumerate(game.profiles.tolist())}
        pairs = [
            (number, s, t)
            for number, columns in enumerate(game.columns)
            for s in range(columns.start, columns.stop)
            for t in range(columns.start, columns.stop)
            if s != t
        ]
        if len(pairs) * len(game.profiles) > SIZE:
            raise UsageError(
                f"{len(game.profiles):,} line-ups with {len(pairs):,} deviations are too many (the "
                f"product must be at most {SIZE:,}); select fewer policies"
            )
        role, before, after = np.array(pairs, np.int64).reshape(-1, 3).T
        line_ups = np.full((len(pairs), len(game.profiles)), -1, np.int64)
        for number, (_, s, t) in enumerate(pairs):
            for row in np.flatnonzero(game.profiles[:, s]).tolist():
                swapped = game.profiles[row].copy()
                swapped[s] -= 1
                swapped[t] += 1
                line_ups[number, row] = row_of.get(tuple(swapped.tolist()), -1)
        seats = np.array([each.seats for each in game.roles])[role]
        return Swaps(role, before, after, line_ups, game.profiles.T[before] / seats[:, None])

    @property
    def are_complete(self) -> bool:
        """True if every swap leads to a line-up that was played."""
        return not ((self.seats > 0.0) & (self.line_ups < 0)).any()

    def gains(self, means: Numbers) -> Numbers:
        """Return what each swap gains in each line-up, times its share of the seats: [K, P].

        `means`: [P, S] of the game.
        """
        possible = self.line_ups >= 0
        own = means.T[self.before]
        instead = means[np.maximum(self.line_ups, 0), self.after[:, None]]
        return np.where(possible, self.seats * (np.where(possible, instead, 0.0) - own), 0.0)


def solve(game: EmpiricalGame, coarse: bool = False, swaps: Swaps | None = None) -> Solution:
    """Return the equilibrium with the largest entropy, or else the one with the least regret.

    `mixtures` are the expected shares of each role's seats, and `joint` [P] the probabilities of
    the line-ups. Raise `UsageError` if no line-up was played.
    """
    if not len(game.profiles):
        raise UsageError(
            "no match was among these policies only; select policies that met, or play more matches"
        )
    swaps = swaps or Swaps.of(game)
    gains = swaps.gains(game.means)
    spread = _spread(game)
    losses = _deviations(swaps, gains, coarse) / -spread
    found = maximize(losses) if len(losses) else (np.ones(len(game.profiles)), 0)
    note = "" if swaps.are_complete else INCOMPLETE
    if found is not None:
        best = _answer(game, swaps, gains, found[0], coarse, note)
        if (best.regret <= ENOUGH * spread).all():
            return best
    count = len(game.profiles)
    program = solve_program(
        np.append(np.zeros(count), 1.0),
        np.hstack([-losses, -np.ones((len(losses), 1))]),
        np.zeros(len(losses)),
        np.append(np.ones(count), 0.0)[None],
        [1.0],
        (0.0, None),
    )
    best = _answer(game, swaps, gains, program.x[:-1], coarse, note)
    if (best.regret > ENOUGH * spread).any():
        note = f"{note}; " if note else ""
        note += "no exact equilibrium was found, this has the least regret"
        best = Solution(best.mixtures, best.values, best.regret, note, best.joint)
    return best


def regret(swaps: Swaps, gains: Numbers, probabilities: Numbers, coarse: bool) -> Numbers:
    """Return the gain of one seat's best deviation, by role: [R], at least 0.

    `gains`: [K, P] of `Swaps.gains`; `probabilities`: [P] of the line-ups.
    """
    gained = gains @ probabilities
    found = np.zeros(int(swaps.role.max(initial=-1)) + 1)
    for role in range(len(found)):
        own = swaps.role == role
        groups = swaps.after[own] if coarse else swaps.before[own]
        if coarse:  # always play t, whatever was dealt
            found[role] = np.bincount(groups, gained[own]).max(initial=0.0)
        else:  # the best reply to each strategy that may be dealt
            best: Numbers = np.zeros(int(groups.max(initial=-1)) + 1)
            np.maximum.at(best, groups, gained[own])
            found[role] = best.sum()
    return found


def _deviations(swaps: Swaps, gains: Numbers, coarse: bool) -> Numbers:
    """Return [K, P] the gains of deviations: swaps, or if coarse, their sums by role and t."""
    if not coarse:
        return gains
    _, group = np.unique(swaps.after, return_inverse=True)
    found: Numbers = np.zeros((int(group.max(initial=-1)) + 1, gains.shape[1]))
    np.add.at(found, group, gains)
    return found


def _answer(
    game: EmpiricalGame,
    swaps: Swaps,
    gains: Numbers,
    probabilities: Numbers,
    coarse: bool,
    note: str,
) -> Solution:
    joint = to_distribution(probabilities)
    found = np.zeros(len(game.roles))
    regrets = regret(swaps, gains, joint, coarse)
    found[: len(regrets)] = regrets
    mixtures = tuple(
        joint @ game.profiles[:, columns] / role.seats
        for role, columns in zip(game.roles, game.columns, strict=True)
    )
    return Solution(mixtures, seat_values(game, joint), found, note, joint)


def seat_values(game: EmpiricalGame, joint: Numbers) -> Numbers:
    """Return the mean return of a seat of each role: [R]; `joint`: [P] of the line-ups."""
    earned = joint @ np.where(game.profiles > 0, game.profiles * np.nan_to_num(game.means), 0.0)
    return np.array(
        [
            earned[columns].sum() / role.seats
            for role, columns in zip(game.roles, game.columns, strict=True)
        ]
    )


def _spread(game: EmpiricalGame) -> float:
    return float(np.nanmax(game.means) - np.nanmin(game.means)) or 1.0
