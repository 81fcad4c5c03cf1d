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
import numpy.typing as npt
from scipy.special import entr

from remuda.analysis.equilibria import general_sum, zero_sum
from remuda.analysis.equilibria.uncertain_equilibrium import USED
from remuda.analysis.payoffs.from_ledger import KEY, PIECE, LedgerReader
from remuda.analysis.payoffs.payoffs import Payoffs, from_sums
from remuda.analysis.payoffs.sums import ROWS, add_up
from remuda.analysis.structure.diversity import response_diversity
from remuda.analysis.structure.transitivity import split_intervals
from remuda.errors import RunDirectoryError, UsageError
from remuda.population.ledger.ledger import BIRTH, MATCH
from remuda.runs.metrics import AnalysisNumbers
from remuda.system.checkpoint.opening import open_stream
from remuda.types import Array, Bools, Integers, Numbers

MET = 10  # minimum number of meetings of two members for a known payoff
SECONDS = 2.0  # time limit of the search for an equilibrium of a general-sum game
DRAWS = 2  # bootstrap draws of the payoffs: the minimum, since no intervals are computed
DIVERSITY_DRAWS = 40  # bootstrap draws for the bias of the diversity and its null distribution
CHANCE = 0.05
"""A diversity is not reported if equal members would reach it with a higher probability."""


def measure(payoffs: Payoffs, live: Bools) -> tuple[AnalysisNumbers, Numbers, Numbers]:
    """Compute an analysis, and each member's mean payoff and equilibrium probability, [N]."""
    whole = payoffs.completed()
    count = len(live)
    distinct = ~np.eye(count, dtype=np.bool_)
    known = (payoffs.met >= MET) & distinct
    with np.errstate(invalid="ignore"):
        mean_payoffs: Numbers = np.where(known, whole.matrix, 0.0).sum(1) / known.sum(1)
    mixed = np.full(count, np.nan)
    chosen = gapless(known, live)
    unmet = float((~known & distinct).sum() / max(distinct.sum(), 1))
    if len(chosen) < 2:
        return AnalysisNumbers(analysed=0, unmet=unmet), mean_payoffs, mixed
    part = whole.part(chosen.tolist())
    mixture = _nash(part)
    if mixture is not None:
        mixed[chosen] = mixture
    numbers = AnalysisNumbers(
        analysed=len(chosen),
        unmet=unmet,
        diversity=_diversity(part),
        nash_support=None if mixture is None else int((mixture > USED).sum()),
        nash_entropy=None if mixture is None else float(entr(mixture).sum()),
        nash_live=None if mixture is None else float(mixture[live[chosen]].sum()),
        transitive_share=_transitive(part),
        exploitability=_exploitability(whole.matrix, known, chosen[live[chosen]]),
    )
    return numbers, mean_payoffs, mixed


def gapless(known: Bools, live: Bools) -> Integers:
    """Return a set of members that all met each other: [K] indices, in order.

    The member with the most gaps is removed repeatedly. In a tie, frozen members are removed before
    live ones, and later ones before earlier ones.
    """
    missing = ~(known & known.T)
    np.fill_diagonal(missing, False)
    kept = np.ones(len(live), np.bool_)
    while len(kept):
        gaps = np.where(kept, missing[:, kept].sum(1), 0)
        if not gaps.any():
            break
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


RECENT = 1000
"""If one of two members learns, older meetings are scaled down to this number, so that results of
current weights replace those of old weights."""


class RecentPayoffs:
    """The sums of results between the analysed members; each record of the ledger is read once.

    1. Between two frozen members, all meetings read since both were selected count.
    2. If one of two members learns, all meetings of the newest `read` count, and all older ones
       together count as at most `RECENT` meetings.
    3. A new policy starts from zero: results of the previous policy with its name are cleared.
    4. A ledger that became shorter, or was replaced, is read from its start.
    """

    def __init__(self, path: Path, sides: npt.ArrayLike) -> None:
        self._path, self._sides = path, np.asarray(sides, np.int64)
        self._keys: Integers = np.zeros(0, np.int64)
        self._sums: Numbers = np.zeros((ROWS, 0, 0))
        self._read = 0

    def look_at(self, members: Integers) -> None:
        """Select the members: keep known sums, and start new sums at 0."""
        keys = members[:, 0] * KEY + members[:, 1] + 1
        sums = np.zeros((ROWS, len(keys), len(keys)))
        _, now, before = np.intersect1d(keys, self._keys, return_indices=True)
        sums[:, now[:, None], now] = self._sums[:, before[:, None], before]
        self._keys, self._sums = keys, sums

    def read(self) -> None:
        try:
            ledger = LedgerReader.open(self._path)
        except RunDirectoryError:
            return
        if ledger.end < self._read:
            self._read, self._sums = 0, np.zeros_like(self._sums)
        begin = self._read or ledger.begin
        with open_stream(self._path) as file:
            file.seek(begin)
            remaining = (ledger.end - begin) // ledger.kind.itemsize
            while remaining > 0:
                records = np.fromfile(file, ledger.kind, min(remaining, PIECE))
                if not len(records):
                    break
                remaining -= len(records)
                self._add(records)
                self._read = begin = begin + len(records) * ledger.kind.itemsize

    def payoffs(self) -> Payoffs:
        """Return the payoffs of the members, named by index, as a symmetric game."""
        return from_sums([str(index) for index in range(len(self._keys))], self._sums, True)

    def _add(self, records: Array) -> None:
        """Add up records in order; a new policy clears the results of the policy it replaces."""
        births = np.flatnonzero(records["kind"] == BIRTH)
        for part in np.split(records, births):
            if len(part) and part["kind"][0] == BIRTH:
                is_replaced = self._keys == int(part["policy"][0, 0]) * KEY
                self._sums[:, is_replaced] = 0.0
                self._sums[:, :, is_replaced] = 0.0
            self._add_matches(part[part["kind"] == MATCH])

    def _add_matches(self, matches: Array) -> None:
        matches = matches[~np.isinf(matches["returns"]).any(1)]  # NaN: the seat took no part
        if not len(matches) or not len(self._keys):
            return
        keys = matches["policy"].astype(np.int64) * KEY + matches["version"] + 1
        order = np.argsort(self._keys)
        found = order[np.searchsorted(self._keys, keys, sorter=order).clip(0, len(order) - 1)]
        indices = np.where(self._keys[found] == keys, found, -1)
        live = self._keys % KEY == 0
        changing = live[:, None] | live
        with np.errstate(divide="ignore"):
            scale = np.where(changing, np.minimum(RECENT / self._sums[7], 1.0), 1.0)
        self._sums *= scale
        self._sums[6] *= scale  # sums of squared weights are scaled twice
        returns = matches["returns"].astype(np.float64)
        add_up(indices, returns, self._sides, True, False, self._sums)


def serve(pipe: Connection, ledger: Path, sides: Sequence[int]) -> None:
    """Answer requests, members [N, 2], until the other end closes the pipe."""
    with contextlib.suppress(OSError):
        os.nice(15)  # a lower priority than learners, whose niceness is 3
    use_one_thread()
    payoffs = RecentPayoffs(ledger, sides)
    found: Any
    with contextlib.suppress(EOFError, OSError):
        while True:
            members = pipe.recv()
            try:
                payoffs.look_at(members)
                payoffs.read()
                found = measure(payoffs.payoffs(), members[:, 1] < 0)
            except Exception as error:  # the next analysis may work
                traceback.print_exc()
                found = f"{type(error).__name__}: {error}"[:500]
            pipe.send(found)


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
