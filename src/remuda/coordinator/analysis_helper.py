"""The helper process that analyses a population during a run, from the payoffs in the ledger."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import entr

from remuda.analysis.equilibria import general_sum, zero_sum
from remuda.analysis.equilibria.uncertain_equilibrium import USED
from remuda.analysis.payoffs.empirical_game import EmpiricalGame
from remuda.analysis.payoffs.ledger_seats import LedgerSeats
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.analysis.payoffs.sampling import with_predicted_own
from remuda.analysis.population_report import game_solution
from remuda.analysis.ranking.rank import Score, mean_over_opponents, mean_payoff
from remuda.analysis.roles_report import pairs_of_roles, roles_solution
from remuda.analysis.structure.diversity import response_diversity
from remuda.analysis.structure.population_regret import gain_over_mean
from remuda.analysis.structure.transitivity import split_intervals
from remuda.coordinator.recent_payoffs import Member, RecentPayoffs
from remuda.errors import UsageError
from remuda.runs.metrics import AnalysisNumbers
from remuda.types import Bools, Integers, Numbers

MET = 10  # minimum number of meetings of two members for a known payoff
SECONDS = 2.0  # time limit of the search for an equilibrium of a general-sum game
DRAWS = 2  # bootstrap draws of the payoffs: the minimum, since no intervals are computed
GAIN_DRAWS = 100  # bootstrap draws for the bias of a gain
DIVERSITY_DRAWS = 40  # bootstrap draws for the bias of the diversity and its null distribution
CHANCE = 0.05
"""A diversity is not reported if equal members would reach it with a higher probability."""


Measures = tuple[AnalysisNumbers, Numbers, Numbers]
"""An analysis, and each member's mean payoff and its probability in the equilibrium, [N]."""


def measure(game: EmpiricalGame, live: Bools) -> Measures:
    """Analyse members that may all take the same seats."""
    whole = game.payoffs.completed()
    count = len(live)
    distinct = ~np.eye(count, dtype=np.bool_)
    known = (game.payoffs.met >= MET) & distinct
    with np.errstate(invalid="ignore"):
        mean_payoffs: Numbers = np.where(known, whole.matrix, 0.0).sum(1) / known.sum(1)
    mixed = np.full(count, np.nan)
    chosen = gapless(known, live)
    unmet = float((~known & distinct).sum() / max(distinct.sum(), 1))
    if len(chosen) < 2:
        return AnalysisNumbers(analysed=0, unmet=unmet), mean_payoffs, mixed
    if game.has_line_ups:
        left = {whole.names[place] for place in chosen}
        game = game.part(lambda _, name: name in left)
        (role,) = game.roles
        chosen = np.array([whole.names.index(name) for name in role.strategies], np.int64)
    part = whole.part(chosen.tolist())
    mixture = _solution(part, game) if game.has_line_ups else _nash(part)
    if mixture is not None:
        mixed[chosen] = mixture
    numbers = AnalysisNumbers(
        analysed=len(chosen),
        unmet=unmet,
        diversity=_diversity(with_predicted_own(part) if game.has_line_ups else part),
        nash_support=None if mixture is None else int((mixture > USED).sum()),
        nash_entropy=None if mixture is None else float(entr(mixture).sum()),
        nash_live=None if mixture is None else float(mixture[live[chosen]].sum()),
        transitive_share=_transitive(part),
        exploitability=_gain(part, mean_payoff)
        if game.has_line_ups
        else _exploitability(whole.matrix, known, chosen[live[chosen]]),
    )
    return numbers, mean_payoffs, mixed


