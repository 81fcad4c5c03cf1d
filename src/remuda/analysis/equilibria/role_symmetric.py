"""Equilibria in which all seats of a role play the same mixture.

Every finite game whose seats are interchangeable within roles has such an equilibrium (Nash 1951,
"Non-cooperative games", theorem 2). Of few strategies, all supports are tried, pure ones first.
Otherwise replicator dynamics (Taylor and Jonker 1978, "Evolutionarily stable strategies and game
dynamics") find supports from several starts. Least squares then make all payoffs on a support
equal. Regrets are computed from the payoffs, so a result that is no equilibrium shows it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
from scipy.optimize import least_squares

from remuda.analysis.equilibria.regret import Solution
from remuda.analysis.payoffs.empirical_game import EmpiricalGame
from remuda.errors import UsageError
from remuda.types import Bools, Numbers

STEPS = 300  # of the dynamics from one start
RATE = 0.2  # of the dynamics, relative to the range of the payoffs
PLAYED = 1e-3  # probability above which a strategy belongs to the support
MOST_BITS = 10  # strategies of all roles for which every support is tried
EVALUATIONS = 50  # of a least squares search; from a near start fewer than 20 suffice
ENOUGH = 1e-9  # accepted regret, relative to the range of the payoffs

Mixtures = tuple[Numbers, ...]
Stop = Callable[[], bool]


class _OverError(Exception):
    """The end of the search, within a least squares search."""


def solve(
    game: EmpiricalGame,
    rng: np.random.Generator,
    starts: int = 20,
    seconds: float = 10.0,
    stop: Stop = lambda: False,
) -> Solution:
    """Return the role-symmetric mixtures of the smallest regret that were found.

    The search ends after `starts` random starts or `seconds`, if `stop` returns true, or once the
    regret is 1e-9 of the range of the payoffs. Raise `UsageError` if profiles are missing.
    """
    missing = next(game.missing(), None)
    if missing is not None:
        raise UsageError(
            f"an equilibrium needs all profiles, and {game.describe(missing)} was never played"
        )
    spread = float(np.nanmax(game.means) - np.nanmin(game.means)) or 1.0
    best, least, end = None, np.inf, time.monotonic() + seconds

    def is_over() -> bool:
        return time.monotonic() > end or stop()

    for mixtures in _candidates(game, rng, starts, spread, is_over):
        regret = float(game.regret(mixtures).max())
        if regret < least:
            best, least = mixtures, regret
        if least <= ENOUGH * spread or is_over():
            break
    assert best is not None
    note = "" if least <= ENOUGH * spread else "no exact equilibrium was found in time"
    return Solution(best, game.values(best), game.regret(best), note)


def _starts(game: EmpiricalGame, rng: np.random.Generator, count: int) -> Iterator[Mixtures]:
    sizes = [len(role.strategies) for role in game.roles]
    yield tuple(np.full(size, 1.0 / size) for size in sizes)
    for _ in range(count):
        yield tuple(rng.dirichlet(np.ones(size)) for size in sizes)


def _candidates(
    game: EmpiricalGame, rng: np.random.Generator, starts: int, spread: float, is_over: Stop
) -> Iterator[Mixtures]:
    yield from _pure(game)
    for number, start in enumerate(_starts(game, rng, starts)):
        last, mean = _replicate(game, start, spread, is_over)
        for mixtures in (start, last, mean):
            yield mixtures
            yield _on_support(game, mixtures, spread, is_over)
        if not number:
            for mixtures in _uniform_on_supports(game):
                yield _on_support(game, mixtures, spread, is_over)


def _pure(game: EmpiricalGame) -> Iterator[Mixtures]:
    """Yield the pure strategies of all roles, if they are few."""
    sizes = [len(role.strategies) for role in game.roles]
    if math.prod(sizes) <= 2**MOST_BITS:
        yield from product(*(np.eye(size) for size in sizes))


def _uniform_on_supports(game: EmpiricalGame) -> Iterator[Mixtures]:
    """Yield the uniform mixtures of all supports, small ones first, if they are few."""
    sizes = [len(role.strategies) for role in game.roles]
    if sum(sizes) > MOST_BITS:
        return
    by_role = [[np.array(bits, np.float64) for bits in product((0, 1), repeat=n)] for n in sizes]
    joint = [each for each in product(*by_role) if all(bits.any() for bits in each)]
    for bits in sorted(joint, key=lambda each: sum(own.sum() for own in each)):
        yield tuple(own / own.sum() for own in bits)


def _replicate(
    game: EmpiricalGame, start: Mixtures, spread: float, is_over: Stop
) -> tuple[Mixtures, Mixtures]:
    """Return where the dynamics end, and their mean over time."""
    mixtures, total = start, [np.zeros_like(each) for each in start]
    for _ in range(STEPS):
        gains = game.deviation_payoffs(mixtures)
        moved = []
        for mixture, columns in zip(mixtures, game.columns, strict=True):
            weights = mixture * np.exp(RATE * (gains[columns] - gains[columns].max()) / spread)
            moved.append(weights / weights.sum())
        change = max(np.abs(a - b).max() for a, b in zip(moved, mixtures, strict=True))
        mixtures = tuple(moved)
        total = [each + own for each, own in zip(total, mixtures, strict=True)]
        if change < 1e-12:
            return mixtures, mixtures
        if is_over():
            break
    return mixtures, tuple(each / each.sum() for each in total)


def _on_support(game: EmpiricalGame, near: Mixtures, spread: float, is_over: Stop) -> Mixtures:
    """Return mixtures of the strategies of `near`, which gain the same if that is possible.

    Once the search is over, return `near`.
    """
    supports: list[Bools] = [mixture > PLAYED for mixture in near]
    sizes = [int(support.sum()) for support in supports]
    ends = np.cumsum(sizes)[:-1]

    def mixtures_of(numbers: Numbers) -> Mixtures:
        found = []
        for own, support in zip(np.split(numbers, ends), supports, strict=True):
            mixture = np.zeros(len(support))
            mixture[support] = np.maximum(own, 0.0)
            found.append(mixture / max(mixture.sum(), 1e-300))
        return tuple(found)

    def differences(numbers: Numbers) -> Numbers:
        if is_over():
            raise _OverError
        gains = game.deviation_payoffs(mixtures_of(numbers)) / spread
        parts: list[Numbers] = [np.array([part.sum() - 1.0]) for part in np.split(numbers, ends)]
        for columns, support in zip(game.columns, supports, strict=True):
            own = gains[columns][support]
            parts.append(own - own.mean())
        return np.concatenate(parts)

    if max(sizes) == 1:
        return mixtures_of(np.ones(len(sizes)))
    begin = _joined(near, supports)
    exact = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
    try:
        found = least_squares(differences, begin, bounds=(0.0, 1.0), **exact, max_nfev=EVALUATIONS)
    except _OverError:
        return near
    return mixtures_of(found.x)


def _joined(mixtures: Sequence[Numbers], supports: Sequence[Bools]) -> Numbers:
    parts = [m[s] / m[s].sum() for m, s in zip(mixtures, supports, strict=True)]
    joined: Numbers = np.concatenate(parts)
    return joined.clip(1e-9, 1.0 - 1e-9)
