"""How long an analysis takes, and what memory: of a long ledger, and of large games.

A ledger of matches between policies that are known to differ, as a run writes it, is analysed by
`remuda analyse` in a separate child; then alpha-rank and a linear program of random games, in
this process. Held to bars for two cores.

    python benchmarks/analysis.py                       # all of it, 10 million matches
    python benchmarks/analysis.py --matches 100000      # a shorter ledger
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from recording import Results, options_of

from remuda.analysis.equilibria.zero_sum import solve
from remuda.analysis.ranking.alpha_rank import alpha_rank
from remuda.evaluation.tournaments.record import DESCRIPTION
from remuda.population.ledger.ledger import header_of, record_type

SECONDS, GIB = 30.0, 2.0
"""The limits for the analysis of ten million matches of 64 policies."""
EACH = 10.0
"""Seconds that alpha-rank of 200 strategies may take, and a linear program of 500 x 500."""
AT_ONCE = 1 << 20
"""Records that are written at once."""


def write_ledger(directory: Path, policies: int, matches: int, rng: np.random.Generator) -> Path:
    """Write the ledger of a tournament of two seats: skill, a cycle, and noise of one match."""
    names = [f"policy_{number}" for number in range(policies)]
    skill = np.linspace(-1.0, 1.0, policies)
    angle = np.arange(policies) * 2.0 * np.pi / max(policies, 1)
    payoffs = 0.2 * (skill[:, None] - skill) + 0.1 * np.sin(angle - angle[:, None])
    directory.mkdir(parents=True, exist_ok=True)
    (directory / DESCRIPTION).write_text("{}")
    with (directory / "ledger.bin").open("wb") as file:
        file.write(header_of(names, 2))
        for begin in range(0, matches, AT_ONCE):
            records = np.zeros(min(AT_ONCE, matches - begin), record_type(2))
            count = len(records)
            records["number"] = np.arange(begin, begin + count)
            records["policy"] = rng.integers(0, policies, (count, 2))
            records["version"] = -1
            one, other = records["policy"].T
            first = np.sign(payoffs[one, other] + rng.standard_normal(count))
            records["returns"] = np.stack([first, -first], 1)
            file.write(records.tobytes())
    return directory


def in_a_child(directory: Path) -> tuple[float, float, float]:
    """Analyse a directory in a separate process; returns seconds, those of CPU, GiB at most."""
    words = [sys.executable, "-m", "remuda", "analyse", str(directory)]
    began = time.perf_counter()
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit("the analysis failed; its output is above")
    # Linux counts in KiB, macOS in bytes.
    unit = 2**30 if sys.platform == "darwin" else 2**20
    computed = usage.ru_utime + usage.ru_stime
    return time.perf_counter() - began, computed, usage.ru_maxrss / unit


def main() -> None:
    """Analyse, and print seconds and memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", type=int, default=64)
    parser.add_argument("--matches", type=int, default=10_000_000)
    parser.add_argument("--strategies", type=int, default=200, help="of alpha-rank")
    parser.add_argument("--rows", type=int, default=500, help="of the linear program")
    options = options_of(parser)
    rng = np.random.default_rng(0)
    results = Results("analysis")
    with tempfile.TemporaryDirectory() as home:
        in_a_child(write_ledger(Path(home) / "small", 4, 400, rng))  # compiles
        ledger = write_ledger(Path(home) / "large", options.policies, options.matches, rng)
        seconds, computed, gib = in_a_child(ledger)
    what = f"a ledger of {options.matches:,} matches of {options.policies} policies"
    results.row({"what": what, "seconds": seconds, "CPU seconds": computed, "GiB": gib})
    results.bar(f"{what}: seconds", seconds, most=SECONDS)
    results.bar(f"{what}: GiB", gib, most=GIB)
    game = rng.standard_normal((options.strategies,) * 2)
    began = time.perf_counter()
    alpha_rank(game)
    seconds = time.perf_counter() - began
    results.row({"what": f"alpha-rank of {options.strategies} strategies", "seconds": seconds})
    results.bar(f"alpha-rank of {options.strategies} strategies: seconds", seconds, most=EACH)
    game = rng.standard_normal((options.rows,) * 2)
    began = time.perf_counter()
    solve(game)
    seconds = time.perf_counter() - began
    what = f"linear program of {options.rows} x {options.rows}"
    results.row({"what": what, "seconds": seconds})
    results.bar(f"{what}: seconds", seconds, most=EACH)
    results.finish(options)


if __name__ == "__main__":
    main()