def measure_roles(game: EmpiricalGame, live: Bools) -> Measures:
    """Analyse the members of several roles, as `analyse_roles` does."""
    payoffs, roles = game.payoffs, game.roles
    role_of = {name: number for number, role in enumerate(roles) for name in role.strategies}
    numbers = np.array([role_of[name] for name in payoffs.names], np.int64)
    opposed = numbers[:, None] != numbers
    known = (payoffs.met >= MET) & opposed
    with np.errstate(invalid="ignore"):
        mean_payoffs: Numbers = np.where(known, payoffs.matrix, 0.0).sum(1) / known.sum(1)
    mixed = np.full(len(live), np.nan)
    unmet = float((~known & opposed).sum() / max(opposed.sum(), 1))
    chosen = gapless(known | ~opposed, live, numbers)
    if len(set(numbers[chosen])) < len(roles):
        return AnalysisNumbers(analysed=0, unmet=unmet), mean_payoffs, mixed
    left = {payoffs.names[place] for place in chosen}
    # Members keep the order of their role, which is that of the game and of its mixtures.
    game = game.part(lambda _, name: name in left)
    pairs = pairs_of_roles(game)
    mixtures = _solution_of_roles(game, pairs)
    for role, mixture in zip(game.roles, mixtures or (), strict=mixtures is not None):
        mixed[[payoffs.names.index(name) for name in role.strategies]] = mixture
    played = None if mixtures is None else np.concatenate(mixtures)
    gains = [_gain(pair, mean_over_opponents) for pair in pairs]
    found = AnalysisNumbers(
        analysed=len(chosen),
        unmet=unmet,
        diversity=_diversity_of_roles(pairs),
        nash_support=None if played is None else int((played > USED).sum()),
        nash_entropy=None if played is None else float(entr(played).sum()),
        nash_live=None if played is None else float(np.nansum(mixed[live])) / len(roles),
        exploitability=None if None in gains else float(np.mean(np.array(gains, np.float64))),
    )
    return found, mean_payoffs, mixed


def gapless(known: Bools, live: Bools, roles: Integers | None = None) -> Integers:
    """Return a set of members that all met their opponents: [K] indices, in order.

    The member that met the smallest share of its opponents is removed repeatedly, but never the
    last of a role; the set is empty if that leaves a gap. In a tie, frozen members are removed
    before live ones, and later ones before earlier ones.

    roles: [N] the role of each member, whose opponents have other roles; None: all are opponents.
    """
    opposed = ~np.eye(len(live), dtype=np.bool_) if roles is None else roles[:, None] != roles
    missing = ~(known & known.T) & opposed
    kept = np.ones(len(live), np.bool_)
    while len(kept):
        gaps = missing[:, kept].sum(1) / np.maximum(opposed[:, kept].sum(1), 1)
        gaps[~kept] = 0.0
        if not gaps.any():
            break
        if roles is not None:
            gaps[np.bincount(roles[kept], minlength=roles.max() + 1)[roles] == 1] = 0.0
            if not gaps.any():
                return np.flatnonzero(gaps)
        worst = np.flatnonzero(gaps == gaps.max())
        frozen = worst[~live[worst]]
        kept[frozen[-1] if len(frozen) else worst[-1]] = False
    return np.flatnonzero(kept)


def _nash(payoffs: Payoffs) -> Numbers | None:
    """Return a symmetric equilibrium [N], of maximum entropy if zero-sum; None if unknown."""
    matrix = payoffs.matrix
    if payoffs.is_zero_sum:  # up to a constant, as with win rates
        return zero_sum.solve_max_entropy((matrix - matrix.T) / 2.0).mixtures[0]
    if np.isnan(matrix).any():
        return None
    found = general_sum.solve(matrix, matrix.T, SECONDS, symmetric=True)
    return None if found is None else found.mixtures[0]


def _solution(payoffs: Payoffs, game: EmpiricalGame) -> Numbers | None:
    """Return the mixture that `remuda analyse` reports for three seats or more; None: unknown."""
    rng = np.random.default_rng(0)
    try:
        found = game_solution(game, payoffs, rng, DRAWS, SECONDS)
    except UsageError:  # no line-up was played twice
        return None
    return None if found is None else found.answer.mixtures[0]


def _solution_of_roles(game: EmpiricalGame, pairs: Sequence[Payoffs]) -> Sequence[Numbers] | None:
    """Return the mixtures by role that `remuda analyse` reports; None: unknown."""
    rng = np.random.default_rng(0)
    try:
        return roles_solution(game, pairs, rng, DRAWS, SECONDS).answer.mixtures
    except UsageError:
        return None


