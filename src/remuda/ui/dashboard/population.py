"""What the page of a population shows: payoffs, the mixture of its equilibrium, and descent.

It is worked out by a process of its own (`python -m remuda.ui.dashboard.population RUN`), which
writes it as JSON and ends: what that needs of libraries and of memory is not left in the server.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.coordinator.run_directory import RunDirectory
from remuda.errors import RemudaError

if TYPE_CHECKING:
    from remuda.analysis.payoff import Payoffs
    from remuda.population.lineage import Born

MEMBERS = 60
"""The most members that are shown against each other: the live ones, then the newest copies."""
PATIENCE = 10.0
"""Seconds that an answer is good for, times what it took: so no more than a tenth of the time goes
into looking at a ledger that grows."""
DRAWS, SECONDS = 20, 2.0
"""Of what payoffs may be, for the page; `remuda analyse` takes its time."""
KEPT = 8
"""Answers that are kept."""
LONGEST = 300.0
"""Seconds that the process may take."""


class Populations:
    """What is known of the populations of runs; an answer is kept while its ledger is the same."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[Path, _Kept] = OrderedDict()

    def of(self, files: RunDirectory) -> dict[str, Any]:
        """All of one run; `none` tells in words why there is nothing."""
        with self._lock:
            kept = self._kept.pop(files.ledger, None) or _Kept(lambda: _asked(files))
            self._kept[files.ledger] = kept
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return kept.answer(_size(files.ledger))


class _Kept:
    """An answer, and when it was made."""

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._answer: dict[str, Any] = {}
        self._size = -2
        self._good_until = -math.inf

    def answer(self, size: int) -> dict[str, Any]:
        with self._lock:
            begun = time.monotonic()
            if size != self._size and begun >= self._good_until:
                self._answer, self._size = self._make(), size
                now = time.monotonic()
                self._good_until = now + PATIENCE * (now - begun)
            return self._answer


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _asked(files: RunDirectory) -> dict[str, Any]:
    """What the process that works it out says."""
    if not files.ledger.exists():
        return {
            "none": "There is no ledger of matches: each agent of this run has one policy for good."
        }
    words = [sys.executable, "-m", "remuda.ui.dashboard.population", str(files.path)]
    try:
        done = subprocess.run(words, capture_output=True, timeout=LONGEST, check=False)
        found = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {
            "none": f"It was not worked out in {LONGEST:.0f} s; `remuda analyse` takes its time."
        }
    except ValueError:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return {"none": f"It could not be worked out: {''.join(last)}"}
    return found if isinstance(found, dict) else {}


def population_of(files: RunDirectory) -> dict[str, Any]:
    """What its ledger says; `none` tells in words why that is nothing."""
    from remuda.population.lineage import read_lineage

    try:
        births = [_plain(born) for born in read_lineage(files.ledger)]
    except (RemudaError, ValueError, OSError) as error:
        return {"none": f"The ledger cannot be read: {error}"}
    try:
        payoffs = _read_payoffs(files)
    except (RemudaError, ValueError, OSError) as error:
        return {"lineage": births, "none": str(error)}
    return {"lineage": births, "payoffs": _payoffs(payoffs), "map": _map(payoffs)} | _mixture(
        payoffs
    )


def _read_payoffs(files: RunDirectory) -> Payoffs:
    """Who earned what against whom; those of one team do not meet.

    Which seats are a team's may be known by the game alone, which is made then.
    """
    from remuda.analysis.meetings import read_payoffs
    from remuda.config import read_tree

    population = read_tree(files.config).get("population")
    if isinstance(population, dict) and population.get("teams"):
        import remuda

        return remuda.load(files.path).payoffs(MEMBERS)
    return read_payoffs(files.ledger, most=MEMBERS)


def _plain(born: Born) -> dict[str, Any]:
    return {
        "policy": born.policy,
        "generation": born.generation,
        "matches": born.matches,
        "parent": born.parent,
        "parent_generation": born.parent_generation,
        "second": born.second,
        "second_generation": born.second_generation,
        "fitness": _known(born.fitness),
        "hyperparameters": {n: _known(v) for n, v in born.hyperparameters.items()},
    }


def _known(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def _payoffs(payoffs: Payoffs) -> dict[str, Any]:
    return {
        "names": list(payoffs.names),
        "means": _table(payoffs.matrix),
        "errors": _table(payoffs.errors[0]),
        "matches": _table(payoffs.met),
    }


def _table(values: Any) -> list[list[float | None]]:
    return [[_known(float(value)) for value in row] for row in values.tolist()]


def _mixture(payoffs: Payoffs) -> dict[str, Any]:
    """What rational players would mix; in words why there is nothing."""
    import numpy as np

    from remuda.analysis.equilibrium import nash

    try:
        found = nash(payoffs, np.random.default_rng(0), DRAWS, SECONDS)
    except (RemudaError, ValueError) as error:
        return {"mixture_none": str(error)}
    return {"mixture": [_known(float(each)) for each in found.answer.mixtures[0]]}


def _map(payoffs: Payoffs) -> list[list[float | None]] | None:
    """[members, 2]: near are those that fare alike against all; None: too few met."""
    import numpy as np

    from remuda.analysis.mds import payoff_map

    try:
        found = payoff_map(payoffs, np.random.default_rng(0), draws=DRAWS)
    except (RemudaError, ValueError):
        return None
    return [[_known(float(value)) for value in row] for row in found.positions]


def main() -> None:
    """Write what is known of the population of a run, as JSON."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a game prints is not among it
    with output:
        json.dump(population_of(RunDirectory(Path(sys.argv[1]))), output)


if __name__ == "__main__":
    main()
