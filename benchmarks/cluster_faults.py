"""Nodes that are killed, or stopped for a while, and what a run makes of it.

A node is the session of processes that Ray's node on this machine has, with all that the run
started there. The head is never hit: that it dies is another matter (`remuda train --resume`).
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from cluster_runs import LOOK, Look, Run, alone, directory
from recording import Results

from remuda.cluster.ray_local import kill_session, members
from remuda.config import overlay
from remuda.system.scoreboard import Learn
from remuda.types import Array

TREE: dict[str, Any] = {
    "game": "treasure_hunt",
    "env": {"num_envs": 16, "options": {"num_agents": 4}},
    "policy": {"algorithm": "ppo", "ppo": {"rollout_length": 16}},
    "actor": {"processes": 2},
    "learners": {"processes": 2},
    "cluster": {"local": 3},
    "checkpoint": {"every": 10.0},
}
CALM = 10.0
"""Seconds of undisturbed play before the first kill, and after the last."""
AFTER = 20.0
"""Seconds that are watched after a node continues."""
STANDSTILL, RESTART = 1.0, 15.0
"""The limits, in seconds."""
STUCK = 60.0
"""Seconds without a turn after which a run will not end by itself."""
START_LIMIT = 60.0
"""Seconds that a node has to be started again."""
LATE = 2.0
"""Seconds after `cluster.silence` by which a node is given up."""
SHORT = 3.0
"""Seconds of a standstill after which a node is taken back, since `cluster.silence` is longer."""


@dataclass(frozen=True)
class Kill:
    """A node that was killed."""

    time: float
    number: int
    actors: tuple[int, ...]
    policies: tuple[int, ...]
    """Those that were lost with it."""
    roles: int
    """Actors and learner processes that begin again elsewhere, which counts as a restart."""
    epoch: int
    """The epoch of the placement that it was part of."""
    processes: int


def series(looks: Sequence[Look]) -> tuple[Array, Array, Array]:
    """Return times, epochs, and [looks, actors + policies] the progress of each."""
    times = np.array([look.time for look in looks])
    epochs = np.array([look.epoch for look in looks])
    far = np.array([(*look.turns, *look.trained) for look in looks])
    return times, epochs, far


def victim(run: Run, moments: random.Random, killed: Sequence[int] = ()) -> Kill | None:
    """A node that may be killed: one that has roles, if any has; None: there is none now."""
    placement = run.runtime.placement
    # The run may not know yet that one is gone.
    numbers = [n for n in list(run.runtime.members) if n not in killed]
    busy = [n for n in numbers if placement.roles_of(n)]
    if not (busy or numbers):
        return None
    number = moments.choice(busy or numbers)
    assert run.assembly is not None
    groups = run.assembly.layout.groups
    lost = [i for g, home in enumerate(placement.learners) if home == number for i in groups[g]]
    return Kill(
        time.monotonic(),
        number,
        tuple(a for a, home in enumerate(placement.actors) if home == number),
        tuple(lost),
        len(placement.roles_of(number)),
        placement.epoch,
        len(members(run.session_of(number))),
    )


def pace(seconds: float) -> float:
    """Turns a second of the same run when nothing is killed."""
    with directory() as path:
        run = Run(TREE, path)

        def beside(run: Run) -> None:
            run.over.wait(seconds)
            run.stop()

        run.train(beside)
        played = [look for look in run.looks if min(look.updates) > 0]
        turns = sum(played[-1].turns) - sum(played[0].turns)
        return turns / (played[-1].time - played[0].time)


def disturbed(turns: int, kills: int, seed: int) -> dict[str, Any]:
    """A run whose nodes are killed at random moments, and started again."""
    random_moments = random.Random(seed)
    found: list[Kill] = []
    started: list[float] = []

    def beside(run: Run) -> None:
        # Moments are shares of what is played, so that all of them come before its end.
        for share in sorted(random_moments.uniform(0.05, 0.9) for _ in range(kills)):
            while not run.looks or sum(run.looks[-1].turns) < share * turns:
                if run.over.wait(LOOK):
                    return
            while (hit := victim(run, random_moments, [k.number for k in found])) is None:
                if run.over.wait(LOOK):
                    return
            kill_session(run.session_of(hit.number))
            found.append(hit)
            print(
                f"  {100 * share:.0f}%: node {hit.number} killed: {hit.processes} processes, "
                f"actors {hit.actors}, policies {hit.policies}",
                flush=True,
            )
            local = run.nodes.local
            local.add()
            local.wait(len(local.sessions) + 1, START_LIMIT)
            started.append(time.monotonic() - hit.time)
        end_if_stuck(run)

    with directory() as path:
        run = Run(overlay(TREE, {"run": {"turns": turns}}), path).train(beside)
        assert run.result is not None
        return {
            "looks": run.looks,
            "kills": found,
            "started": started,
            "turns": run.records[-1].turns,
            "finished": run.result.finished,
            "restarts": sum(run.result.restarts.values()),
            "said": run.said,
        }


def end_if_stuck(run: Run) -> None:
    """Wait for the end of a run, and end it where nothing is played any more."""
    far, since = run.looks[-1].turns, time.monotonic()
    while not run.over.wait(1.0):
        now = run.looks[-1].turns
        if now != far:
            far, since = now, time.monotonic()
        elif time.monotonic() > since + STUCK:
            print(f"  nothing was played for {STUCK:g} s: it is ended", flush=True)
            for role in run.status():
                print(f"  {role.node} {role.name}: {role.state}", flush=True)
                with suppress(OSError):
                    print("\n".join(Path(role.log).read_text().splitlines()[-5:]), flush=True)
            run.stop()
            return


def standstills(
    looks: Sequence[Look], kills: Sequence[Kill]
) -> tuple[list[tuple[float, float]], list[float], list[list[float | None]], list[float]]:
    """Measure the cost of kills.

    Returns:
        For each kill, the longest standstill of any actor that was not hit, and of any policy; the
        longest of each before the first kill; the seconds from a kill to the first progress of each
        that was hit, None: there was none; and by how much updates of others were taken back.
    """
    times, epochs, far = series(looks)
    actors = len(looks[0].turns)
    count = far.shape[1]
    hit_by = [{*k.actors, *(actors + p for p in k.policies)} for k in kills]
    restarts: list[list[float | None]] = []
    busy_until = np.zeros(count)
    others: list[tuple[float, float]] = []
    for i, kill in enumerate(kills):
        end = min(kill.time + RESTART, kills[i + 1].time if i + 1 < len(kills) else np.inf)
        longest = [0.0, 0.0]
        restarts.append([])
        for each in range(count):
            if each in hit_by[i]:
                since = (times > kill.time) & (epochs > kill.epoch)
                values = far[since, each]
                grown = np.flatnonzero(np.diff(values) > 0)
                restart = times[since][grown[0] + 1] - kill.time if len(grown) else None
                restarts[-1].append(restart)
                busy_until[each] = kill.time + (restart or np.inf)
            elif busy_until[each] <= kill.time:
                kind = each >= actors
                stood = _longest(times, far[:, each], kill.time, end)
                longest[kind] = max(longest[kind], stood)
        others.append((longest[0], longest[1]))
    first = kills[0].time if kills else times[-1]
    playing = np.flatnonzero((far > 0).all(axis=1))
    before = times <= first
    calm = [
        _longest(times[before], far[before, each], times[playing[0]], first)
        for each in range(count)
    ]
    updates = np.array([look.updates for look in looks])
    back = []
    for policy in range(updates.shape[1]):
        for at in np.flatnonzero(np.diff(updates[:, policy]) < 0):
            when = times[at + 1]
            recent = [k for k in kills if k.time <= when <= k.time + 2 * RESTART]
            if not any(policy in kill.policies for kill in recent):
                back.append(float(updates[at, policy] - updates[at + 1, policy]))
    return others, calm, restarts, back


def _longest(times: Array, values: Array, begin: float, end: float) -> float:
    """The longest time without progress that touches an interval."""
    changes = times[1:][np.diff(values) != 0]
    last = changes[changes <= begin]
    within = changes[(changes > begin) & (changes <= end)]
    after = changes[changes > end]
    edges = [*last[-1:], *within, *after[:1]]
    return float(max(np.diff(edges), default=0.0))


def backwards(looks: Sequence[Look]) -> int:
    """How often the newest version of a policy went back."""
    versions = np.array([look.versions for look in looks])
    return int((np.diff(versions, axis=0) < 0).sum())


def kill(results: Results, options: argparse.Namespace) -> None:
    """Kill whole nodes at random moments."""
    rate, _ = alone(pace, min(20.0, options.minutes * 20.0))
    turns = round(rate * options.minutes * 60.0)
    print(f"{rate:,.0f} turns/s undisturbed: {turns:,} turns are planned", flush=True)
    found, left = alone(disturbed, turns, options.kills, 0)
    kills = found["kills"]
    others, calm, restarts, back = standstills(found["looks"], kills)
    told = [seconds for each in restarts for seconds in each if seconds is not None]
    told_of = [max((s for s in each if s is not None), default=None) for each in restarts]
    for i, (each, standstill) in enumerate(zip(kills, others, strict=True)):
        results.row(
            {
                "kill": i + 1,
                "after, s": each.time - found["looks"][0].time,
                "processes": each.processes,
                "actors lost": len(each.actors),
                "policies lost": len(each.policies),
                "back after, s": told_of[i],
                "standstill of other actors, s": standstill[0],
                "of other policies, s": standstill[1],
            }
        )
    results.row(
        {
            "kill": "all",
            "after, s": None,
            "processes": sum(each.processes for each in kills),
            "actors lost": sum(len(each.actors) for each in kills),
            "policies lost": sum(len(each.policies) for each in kills),
            "back after, s": max(told, default=None),
            "standstill of other actors, s": max((actor for actor, _ in others), default=None),
            "of other policies, s": max((policy for _, policy in others), default=None),
        }
    )
    seconds = found["looks"][-1].time - found["looks"][0].time
    print(
        f"{found['turns']:,} turns in {seconds:.0f} s; longest standstill before the first kill "
        f"{max(calm, default=0.0):.2f} s; nodes were there again after at most "
        f"{max(found['started'], default=0.0):.1f} s"
    )
    hit = sum(len(each.actors) + len(each.policies) for each in kills)
    results.bar("nodes killed", len(kills), most=options.kills, least=options.kills)
    results.bar("actors and policies that were lost with them", hit, least=options.kills / 2)
    results.bar("ended by its turns", int(found["finished"]), most=1, least=1)
    results.bar("turns played, of those planned", found["turns"] / turns, least=1.0)
    for what, which in (("actors", 0), ("policies", 1)):
        worst = max((each[which] for each in others), default=0.0)
        results.bar(f"standstill of other {what}, s", worst, most=STANDSTILL + 2 * LOOK)
    results.bar("progress again of those that were lost, s", max(told, default=0.0), most=RESTART)
    # One that was hit again before, or as the turns were over, has another kill to be counted by.
    never = sum(seconds is None for each in restarts for seconds in each)
    results.bar("of those that were lost, never again", never, most=0, least=0)
    results.bar("times that updates of others were taken back", len(back), most=0, least=0)
    results.bar("times that a version went backwards", backwards(found["looks"]), most=0, least=0)
    # What begins again on another node counts as a restart of its role.
    beyond = max(found["restarts"] - hit, 0)
    results.bar("restarts of roles that were not killed", beyond, most=0, least=0)
    _bar_left(results, left)


def stopped(seconds: float, every: float) -> dict[str, Any]:
    """A run one node of which is stopped for a while.

    Args:
        seconds: how long.
        every: seconds between two checkpoints.
    """
    told: dict[str, Any] = {}

    def beside(run: Run) -> None:
        run.over.wait(CALM)
        moments = random.Random(0)
        hit = victim(run, moments)
        assert hit is not None
        session = run.session_of(hit.number)
        agent = psutil.Process(run.nodes._nodes[hit.number].process)
        own = [agent, *agent.children(recursive=True)]  # all else there is Ray's
        _send(members(session), signal.SIGSTOP)
        told["hit"], stopped_at = hit, time.monotonic()
        is_member: list[tuple[float, bool, int]] = []

        def see(until: float) -> None:
            while time.monotonic() < until and not run.over.wait(LOOK):
                placement = run.runtime.placement
                there_now = hit.number in run.runtime.members
                roles = len(placement.roles_of(hit.number))
                is_member.append((time.monotonic() - stopped_at, there_now, roles))

        see(stopped_at + seconds)
        _send(members(session), signal.SIGCONT)
        told["resumed"] = time.monotonic()
        see(time.monotonic() + AFTER)
        told["member"] = is_member
        told["processes"] = len(own)
        told["processes left"] = sum(process.is_running() for process in own)
        told["epoch"] = run.runtime.placement.epoch
        run.stop()

    with directory() as path:
        # Of two nodes, one of which plays and learns: what it does goes to the other.
        tree = overlay(TREE, {"checkpoint": {"every": every}, "cluster": {"local": 2}})
        run = Run(tree, path).train(beside)
        assert run.assembly is not None
        silence = run.config.cluster.silence
        balance = []
        for spec in run.assembly.specs:
            ring = run.assembly.experience[spec.name]
            learn = run.assembly.scoreboard.learn(spec.name)
            trained, lost = int(learn[Learn.TRAINED]), int(learn[Learn.LOST])
            balance.append((ring.written, trained, lost, ring.untaken))
        assert run.result is not None
        return told | {
            "looks": run.looks,
            "balance": balance,
            "silence": silence,
            "restarts": sum(run.result.restarts.values()),
            "said": run.said,
        }


def _send(processes: Sequence[int], which: signal.Signals) -> None:
    for process in processes:
        with suppress(OSError):
            os.kill(process, which)


def frozen(results: Results, options: argparse.Namespace) -> None:
    """Stop a whole node for longer than is waited for it, and for less."""
    often, never = TREE["checkpoint"]["every"], 3600.0
    for seconds, every in ((options.seconds, never), (options.seconds, often), (SHORT, often)):
        found, left = alone(stopped, seconds, every)
        hit, member = found["hit"], found["member"]
        gone = [at for at, there, _ in member if not there]
        back = any(there for at, there, _ in member if gone and at > gone[0])
        again = any(roles for at, _, roles in member if gone and at > gone[0] + 1.0)
        times, _, far = series(found["looks"])
        all_on = sum(
            far[-1, i] > far[np.searchsorted(times, found["resumed"]), i]
            for i in range(far.shape[1])
        )
        twice = [
            max(trained + lost + rest - written, 0)
            for written, trained, lost, rest in found["balance"]
        ]
        open_ = [
            written - trained - lost - rest for written, trained, lost, rest in found["balance"]
        ]
        results.row(
            {
                "stopped for, s": seconds,
                "checkpoints, s": every,
                "agent and roles": found["processes"],
                "actors on it": len(hit.actors),
                "policies on it": len(hit.policies),
                "given up after, s": gone[0] if gone else None,
                "of these, there later": found["processes left"],
                "written": sum(row[0] for row in found["balance"]),
                "trained": sum(row[1] for row in found["balance"]),
                "lost": sum(row[2] for row in found["balance"]),
                "waiting": sum(row[3] for row in found["balance"]),
                "in no count": sum(open_),
            }
        )
        name = f"stopped for {seconds:g} s, {'with' if every == often else 'without'} checkpoints"
        if gone:
            results.bar(
                f"{name}: given up, and taken back all the same", back + again, most=0, least=0
            )
            results.bar(
                f"{name}: of its agent and roles, there later",
                found["processes left"],
                most=0,
                least=0,
            )
        else:
            epochs = found["epoch"] - hit.epoch
            results.bar(f"{name}: taken back, yet placed again", epochs, most=0, least=0)
        if seconds < found["silence"]:
            results.bar(f"{name}: given up", bool(gone), most=0, least=0)
        elif seconds > found["silence"] + LATE:
            after = gone[0] if gone else seconds + AFTER
            results.bar(f"{name}: given up after, s", after, most=found["silence"] + LATE)
        results.bar(
            f"{name}: actors and policies that continued",
            all_on,
            most=far.shape[1],
            least=far.shape[1],
        )
        results.bar(f"{name}: steps in two counts", sum(twice), most=0, least=0)
        results.bar(
            f"{name}: times that a version went backwards",
            backwards(found["looks"]),
            most=0,
            least=0,
        )
        beyond = found["restarts"] - (hit.roles if gone else 0)
        results.bar(f"{name}: restarts of roles that did not move", beyond, most=0, least=0)
        _bar_left(results, left, f"{name}: ")


def _bar_left(results: Results, left: Any, name: str = "") -> None:
    for each in (*left.processes, *left.files):
        print(f"left behind: {each}")
    results.bar(f"{name}processes left behind", len(left.processes), most=0, least=0)
    results.bar(f"{name}files left behind", len(left.files), most=0, least=0)