def _gain(payoffs: Payoffs, score: Score) -> float | None:
    """Return what a seat gains by always playing the best policy; None: no two met twice."""
    try:
        return gain_over_mean(payoffs, np.random.default_rng(0), GAIN_DRAWS, score).corrected
    except UsageError:
        return None


def _diversity_of_roles(pairs: Sequence[Payoffs]) -> float | None:
    """Return the sum of the roles' diversities; None if noise may explain all of them."""
    rng, found = np.random.default_rng(0), []
    for pair in pairs:
        scale = float(pair.matrix.std()) or 1.0
        try:
            found.append(response_diversity(pair, rng, scale=scale, draws=DIVERSITY_DRAWS))
        except UsageError:
            return None
    if all(each.null_share > CHANCE for each in found):
        return None
    return sum(each.corrected for each in found)


def _diversity(payoffs: Payoffs) -> float | None:
    """Return the noise-corrected expected cardinality; None if noise may explain it."""
    if payoffs.missing.any():
        return None
    off_diagonal = payoffs.matrix[~np.eye(len(payoffs.names), dtype=np.bool_)]
    scale = float(off_diagonal.std()) or 1.0
    rng = np.random.default_rng(0)
    found = response_diversity(payoffs, rng, scale=scale, draws=DIVERSITY_DRAWS)
    return found.corrected if found.null_share <= CHANCE else None


def _transitive(payoffs: Payoffs) -> float | None:
    try:
        found = split_intervals(payoffs, np.random.default_rng(0), DRAWS).transitive
    except UsageError:  # no two members met twice
        return None
    return found if math.isfinite(found) else None


def _exploitability(matrix: Numbers, known: Bools, live: Integers) -> float | None:
    """Return the gain of the best response to these members' uniform mixture; None if unknown."""
    if not len(live):
        return None
    has_met = known | (np.eye(len(matrix), dtype=np.bool_) & ~np.isnan(matrix))
    replies = np.flatnonzero(has_met[:, live].all(1))
    own = matrix[live[:, None], live]
    if not len(replies) or np.isnan(own).any():
        return None
    return float(matrix[replies[:, None], live].mean(1).max() - own.mean())


def serve(
    pipe: Connection, ledger: Path, seats: LedgerSeats, members: Sequence[Sequence[Member]]
) -> None:
    """Answer requests, members [N, 2], until the other end closes the pipe."""
    with contextlib.suppress(OSError):
        os.nice(15)  # a lower priority than learners, whose niceness is 3
    use_one_thread()
    payoffs = RecentPayoffs(ledger, seats, members)
    found: Any
    with contextlib.suppress(EOFError, OSError):
        while True:
            asked = pipe.recv()
            try:
                payoffs.look_at(asked)
                payoffs.read()
                found = measured(payoffs, asked[:, 1] < 0)
            except Exception as error:  # the next analysis may work
                traceback.print_exc()
                found = f"{type(error).__name__}: {error}"[:500]
            pipe.send(found)


def measured(recent: RecentPayoffs, live: Bools) -> Measures:
    """Analyse the members of a run: those of each role, or all of them together."""
    game = recent.game()
    return measure(game, live) if len(game.roles) == 1 else measure_roles(game, live)


def use_one_thread() -> None:
    """Limit every loaded OpenBLAS to one thread; `OPENBLAS_NUM_THREADS` would be too late."""
    for set_threads in openblas_functions("set_num_threads"):
        set_threads(1)


def openblas_functions(name: str) -> Iterator[Any]:
    """Yield `openblas_NAME` of all loaded copies of OpenBLAS; wheels add prefixes and suffixes."""
    with contextlib.suppress(OSError):  # systems without /proc
        maps = Path("/proc/self/maps").read_text()
        for path in sorted(set(re.findall(r"/\S*openblas\S*\.so\S*", maps))):
            library = ctypes.CDLL(path)
            for prefix in ("", "scipy_"):
                for suffix in ("", "64_", "_64"):
                    found = getattr(library, f"{prefix}openblas_{name}{suffix}", None)
                    if found is not None:
                        yield found
