"""The layout of a run: each actor's environment copies, and each learner's policies and devices."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice

import psutil

from remuda.config import Config
from remuda.errors import ConfigError

PROCESS_MEMORY = 800 * 2**20  # estimated bytes of a process: the interpreter, torch, its arrays
# For a population, `auto` considers several actors if an agent-step takes at least this many
# seconds: their communication then costs little by comparison.
SLOW = 100e-6


@dataclass(frozen=True)
class Costs:
    """The cost of an agent-step on one core of this machine, in seconds."""

    play: float  # environment, action and experience; independent of the number of copies
    learn: float  # the training that becomes due with one more step
    turn: float = 0.0  # the fixed cost of a turn; the copies share it

    def playing(self, copies: float) -> float:
        """Return the cost of playing a step with this many copies in one actor."""
        return self.play + self.turn / copies

    def describe(self, copies: float) -> str:
        play, learn = self.playing(copies) * 1e6, self.learn * 1e6
        return f"a step: play {play:.3g} us, training {learn:.3g} us"


@dataclass(frozen=True)
class Layout:
    """The copies of each actor, and the policies and devices of each learner."""

    copies: tuple[int, ...]  # environment copies, by actor process
    groups: tuple[tuple[int, ...], ...]  # policy indices, by learner process
    devices: tuple[str, ...]  # device of each policy
    threads: int = 1
    reason: str = ""  # reason of the choice, for the user
    shares_parts: bool = False  # learner processes may compute parts of a minibatch in parallel

    def describe(self, schedule: str, names: Sequence[str]) -> str:
        devices = ", ".join(sorted(set(self.devices)))
        if schedule == "sequential":
            trained = "1 policy" if len(names) == 1 else f"{len(names)} policies"
            return f"one process plays and trains {trained} in turn, on {devices}"
        learners = _count(len(self.groups), "learner process")
        is_one_each = len(self.groups) == len(names)
        learners += ", one per policy" if is_one_each else f" for {len(names)} policies"
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

    With `costs`, `auto` selects the fewest processes among the fastest layouts. Without `costs`, it
    selects one actor, and as many learner processes as cores and policies allow. On GPUs there is
    one learner process per GPU. Memory limits the number of processes.
    """
    common = devices_of(config)
    if cores is None:
        for device in common:
            _check_device(device, "learners.devices")
        _check_device(config.actor.device, "actor.device")
        for device in filter(None, own_devices):
            _check_device(device, "policy.device")
    own = own_devices or ("",) * num_policies
    devices = tuple(own[i] or common[i % len(common)] for i in range(num_policies))
    used = tuple(dict.fromkeys(devices)) if any(own) else common
    _check_actors(config)
    actors, processes = _choose(config, num_policies, used, costs, cores)
    threads = config.learners.threads
    if config.exact and threads not in (1, "auto"):
        raise ConfigError(
            f"learners.threads is {threads}, but the schedule {config.schedule} needs 1, because "
            "floating-point sums depend on the number of threads"
        )
    on_processor = all(device == "cpu" for device in devices)
    return Layout(
        _shares(config.env.num_envs, actors),
        _groups(devices, processes),
        devices,
        1 if threads == "auto" else threads,
        costs.describe(config.env.num_envs / actors) if costs is not None else "",
        threads == "auto" and not config.exact and on_processor,
    )


def devices_of(config: Config) -> tuple[str, ...]:
    """Return the devices, which are assigned to the policies in rotation."""
    return config.learners.devices or _gpus() or ("cpu",)


def is_open(config: Config, own_devices: Sequence[str], cores: int | None = None) -> bool:
    """Return whether the layout depends on measured costs."""
    if config.exact or (cores or _cores()) == 1 or {*own_devices} - {"", "cpu"}:
        return False
    several_actors = (
        config.actor.processes == "auto" and config.env.num_envs > 1 and config.env.workers == 1
    )
    if set(devices_of(config)) != {"cpu"}:  # one learner process per device at any cost
        return several_actors and cores is None and not any(own_devices)
    return config.learners.processes == "auto" or several_actors


