"""The layout: which copies each actor plays, which policies each learner trains, and where."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from remuda.config import Config
from remuda.errors import ConfigError

LEARNER_MEMORY = 800 * 2**20
"""Bytes to reckon with for a learner process: the interpreter, torch and one policy."""


@dataclass(frozen=True)
class Layout:
    """Which copies each actor plays, which policies each learner trains, and on which device."""

    copies: tuple[int, ...]
    """Copies of the game, by actor process."""
    groups: tuple[tuple[int, ...], ...]
    """Numbers of policies, by learner process."""
    devices: tuple[str, ...]
    """By policy."""

    def describe(self, schedule: str, names: Sequence[str]) -> str:
        """One line for the live view and the report."""
        devices = ", ".join(sorted(set(self.devices)))
        if schedule == "sequential":
            return f"one process plays and trains {len(names)} policies in turn, on {devices}"
        processes = len(self.groups)
        if processes == len(names):
            learners = f"{processes} learner processes, one per policy"
        else:
            learners = f"{processes} learner processes for {len(names)} policies"
        actors = "1 actor process"
        if len(self.copies) > 1:
            actors = f"{len(self.copies)} actor processes for {sum(self.copies)} copies"
        return f"{actors}, {learners}, on {devices}"


def make_layout(config: Config, num_policies: int) -> Layout:
    """Deal the policies to learner processes and devices.

    As many processes as policies where there is a core for each; else as many as there are cores,
    since the actor shares its core only with learners that step back for it (`learners.nice`).
    Never more than the free memory holds.

    Raises:
        ConfigError: a device that is not there, or more actors than there can be.
    """
    asked = config.learners.processes
    free = int(psutil.virtual_memory().available // LEARNER_MEMORY)
    wanted = max(min(_cores(), free), 1) if asked == "auto" else asked
    processes = min(wanted, num_policies)
    groups, start = [], 0
    for share in _shares(num_policies, processes):
        groups.append(tuple(range(start, start + share)))
        start += share
    devices = config.learners.devices or _gpus() or ("cpu",)
    for device in (*devices, config.actor.device):
        _check_device(device)
    return Layout(
        _shares(config.env.num_envs, _num_actors(config)),
        tuple(groups),
        tuple(devices[i % len(devices)] for i in range(num_policies)),
    )


def _num_actors(config: Config) -> int:
    asked, copies = config.actor.processes, config.env.num_envs
    if asked == "auto":
        return 1
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
    return asked


def _shares(count: int, parts: int) -> tuple[int, ...]:
    """So many parts of `count`, as equal as can be."""
    share, extra = divmod(count, parts)
    return tuple(share + (i < extra) for i in range(parts))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpus() -> tuple[str, ...]:
    import torch

    return tuple(f"cuda:{i}" for i in range(torch.cuda.device_count()))


def _check_device(device: str) -> None:
    import torch

    try:
        kind = torch.device(device)
    except RuntimeError:
        raise ConfigError(f"device {device!r} is none; use cpu, cuda:0, cuda:1, ...") from None
    if kind.type == "cuda" and (kind.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device {device!r} is not there: this machine has {torch.cuda.device_count()} GPUs"
        )
