"""A worker: a process that steps some copies of a game for its parent."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from remuda.compiling import tell_compiling
from remuda.envs.registry import Game
from remuda.envs.vector_env import VectorEnv
from remuda.envs.worker_status import WorkerStatus
from remuda.errors import RemudaError, UserCodeError
from remuda.forkserver.child import ignore_held_signals
from remuda.memory.atomic import load, store
from remuda.memory.shared import SharedArrays
from remuda.memory.waiting import Wakeup
from remuda.pickled import add_pickles
from remuda.rng import seed_libraries
from remuda.types import Bools
from remuda.user_code import where_raised

REQUESTED, DONE, FAILED = range(3)
"""Words of a worker. The parent counts requests in the first; the worker sets the second to that
number when it has served one, and the third to 1, or `OF_THE_USER`, if it failed."""
OF_THE_USER = 2
"""The user's code raised."""
RESET, BEGIN, END, STOP = range(4)
"""Requests besides acting and observing."""
MESSAGE = 2000
"""Bytes of a worker's error message."""


@dataclass(frozen=True)
class Share:
    """A worker's part of the copies."""

    index: int
    game: Game
    options: dict[str, Any]
    pickles: dict[str, bytes]
    """The code of the options."""
    first: int
    end: int
    """The copies of the worker begin at `first` and end before this."""
    shared: SharedArrays
    mine: Wakeup
    parents: Wakeup
    check: bool
    first_copy: int
    """The number of the first of all workers' copies."""
    status: WorkerStatus | None
    """Words that its parent's supervisor reads; None: there is no supervisor."""
    stream: tuple[int, str] = (0, "")
    """Seed and name from which the workers of one actor seed the global generators."""


def work(share: Share) -> None:
    """Run a worker."""
    ignore_held_signals()
    _report_to_supervisor(share)
    shared, words = share.shared, share.shared["words"].reshape(-1)
    requested, done, failed = (3 * share.index + word for word in (REQUESTED, DONE, FAILED))
    parents = share.parents

    def answer() -> None:
        store(words, done, load(words, requested))
        parents.ring()

    try:
        add_pickles(share.pickles)
        numbers = (*share.stream, "worker", share.index)
        seed_libraries(*numbers, "made")
        env = share.game.make(share.end - share.first, **share.options)
        seed_libraries(*numbers)  # its module may have seeded them, as in each process
        env.check, env.first_copy = share.check, share.first_copy + share.first
        env.warm_up()
        answer()
        while True:
            while not share.mine.wait(lambda: load(words, requested) != load(words, done), 60.0):
                pass  # the lifeline ends this process once its parent is gone
            if shared["todo"][share.index, STOP]:
                env.close()
                return
            _serve(env, shared, share)
            answer()
    except Exception as error:
        of_user = str(error) if isinstance(error, UserCodeError) else where_raised(error)
        if of_user is None or share.status is not None:  # not on the user's terminal
            traceback.print_exc(file=sys.stderr)
        line = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, RemudaError):
            line = f"{type(error).__name__}: {line}"
        message = (of_user or line).encode()[:MESSAGE]
        shared["message"][share.index, : len(message)] = np.frombuffer(message, np.uint8)
        words[failed] = 1 if of_user is None else OF_THE_USER
        answer()


def _report_to_supervisor(share: Share) -> None:
    """Tell the parent's supervisor this process, and from now on when it compiles."""
    status, pid = share.status, os.getpid()
    if status is not None:
        status.set_process(share.index, pid)
        status.set_compiling(share.index, pid, False)  # loads what reporting takes
        tell_compiling(lambda compiling: status.set_compiling(share.index, pid, compiling))


def _serve(env: VectorEnv, shared: SharedArrays, share: Share) -> None:
    own, todo = slice(share.first, share.end), shared["todo"][share.index]
    if todo[RESET]:
        env.reset(shared["seeds"][own], shared["mask"][own])
    if todo[BEGIN]:
        env.begin_turn()
    for agent in _in_turn(env.turn_groups, shared["acts"]):
        env.act(agent, shared[f"actions {agent}"][own])
    if len(env.notes) > shared["noted"][share.index]:
        notes = json.dumps(dict(env.notes)).encode()
        notes = notes if len(notes) <= MESSAGE else b"{}"
        shared["notes"][share.index, : len(notes)] = np.frombuffer(notes, np.uint8)
        shared["noted"][share.index] = len(env.notes)
    if todo[END]:
        result = env.end_turn()
        shared["rewards"][own] = result.rewards
        shared["terminated"][own], shared["truncated"][own] = result.terminated, result.truncated
        for i, name in enumerate(env.episode_metrics):
            shared["episode_metrics"][i, own] = result.info[name]
    for agent in np.flatnonzero(shared["observes"]).tolist():
        env.observe(agent, shared[f"observations {agent}"][own])
        if env.agents[agent].masked:
            env.mask(agent, shared[f"mask {agent}"][own])
    if env.rewards_so_far is not None and not todo[END]:
        shared["rewards"][own] = env.rewards_so_far
    shared["active"][own] = env.active


def _in_turn(groups: Sequence[tuple[int, ...]], acts: Bools) -> list[int]:
    return [agent for group in groups for agent in group if acts[agent]]