def niceness(
    config: Config, layout: Layout, priorities: Sequence[float], here: Collection[int] | None = None
) -> list[int]:
    """Return the niceness of each role's process, which is 0 for actors.

    Learners have `learners.nice`, or more if their policies have a lower mean priority. The kernel
    gives a process 1.25 times the processor time of a process whose niceness is higher by 1.
    """
    base = config.learners.nice
    if base == "auto":
        roles = len(layout.copies) + len(layout.groups) if here is None else len(here)
        base = 0 if roles <= _cores() else 3  # 3 gives half of an actor's processor time
    means = [sum(priorities[i] for i in group) / len(group) for group in layout.groups]
    steps = [round(math.log(max(means) / mean) / math.log(1.25)) for mean in means]
    highest = max(base, 19)  # the kernel allows at most 19
    return [0] * len(layout.copies) + [min(base + step, highest) for step in steps]


def parts_at_once(layout: Layout, here: Collection[int] | None = None) -> int:
    """Return how many parts of a minibatch each learner process computes in parallel."""
    actors = len(layout.copies)
    roles = range(actors + len(layout.groups)) if here is None else here
    playing = sum(number < actors for number in roles)
    learning = len(roles) - playing
    if layout.threads > 1:
        return layout.threads
    if not layout.shares_parts or not learning:
        return 1
    return max((_cores() - max(playing - 1, 0)) // learning, 1)


def spare_cores(layout: Layout) -> int:
    """Return the extra cores per learner process, after every process has one core."""
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
    cores: int | None,
) -> tuple[int, int]:
    free = max(int(psutil.virtual_memory().available // PROCESS_MEMORY), 2)
    if cores is not None:  # the cores of several nodes, each with separate memory
        free = max(free, cores)
    cores = cores or _cores()
    set_actors, set_learners = config.actor.processes, config.learners.processes
    actors, learners = [1], [min(cores, free, num_policies)]
    if costs is not None:
        # With environment workers, or fast steps in a population, one actor is enough.
        fast = config.population.dealt and costs.playing(config.env.num_envs) < SLOW
        if config.env.workers == 1 and not fast:
            actors = list(range(1, min(cores, config.env.num_envs) + 1))
        learners = list(range(1, min(cores, num_policies) + 1))
    if set(devices) != {"cpu"}:
        learners = [min(len(devices), num_policies)]
    if set_actors != "auto":
        actors = [set_actors]
    if set_learners != "auto":
        learners = [min(set_learners, num_policies)]
    chosen = actors[0], learners[0]
    if costs is None:
        return chosen
    pairs = sorted(((a, p) for a in actors for p in learners), key=sum)
    for pair in pairs:
        copies = config.env.num_envs
        speed, best = rate(costs, copies, *pair, cores), rate(costs, copies, *chosen, cores)
        if speed > 1.1 * best and sum(pair) <= free:  # more processes must speed up by a tenth
            chosen = pair
    return chosen


def _check_actors(config: Config) -> None:
    actors, copies = config.actor.processes, config.env.num_envs
    if actors == "auto":
        return
    if actors > 1 and config.exact:
        raise ConfigError(
            f"actor.processes is {actors}, but the schedule {config.schedule} needs 1, because it "
            "fixes the order of all steps; set it to 1, or use --schedule async"
        )
    if actors > copies:
        raise ConfigError(
            f"actor.processes is {actors}, more than env.num_envs, which is {copies}; "
            "raise env.num_envs or lower actor.processes"
        )


def _groups(devices: Sequence[str], processes: int) -> tuple[tuple[int, ...], ...]:
    """Return the policies of each learner process; a process uses one device if possible."""
    members: dict[str, list[int]] = {}
    for policy, device in enumerate(devices):
        members.setdefault(device, []).append(policy)
    if processes < len(members):
        members = {"": [policy for group in members.values() for policy in group]}
    shares = dict.fromkeys(members, 1)
    if "" in members:  # all policies share all processes
        shares[""] = processes
    while sum(shares.values()) < processes:
        shares[max(members, key=lambda device: len(members[device]) / shares[device])] += 1
    groups = []
    for device, policies in members.items():
        rest = iter(policies)
        groups += [tuple(sorted(islice(rest, n))) for n in _shares(len(policies), shares[device])]
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
    choices = ", ".join(("cpu", *_gpus()))
    try:
        kind = torch.device(device)
    except RuntimeError:
        raise ConfigError(f"{key} {device!r} is not a device; use one of {choices}") from None
    index = kind.index or 0
    if kind.type == "cuda" and index >= count:
        raise ConfigError(
            f"{key} {device!r} does not exist: this machine has {count} GPUs; use one of {choices}"
        )
    if kind.type not in ("cpu", "cuda"):
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        is_other = accelerator is None or accelerator.type != kind.type
        if is_other or index >= torch.accelerator.device_count():
            raise ConfigError(f"{key} {device!r} is not available here; use one of {choices}")
