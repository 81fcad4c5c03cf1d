"""A learner process that stands still, and a game that does not: `python benchmarks/stall.py`.

Eight PPO policies play one game and are trained in two learner processes. One of them is stopped by
SIGSTOP for some seconds, and goes on. Told is, for `on_full wait` and for `overwrite`: the longest
time in which no turn was played, and how long actors waited at most for a learner besides; how
fast the other four policies trained meanwhile, against a run in which the four in the stopped
process were never there; and whether all eight go on.

The run to compare with has the same game and the other four policies only; the remaining seats act
at random and learn nothing (`env.scripted`), so that it is a little less work.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from remuda.assembly import Assembly
from remuda.checkpoint.store import Checkpoints
from remuda.config import load_config, overlay
from remuda.envs.registry import make_env
from remuda.policies.spec import policy_specs
from remuda.runtime.layout import make_layout
from remuda.runtime.processes import ProcessRuntime
from remuda.scoreboard import Learn, Play

POLICIES = 8
GLANCE = 0.01
"""Seconds between two looks at the game."""
WARM = 10
"""Updates of every policy before anything is measured."""


@dataclass(frozen=True)
class Found:
    """What one run shows."""

    on_full: str
    standstill: float
    """Seconds: the longest without a turn while the learner was stopped."""
    usual_standstill: float
    """Seconds: the longest without a turn before."""
    waits: int
    """Times that the actor waited, in the whole run."""
    left_behind: int
    """Times that it waited no more for a learner."""
    others: float
    """Steps that each of the other four trained on, by the second, while it was stopped."""
    lost: int
    """Steps of the stopped four that were overwritten or passed over, by the end."""
    all_go_on: bool
    """Whether each of the eight made ten updates after it went on."""


def make(on_full: str, scripted: bool, copies: int) -> Assembly:
    """The run: eight policies, or four and four that learn nothing."""
    tree: dict[str, Any] = {
        "game": "treasure_hunt",
        "env": {"num_envs": copies, "options": {"num_agents": POLICIES}},
        "policy": {"algorithm": "ppo", "experience": {"on_full": on_full}},
        "run": {"seconds": 3600},
        "learners": {"processes": 1 if scripted else 2},
        "supervision": {"silence_limit": 600.0},
    }
    if scripted:
        idle = {f"agent_{i}": "random" for i in range(POLICIES // 2)}
        tree = overlay(tree, {"env": {"scripted": idle}})
    config = load_config(tree)
    agents = make_env(config.game, 1, **config.env.options).agents
    specs = policy_specs(config, agents)
    return Assembly(config, specs, make_layout(config, len(specs)), agents=agents)


class Watch:
    """Runs the game for a while, and notes how long no turn was played."""

    def __init__(self, assembly: Assembly, runtime: ProcessRuntime) -> None:
        self._board, self._runtime = assembly.scoreboard, runtime

    def rates(self, seconds: float, names: list[str]) -> tuple[float, float]:
        """Watch for so long: the longest standstill, and trained steps by policy and second."""
        rows = [self._board.learn(name) for name in names]
        before = sum(float(row[Learn.TRAINED]) for row in rows)
        began = last = time.perf_counter()
        turns, longest = self._board.turns(), 0.0
        while (now := time.perf_counter()) < began + seconds:
            if self._board.turns() != turns:
                turns, last = self._board.turns(), now
            longest = max(longest, now - last)
            self._runtime.run_for(GLANCE)
        trained = sum(float(row[Learn.TRAINED]) for row in rows) - before
        return longest, trained / len(names) / (time.perf_counter() - began)

    def until_updated(self, names: list[str], count: int, limit: float) -> bool:
        """Watch until each of these made so many updates more; False: not within the limit."""
        rows = [self._board.learn(name) for name in names]
        goals = [float(row[Learn.UPDATES]) + count for row in rows]
        end = time.perf_counter() + limit
        while any(row[Learn.UPDATES] < goal for row, goal in zip(rows, goals, strict=True)):
            if time.perf_counter() > end:
                return False
            self._runtime.run_for(GLANCE)
        return True


def stall(on_full: str, seconds: float, copies: int, folder: Path) -> Found:
    """Stop one of two learner processes for so long."""
    assembly = make(on_full, scripted=False, copies=copies)
    runtime = assembly.runtime(folder, Checkpoints(folder / "checkpoints"))
    assert isinstance(runtime, ProcessRuntime)
    names = [spec.name for spec in assembly.specs]
    stopped = names[: POLICIES // 2]
    others = names[POLICIES // 2 :]
    watch = Watch(assembly, runtime)
    try:
        runtime.start(lambda: False)
        watch.until_updated(names, WARM, 300.0)
        usual, _ = watch.rates(min(seconds, 5.0), others)
        pid = next(p for name, p in runtime.pids.items() if name.startswith("learner-agent_0"))
        os.kill(pid, signal.SIGSTOP)
        standstill, rate = watch.rates(seconds, others)
        os.kill(pid, signal.SIGCONT)
        all_go_on = watch.until_updated(names, 10, 120.0)
        play = assembly.scoreboard.played()
        return Found(
            on_full,
            standstill,
            usual,
            int(play[Play.WAITS]),
            int(play[Play.FORCED]),
            rate,
            sum(int(assembly.scoreboard.learn(name)[Learn.LOST]) for name in stopped),
            all_go_on,
        )
    finally:
        runtime.stop()


def without(on_full: str, seconds: float, copies: int, folder: Path) -> float:
    """How fast the other four train where the four of the stopped process do not learn."""
    assembly = make(on_full, scripted=True, copies=copies)
    runtime = assembly.runtime(folder, Checkpoints(folder / "checkpoints"))
    assert isinstance(runtime, ProcessRuntime)
    others = [spec.name for spec in assembly.specs][POLICIES // 2 :]
    watch = Watch(assembly, runtime)
    try:
        runtime.start(lambda: False)
        watch.until_updated(others, WARM, 300.0)
        return watch.rates(seconds, others)[1]
    finally:
        runtime.stop()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long it is stopped")
    parser.add_argument("--copies", type=int, default=64, help="of the game")
    options = parser.parse_args()
    for on_full in ("wait", "overwrite"):
        with tempfile.TemporaryDirectory() as name:
            found = stall(on_full, options.seconds, options.copies, Path(name))
        with tempfile.TemporaryDirectory() as name:
            alone = without(on_full, options.seconds, options.copies, Path(name))
        share = found.others / alone if alone else 0.0
        print(json.dumps(asdict(found) | {"alone": alone, "share": share}))
        print(
            f"{on_full}: the game stood still for {found.standstill:.2f} s at most "
            f"({found.usual_standstill:.2f} s before); the other four trained at {share:.0%} of "
            f"the speed of a run without the stopped ones; {found.waits} waits; "
            f"{'all eight went on' if found.all_go_on else 'NOT ALL WENT ON'} "
            f"({found.lost:,} steps lost)"
        )


if __name__ == "__main__":
    main()
