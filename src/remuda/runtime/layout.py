"""The layout: the copies of each actor, the policies and device of each learner."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import psutil

from remuda.config import Config
from remuda.errors import ConfigError

if TYPE_CHECKING:
    import torch

PROCESS_MEMORY = 800 * 2**20  # bytes to plan for a process: the interpreter, torch, and its work
NICE = 3  # niceness of learners where there are fewer cores than processes: half the share of time
NICEST = 19  # the highest niceness of the kernel
# Seconds to play an agent-step from which `auto` chooses several actors for a population: their
# communication costs little by comparison.
SLOW = 100e-6
WORTH_IT = 0.1  # the share by which a layout must be faster than one with fewer processes


@dataclass(frozen=True)
class Costs:
    """The cost of an agent-step on one core of this machine, in seconds."""

    play: float  # play, whatever the number of copies: environment, action, experience
    learn: float  # train as much as one more step makes due
    turn: float = 0.0  # the fixed cost of a turn; the copies share it

    def playing(self, copies: float) -> float:
        """Return the cost of playing a step with so many copies in one actor."""
        return self.play + self.turn / copies

    def describe(self, copies: float) -> str:
        play, learn = self.playing(copies) * 1e6, self.learn * 1e6
        return f"a step: play {play:.3g} us, training {learn:.3g} us"


@dataclass(frozen=True)
class Layout:
    """The copies of each actor, and the policies and devices of each learner."""

    copies: tuple[int, ...]  # environment copies, by actor process
    groups: tuple[tuple[int, ...], ...]  # numbers of policies, by learner process
    devices: tuple[str, ...]  # device of each policy
    threads: int = 1
    reason: str = ""  # why it was chosen
    shares_parts: bool = False  # learner processes may compute parts of a minibatch in parallel

    def describe(self, schedule: str, names: Sequence[str]) -> str:
        """Describe the processes for the user."""
        devices = ", ".join(sorted(set(self.devices)))
        if schedule == "sequential":
            trained = "1 policy" if len(names) == 1 else f"{len(names)} policies"
            return f"one process plays and trains {trained} in turn, on {devices}"
        processes = len(self.groups)
        if processes == len(names):
            learners = f"{_count(processes, 'learner process')}, one per policy"
        else:
            learners = f"{_count(processes, 'learner process')} for {len(names)} policies"
        if self.threads > 1:
            learners += f", {self.threads} threads each"
        actors = _count(len(self.copies), "actor process")
        if len(self.copies) > 1:
            actors += f" for {sum(self.copies)} copies"
        reason = f" ({self.reason})" if self.reason else ""
        return f"{actors}, {learners}, on {devices}{reason}"


def make_layout(
    config: Config,
    num_policies: int,
    costs: Costs | None = None,
    own_devices: Sequence[str] = (),
    cores: int | None = None,
) -> Layout:
    """Assign copies to actors, and policies to learner processes and devices.

    For `auto`, with `costs`: the fewest processes that are as fast as any. Without: one actor, and
    as many learner processes as there are cores and policies. On GPUs: a learner process for each.
    Never more than the memory holds.
    """
    common = devices_of(config)
    if cores is None:
        asked = {"learners.devices": common, "actor.device": [config.actor.device]}
        for key, devices_of_key in (
            asked | {"policy.device": [*filter(None, own_devices)]}
        ).items():
            for device in devices_of_key:
                _check_device(device, key)
    own = own_devices or ("",) * num_policies
    devices = tuple(own[i] or common[i % len(common)] for i in range(num_policies))
    used = tuple(dict.fromkeys(devices)) if any(own) else common
    _check_actors(config)
    actors, processes = _choose(config, num_policies, used, costs, cores)
    threads = config.learners.threads
    if config.exact and threads not in (1, "auto"):
        raise ConfigError(
            f"learners.threads is {threads}, and sums come out differently with other numbers of "
            f"threads; the schedule {config.schedule} needs 1"
        )
    groups = (
        _by_device(devices, processes) if any(own) else _groups(num_policies, processes, common)
    )
    on_processor = all(device == "cpu" for device in devices)
    return Layout(
        _shares(config.env.num_envs, actors),
        groups,
        devices,
        1 if threads == "auto" else threads,
        costs.describe(config.env.num_envs / actors) if costs is not None else "",
        threads == "auto" and not config.exact and on_processor,
    )


def devices_of(config: Config) -> tuple[str, ...]:
    """Return the devices that are assigned to the policies in turn."""
    return config.learners.devices or _gpus() or ("cpu",)


def is_open(config: Config, own_devices: Sequence[str], cores: int | None = None) -> bool:
    """Return whether a choice depends on the costs."""
    if config.exact or (cores or _cores()) == 1 or {*own_devices} - {"", "cpu"}:
        return False
    several_actors = (
        config.actor.processes == "auto" and config.env.num_envs > 1 and config.env.workers == 1
    )
    if set(devices_of(config)) != {"cpu"}:  # there is a learner process for each, whatever it costs
        return several_actors and cores is None and not any(own_devices)
    return config.learners.processes == "auto" or several_actors


def niceness(
    config: Config, layout: Layout, priorities: Sequence[float], here: Collection[int] | None = None
) -> list[int]:
    """Return the niceness of each role's process; that of actors is 0.

    Learners have `learners.nice`, plus the rank of their policies' mean priority: the kernel gives
    a process 1.25 times the time of one that is a step nicer.
    """
    base = config.learners.nice
    if base == "auto":
        roles = len(layout.copies) + len(layout.groups) if here is None else len(here)
        base = 0 if roles <= _cores() else NICE
    means = [sum(priorities[i] for i in group) / len(group) for group in layout.groups]
    steps = [round(math.log(max(means) / mean) / math.log(1.25)) for mean in means]
    return [0] * len(layout.copies) + [min(base + step, max(base, NICEST)) for step in steps]


def parts_at_once(layout: Layout, here: Collection[int] | None = None) -> int:
    """Return how many parts each learner process computes in parallel, on idle cores."""
    actors = len(layout.copies)
    roles = range(actors + len(layout.groups)) if here is None else here
    playing = sum(number < actors for number in roles)
    learning = len(roles) - playing
    if not layout.shares_parts or layout.threads > 1 or not learning:
        return 1
    return max((_cores() - max(playing - 1, 0)) // learning, 1)


def spare_cores(layout: Layout) -> int:
    """Return the cores for each learner process besides its first, if every process has one."""
    return max(_cores() - len(layout.copies) - len(layout.groups), 0) // len(layout.groups)


def rate(costs: Costs, copies: int, actors: int, processes: int, cores: int) -> float:
    """Return the agent-steps per second, bounded by actors, learners and their shared cores."""
    play = costs.playing(copies / actors)
    rates = [actors / play, cores / (play + costs.learn)]
    if costs.learn > 0.0:
        rates.append(processes / costs.learn)
    return min(rates)


def _choose(
    config: Config,
    num_policies: int,
    devices: Sequence[str],
    costs: Costs | None,
    cores: int | None = None,
) -> tuple[int, int]:
    free = max(int(psutil.virtual_memory().available // PROCESS_MEMORY), 2)
    if cores is not None:  # of several nodes, each with separate memory
        free = max(free, cores)
    cores = cores or _cores()
    asked_actors, asked_learners = config.actor.processes, config.learners.processes
    actors, learners = [1], [min(cores, free, num_policies)]
    if costs is not None:
        # Otherwise one actor has enough cores, or is faster alone.
        fast = config.population.dealt and costs.playing(config.env.num_envs) < SLOW
        if config.env.workers == 1 and not fast:
            actors = list(range(1, min(cores, config.env.num_envs) + 1))
        learners = list(range(1, min(cores, num_policies) + 1))
    if set(devices) != {"cpu"}:
        learners = [min(len(devices), num_policies)]
    if asked_actors != "auto":
        actors = [asked_actors]
    if asked_learners != "auto":
        learners = [min(asked_learners, num_policies)]
    chosen = actors[0], learners[0]
    if costs is None:
        return chosen
    pairs = sorted(((a, p) for a in actors for p in learners), key=sum)
    for pair in pairs:
        copies = config.env.num_envs
        found, best = rate(costs, copies, *pair, cores), rate(costs, copies, *chosen, cores)
        if found > best * (1.0 + WORTH_IT) and sum(pair) <= free:
            chosen = pair
    return chosen


def _check_actors(config: Config) -> None:
    asked, copies = config.actor.processes, config.env.num_envs
    if asked == "auto":
        return
    if asked > 1 and config.exact:
        raise ConfigError(
            f"actor.processes is {asked}, and the schedule {config.schedule} fixes the order of "
            "everything, which needs 1; or use --schedule async"
        )
    if asked > copies:
        raise ConfigError(
            f"actor.processes is {asked}, more than the copies of the game; raise env.num_envs, "
            f"which is {copies}, or lower the first"
        )


def _groups(
    num_policies: int, processes: int, devices: Sequence[str]
) -> tuple[tuple[int, ...], ...]:
    """Return the policies of each learner process; a process uses one device if possible."""
    if len(devices) > 1 and processes % len(devices) == 0:
        return tuple(tuple(range(i, num_policies, processes)) for i in range(processes))
    groups, start = [], 0
    for share in _shares(num_policies, processes):
        groups.append(tuple(range(start, start + share)))
        start += share
    return tuple(groups)


def _by_device(devices: Sequence[str], processes: int) -> tuple[tuple[int, ...], ...]:
    """Group policies that have individual devices, one device for a process if possible."""
    members: dict[str, list[int]] = {}
    for policy, device in enumerate(devices):
        members.setdefault(device, []).append(policy)
    if processes < len(members):
        members = {"": [policy for those in members.values() for policy in those]}
    shares = dict.fromkeys(members, 1)
    if "" in members:  # they all share all processes
        shares[""] = processes
    while sum(shares.values()) < processes:
        shares[max(members, key=lambda device: len(members[device]) / shares[device])] += 1
    groups = []
    for device, policies in members.items():
        rest = iter(policies)
        groups += [tuple(islice(rest, n)) for n in _shares(len(policies), shares[device])]
    return tuple(groups)


def _shares(count: int, parts: int) -> tuple[int, ...]:
    share, extra = divmod(count, parts)
    return tuple(share + (i < extra) for i in range(parts))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'es' if number > 1 else ''}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpus() -> tuple[str, ...]:
    import torch

    return tuple(f"cuda:{i}" for i in range(torch.cuda.device_count()))


def _check_device(device: str, key: str) -> None:
    import torch

    count = torch.cuda.device_count()
    there = ", ".join(("cpu", *_gpus()))
    try:
        kind = torch.device(device)
    except RuntimeError:
        raise ConfigError(f"{key} {device!r} is none; use one of {there}") from None
    if kind.type not in ("cpu", "cuda") and not _is_there(kind):
        raise ConfigError(f"{key} {device!r} cannot be computed on here; use one of {there}")
    if kind.type == "cuda" and (kind.index or 0) >= count:
        raise ConfigError(
            f"{key} {device!r} is not there: this machine has {count} GPUs; use one of {there}"
        )


def _is_there(device: torch.device) -> bool:
    import torch

    kind = torch.accelerator.current_accelerator(check_available=True)
    here = kind is not None and kind.type == device.type
    return here and (device.index or 0) < torch.accelerator.device_count()
