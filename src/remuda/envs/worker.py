"""A worker: a process that steps some copies of a game for its parent, and reports on itself."""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np

from remuda.compiling import tell_compiling
from remuda.envs.registry import Game
from remuda.envs.vector_env import VectorEnv
from remuda.errors import RemudaError, UserCodeError
from remuda.forkserver.activity import ProcessId, started
from remuda.forkserver.child import ignore_held_signals
from remuda.loading import add_pickles
from remuda.memory.atomic import load, store
from remuda.memory.shared import SharedArrays
from remuda.memory.waiting import Wakeup
from remuda.rng import seed_libraries
from remuda.types import Integers
from remuda.user_code import where_raised

REQUESTED, DONE, FAILED = range(3)
"""Words of a worker. The parent counts requests in the first; the worker sets the second to that
number when it has served one, and the third to 1, or `OF_THE_USER`, if it failed."""
OF_THE_USER = 2  # the user's code raised
RESET, BEGIN, END, STOP = range(4)  # requests besides acting and observing
MESSAGE = 2000  # bytes of a worker's error message


@dataclass(frozen=True)
class WorkerStatus:
    """A few words for each worker of one actor.

    An actor sleeps while its workers work. Its supervisor must know which of them it waits for, to
    distinguish an actor that hangs from one whose workers compile, or get no processor.

    Owners of the words, one per worker:

    - `waited_for`, by the actor: the process id of a worker that it has waited for, for about a
      second; 0: it does not wait for this one. `started`: when that process started, written
      before. If the actor dies, the supervisor clears both before a successor starts.
    - `answered`, by the actor, at the place of its first worker: requests that all of its workers
      have answered. It only grows, over all actors that had this place; a dead actor leaves it
      unchanged, and its successor continues to count.
    - `compiling`, by the worker: its process id while it compiles a function, else 0. If it dies
      there, the word names a process that the actor waits for no more, and means nothing.
    - `compiled`, by the worker: functions that it began to compile; `signs`: the same, and those
      that it has finished. They only grow, over all workers that had this place.
    - `process`, by the worker: its process id; `began`: when that started, written before. If it
      dies, the two name a process that is gone; a reader between the two writes finds none.
    """

    shared: SharedArrays
    actor: int

    @staticmethod
    def of_all(actors: int, workers: int) -> tuple[WorkerStatus, ...]:
        """Make those of all actors, with at most `workers` workers each, in one block."""
        names = "waited_for", "started", "answered", "compiling", "compiled", "signs"
        words = *names, "process", "began"
        shared = SharedArrays(dict.fromkeys(words, ((actors, workers), np.int64)))
        return tuple(WorkerStatus(shared, actor) for actor in range(actors))

    def set_waiting(self, worker: int, pid: int | None) -> None:
        """Set, as the actor, the worker that it waits for; None: none in its place."""
        words = self._words("waited_for")
        if pid is None:
            store(words, worker, 0)
        elif load(words, worker) != pid and (began := started(pid)):
            store(self._words("started"), worker, began)
            store(words, worker, pid)

    def count_answer(self) -> None:
        """Count a request that all workers have answered."""
        words = self._words("answered")
        store(words, 0, load(words, 0) + 1)

    def set_process(self, worker: int, pid: int) -> None:
        """Set a worker's process id."""
        store(self._words("began"), worker, started(pid))
        store(self._words("process"), worker, pid)

    def set_compiling(self, worker: int, pid: int, compiling: bool) -> None:
        """Note that a worker begins or ends to compile a function."""
        if compiling:
            self._words("compiled")[worker] += 1
        store(self._words("compiling"), worker, pid if compiling else 0)
        store(self._words("signs"), worker, int(self._words("signs")[worker]) + 1)

    def reset(self) -> None:
        """Clear, as the supervisor, what the actor wrote; it has no process now."""
        self._words("waited_for")[:] = 0

    def processes(self) -> list[ProcessId]:
        """Return the workers that have begun; some may be gone."""
        return self._named("process", "began")

    def waited_for(self) -> list[ProcessId]:
        """Return the workers that the actor waits for."""
        return self._named("waited_for", "started")

    def is_compiling(self) -> bool:
        """Return whether a worker that the actor waits for compiles a function just now."""
        pids = self._words("waited_for")
        return bool(((self._words("compiling") == pids) & (pids != 0)).any())

    def compiled(self) -> int:
        """Return the number of functions that workers have begun to compile."""
        return int(self._words("compiled").sum())

    def signs(self) -> int:
        """Return a number that changes with each sign of life of a worker, and each answer."""
        return int(self._words("signs").sum()) + load(self._words("answered"), 0)

    def _named(self, ids: str, starts: str) -> list[ProcessId]:
        pids, began = self._words(ids), self._words(starts)
        found = [(load(pids, i), i) for i in range(len(pids))]
        return [(pid, load(began, i)) for pid, i in found if pid]

    def _words(self, name: str) -> Integers:
        words: Integers = self.shared[name][self.actor]
        return words


@dataclass(frozen=True)
class Share:
    """A worker's part of the copies: those from `first` on, before `end`."""

    index: int
    game: Game
    options: dict[str, Any]
    pickles: dict[str, bytes]  # the code of the options
    first: int
    end: int
    shared: SharedArrays
    mine: Wakeup
    parents: Wakeup
    check: bool
    first_copy: int  # the number of the first of all workers' copies
    status: WorkerStatus | None  # for the supervisor of its parent; None: there is none
    stream: tuple[int, str] = (0, "")  # seed and name of the workers' global generators


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
    acts = shared["acts"]
    for agent in (agent for group in env.turn_groups for agent in group if acts[agent]):
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
