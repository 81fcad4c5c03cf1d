"""Stop a learner process, and measure the game meanwhile: `python benchmarks/stall.py`.

Eight PPO policies play one game and are trained in two learner processes. One of them is stopped by
SIGSTOP for some seconds, and then continues. Printed, for `on_full wait` and for `overwrite`: the
longest time in which no turn was played, how often the actor gave up waiting, how fast the other
four policies trained meanwhile, and whether all eight continue.

The other four are compared with themselves in the same run without the stopped learner, which
leaves later in it: it declares to the actor that it needs nothing any more, and
sleeps. So both times
- all eight seats are played by networks of the same size and age, and their steps are written down:
  the actor has the same work (with scripted seats it would have half of it);
- one learner process trains, at the same priority, beside the same actor: where there are fewer
  cores than processes learners step back (`learners.nice`), and a run with one learner process
  would have another priority, and so another share of the cores, than this one with two;
- the four without a learner act with weights that stay: the difference is the cost of a learner
  that stops without declaring it.
The cost of a step does not depend on how well policies play. The two are a few seconds apart, so
that whatever else the machine does harms both; medians are of several rounds. Beside its speed
is the CPU time of the learner of the other four: that shows what the machine did to it.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from recording import Results, options_of

from remuda.assembly.assembly import Assembly
from remuda.config import load_config
from remuda.learner.group import LearnerGroup
from remuda.learner.role import LearnerRole
from remuda.population.run_spec import RunSpec
from remuda.runtime.layout import make_layout
from remuda.runtime.processes import ProcessRuntime
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.scoreboard import Learn, Play

POLICIES = 8
GLANCE = 0.01
"""Seconds between two looks at the game."""
WARM = 10
"""Updates of every policy before anything is measured."""
STANDSTILL = 2.0
"""Seconds that a game may stand still for a learner that is stopped."""


class LeavingLearner(LearnerRole):
    """A learner that stops learning when its process gets SIGUSR1."""

    def build(self) -> LearnerGroup:
        """Make the learners, and listen for the signal."""
        group, asked, left = super().build(), [], []
        work, wait = group.work, group.wait

        def work_or_leave() -> bool:
            if asked and not left:
                self.on_process_death()  # here, because its words in the rings are this process's
                left.append(True)
            return not left and work()

        def wait_or_sleep(timeout: float, interrupted: Callable[[], bool]) -> None:
            if not left:
                wait(timeout, interrupted)
            elif not interrupted():
                time.sleep(min(timeout, 0.1))

        group.work, group.wait = work_or_leave, wait_or_sleep  # type: ignore[method-assign]
        signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
        return group


@dataclass(frozen=True)
class Stretch:
    """The observations of some seconds."""

    standstill: float
    """Seconds: the longest without a turn."""
    trained: float
    """Steps of each of the other four, by the second."""
    processor: float
    """Share of a core that their learner had."""
    given_up: int
    """Times that the actor waited no more for a learner."""


@dataclass(frozen=True)
class Found:
    """The results of one run."""

    usual: Stretch
    """All eight learn."""
    stopped: Stretch
    left: Stretch
    waits: int
    """Times that the actor waited, in the whole run."""
    lost: int
    """Steps of the stopped four that were overwritten or passed over, until all continued."""
    all_go_on: bool
    """True if each of the eight made ten updates after the stopped ones continued."""


def make(on_full: str, copies: int) -> Assembly:
    """The run: eight policies, four in each of two learner processes."""
    tree: dict[str, Any] = {
        "game": "treasure_hunt",
        "env": {"num_envs": copies, "options": {"num_agents": POLICIES}},
        "policy": {
            "algorithm": "ppo",
            "network": {"shared": True},
            "experience": {"on_full": on_full},
        },
        "run": {"turns": None, "seconds": 3600},
        "learners": {"processes": 2},
        "supervision": {"silence_limit": 600.0},
    }
    config = load_config(tree)
    spec = RunSpec.of(config)
    return Assembly(spec, make_layout(config, len(spec.policies)), LeavingLearner)


class Watch:
    """Runs the game for a while, and looks at it and at the other four."""

    def __init__(self, assembly: Assembly, runtime: ProcessRuntime, others: list[str]) -> None:
        self._board, self._runtime, self._others = assembly.scoreboard, runtime, others

    def stretch(self, seconds: float) -> Stretch:
        """Watch for so long."""
        rows = [self._board.learn(name) for name in self._others]
        learner = psutil.Process(learner_of(self._runtime, self._others[0]))
        trained = -sum(float(row[Learn.TRAINED]) for row in rows)
        used, given_up = -sum(learner.cpu_times()[:2]), -self._board.played()[Play.FORCED]
        began = last = time.perf_counter()
        turns, longest = self._board.turns(), 0.0
        while (now := time.perf_counter()) < began + seconds:
            if self._board.turns() != turns:
                turns, last = self._board.turns(), now
            longest = max(longest, now - last)
            self._runtime.run_for(GLANCE)
        gone = time.perf_counter() - began
        trained += sum(float(row[Learn.TRAINED]) for row in rows)
        used += sum(learner.cpu_times()[:2])
        given_up += self._board.played()[Play.FORCED]
        return Stretch(longest, trained / len(rows) / gone, used / gone, int(given_up))

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


def learner_of(runtime: ProcessRuntime, policy: str) -> int:
    """The process that trains a policy, which is the first of its group."""
    return next(p for name, p in runtime.pids.items() if name.startswith(f"learner-{policy}"))


def stall(on_full: str, seconds: float, copies: int, folder: Path) -> Found:
    """Stop one of two learner processes for so long, let it continue, and have it leave."""
    assembly = make(on_full, copies)
    runtime = assembly.runtime(folder, Checkpoints(folder / "checkpoints"))
    assert isinstance(runtime, ProcessRuntime)
    names = [spec.name for spec in assembly.specs]
    stopped, others = names[: POLICIES // 2], names[POLICIES // 2 :]
    watch = Watch(assembly, runtime, others)
    try:
        runtime.start(lambda: False)
        watch.until_updated(names, WARM, 300.0)
        usual = watch.stretch(min(seconds, 5.0))
        pid = learner_of(runtime, stopped[0])
        os.kill(pid, signal.SIGSTOP)
        try:
            during = watch.stretch(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)
        all_go_on = watch.until_updated(names, 10, 120.0)
        lost = sum(int(assembly.scoreboard.learn(name)[Learn.LOST]) for name in stopped)
        os.kill(pid, signal.SIGUSR1)
        watch.until_updated(others, WARM, 120.0)
        updates = [assembly.scoreboard.learn(name)[Learn.UPDATES] for name in stopped]
        left = watch.stretch(seconds)
        for name, count in zip(stopped, updates, strict=True):
            assert assembly.scoreboard.learn(name)[Learn.UPDATES] == count, f"{name} never left"
        waits = int(assembly.scoreboard.played()[Play.WAITS])
        return Found(usual, during, left, waits, lost, all_go_on)
    finally:
        runtime.stop()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="how long it is stopped")
    parser.add_argument("--copies", type=int, default=64, help="of the game")
    parser.add_argument("--rounds", type=int, default=3, help="rounds to take the median of")
    options = options_of(parser)
    modes = ("wait", "overwrite")
    found: dict[str, list[Found]] = {on_full: [] for on_full in modes}
    for _ in range(options.rounds):
        for on_full in modes:
            with tempfile.TemporaryDirectory() as name:
                found[on_full].append(stall(on_full, options.seconds, options.copies, Path(name)))
            print(f"{on_full}: {found[on_full][-1]}", flush=True)
    results = Results("stall")
    for on_full, runs in found.items():
        for what in ("usual", "stopped", "left"):
            stretches: list[Stretch] = [getattr(run, what) for run in runs]
            results.row(
                {
                    "": f"{on_full}, {NAMES[what]}",
                    "longest standstill, s": max(s.standstill for s in stretches),
                    "waited no more, times": max(s.given_up for s in stretches),
                    "each of the other four, trained/s": median(s.trained for s in stretches),
                    "their learner, % of a core": 100 * median(s.processor for s in stretches),
                    "steps lost by the four": max(r.lost for r in runs)
                    if what == "stopped"
                    else None,
                }
            )
        # Looked at so often, a standstill may seem longer by as much.
        limit, worst = STANDSTILL + 2 * GLANCE, max(run.stopped.standstill for run in runs)
        results.bar(f"{on_full}: longest standstill while one is stopped, s", worst, most=limit)
        if on_full == "wait":
            times = max(run.stopped.given_up for run in runs)
            results.bar("wait: times that the game waited for it", times, most=1)
        else:
            waits = max(run.waits for run in runs)
            results.bar("overwrite: waits in the whole run", waits, most=0, least=0)
        share = median(run.stopped.trained / run.left.trained for run in runs)
        results.bar(f"{on_full}: the other four, of their speed without it", share, least=0.9)
        went_on = sum(run.all_go_on for run in runs)
        rounds = len(runs)
        results.bar(
            f"{on_full}: runs in which all eight continued", went_on, most=rounds, least=rounds
        )
    results.finish(options)


NAMES = {
    "usual": "all eight learn",
    "stopped": "one learner is stopped",
    "left": "it has left",
}


if __name__ == "__main__":
    main()
