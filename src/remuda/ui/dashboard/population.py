"""The page of a population: payoffs, equilibrium mixture, map and lineage.

A child process (`python -m remuda.ui.dashboard.population RUN PIPE`) computes the page, writes JSON
and exits. So the libraries and memory that it needs do not stay in the server.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.errors import RemudaError
from remuda.runs.run_directory import RunDirectory
from remuda.ui.dashboard.curves import rounded, stamp_of

if TYPE_CHECKING:
    from remuda.analysis.payoffs.payoffs import Payoffs

MEMBERS = 60  # maximum number of members: the live ones, then the newest copies
PATIENCE = 10.0  # an answer is reused for this multiple of its computation time
DRAWS, SECONDS = 20, 2.0  # draws of the payoffs, solver time; `remuda analyse` uses more
NO_LEDGER = "There is no ledger of matches: each agent always plays the same policy."
LONGEST = 300.0  # time limit of the child process in seconds


class PopulationPages:
    """Cached population pages of runs, recomputed when the ledger has changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cached = lru_cache(8)(lambda _path: _CachedAnswer())
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for process in self._processes:
                process.kill()

    def of(self, files: RunDirectory) -> dict[str, Any]:
        """Return the page of one run; if the page is empty, `none` says why."""
        stamp, cached = stamp_of(files.ledger), self._cached(files.ledger)
        with cached.lock:
            begun = time.monotonic()
            if stamp != cached.stamp and begun >= cached.good_until:
                cached.answer, cached.stamp = self._compute(files), stamp
                now = time.monotonic()
                cached.good_until = now + PATIENCE * (now - begun)
            return cached.answer

    def _compute(self, files: RunDirectory) -> dict[str, Any]:
        if not files.ledger.exists():
            return {"none": NO_LEDGER}
        program = [sys.executable, "-m", "remuda.ui.dashboard.population", str(files.path)]
        # The child exits when this server, which holds the other end of the pipe, dies.
        end, lifeline = os.pipe()
        with self._lock:
            if self._ended:
                os.close(end)
                os.close(lifeline)
                return {"none": "The dashboard is shutting down."}
            process = subprocess.Popen(
                [*program, str(end)],
                pass_fds=(end,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            self._processes.add(process)
        os.close(end)
        try:
            output, errors = process.communicate(timeout=LONGEST)
            found = json.loads(output)
        except subprocess.TimeoutExpired:
            return {
                "none": f"The analysis took over {LONGEST:.0f} s; `remuda analyse` has no limit."
            }
        except ValueError:
            last = errors.decode(errors="replace").strip().splitlines()[-1:]
            return {"none": f"The analysis failed: {''.join(last)}"}
        finally:
            with self._lock:
                self._processes.discard(process)
            process.kill()
            process.wait()
            os.close(lifeline)
        return found if isinstance(found, dict) else {}


@dataclass
class _CachedAnswer:
    lock: threading.Lock = field(default_factory=threading.Lock)
    answer: dict[str, Any] = field(default_factory=dict)
    stamp: object = None
    good_until: float = -math.inf


def population_of(files: RunDirectory) -> dict[str, Any]:
    """Read and analyse a ledger; if there is no result, `none` says why."""
    from remuda.population.ledger.lineage import read_lineage

    try:
        births = [asdict(born) for born in read_lineage(files.ledger)]
    except (RemudaError, ValueError, OSError) as error:
        return {"none": f"The ledger cannot be read: {error}"}
    try:
        payoffs = _read_payoffs(files)
    except (RemudaError, ValueError, OSError) as error:
        return {"lineage": births, "none": str(error)}
    return {
        "lineage": births,
        "payoffs": {
            "names": list(payoffs.names),
            "means": _table(payoffs.matrix),
            "errors": _table(payoffs.errors[0]),
            "matches": _table(payoffs.met),
        },
        "map": _map(payoffs),
    } | _mixture(payoffs)


def _read_payoffs(files: RunDirectory) -> Payoffs:
    """Read payoffs; load the configuration, which may import code, only for teams or seats."""
    from remuda.analysis.payoffs.from_ledger import read_payoffs
    from remuda.config import read_tree
    from remuda.runs.recorded_matches import read_payoffs as payoffs_of_run

    tree = read_tree(files.config)
    sections = (tree.get("population"), "teams"), (tree.get("env"), "scripted")
    if any(isinstance(section, dict) and section.get(key) for section, key in sections):
        return payoffs_of_run(files, MEMBERS)
    return read_payoffs(files.ledger, most=MEMBERS)


def _table(values: Any) -> list[list[float]]:
    return [rounded(row) for row in values]


def _mixture(payoffs: Payoffs) -> dict[str, Any]:
    from remuda.analysis.equilibria.uncertain_equilibrium import nash

    try:
        found = nash(payoffs, np.random.default_rng(0), DRAWS, SECONDS)
    except (RemudaError, ValueError) as error:
        return {"mixture_none": str(error)}
    return {"mixture": rounded(found.answer.mixtures[0])}


def _map(payoffs: Payoffs) -> list[list[float]] | None:
    """Place members on a map, similar payoffs near each other: [members, 2]; None: few matches."""
    from remuda.analysis.structure.mds import payoff_map

    try:
        found = payoff_map(payoffs, np.random.default_rng(0), draws=DRAWS)
    except (RemudaError, ValueError):
        return None
    return _table(found.positions)


def _end_with(pipe: int) -> None:
    """Exit once the process at the other end of a pipe has died."""
    os.read(pipe, 1)
    os._exit(1)


def main() -> None:
    """Write a run's population page as JSON."""
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # prints of the environment must not mix with the JSON
    with output:
        json.dump(population_of(RunDirectory(Path(sys.argv[1]))), output)


if __name__ == "__main__":
    main()
