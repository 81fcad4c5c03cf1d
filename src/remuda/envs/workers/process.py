"""A worker process, which steps some copies of a game for its parent and reports its status."""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np

from remuda.envs.registry import Game
from remuda.envs.vector_env import VectorEnv
from remuda.errors import RemudaError, UserCodeError
from remuda.system.compiling import tell_compiling
from remuda.system.loading import Code, add_code
from remuda.system.memory.atomic import load, store
from remuda.system.memory.shared import SharedArrays
from remuda.system.memory.waiting import Wakeup
from remuda.system.processes.activity import ProcessId, started
from remuda.system.processes.child import ignore_held_signals
from remuda.system.rng import seed_libraries
from remuda.system.user_errors import where_raised
from remuda.types import Integers

REQUESTED, DONE, FAILED = range(3)
"""Indices of each worker's words: three int64 in shared memory. The parent counts requests in the
first. The worker copies that count into the second when it has served the request. If it fails, it
sets the third to 1, or to `OF_THE_USER` if the user's code raised the error."""
OF_THE_USER = 2
RESET, BEGIN, END, STOP = range(4)  # requests besides acting and observing
MESSAGE = 2000  # bytes of a worker's error message


@dataclass(frozen=True)
class WorkerStatus:
    """Status words (int64 in shared memory) for each worker of one actor.

    An actor sleeps while its workers step. Its supervisor must know which workers the actor waits
    for, to distinguish an actor that hangs from one whose workers compile or get no CPU time.

    The words, of which each worker has one, and their writers:

    - `waited_for`, by the actor: the process id of the worker if the actor has waited for it for
      about a second, else 0. `started`: the start time of that process, written first. If the actor
      dies, the supervisor clears `waited_for` before a successor starts.
    - `answered`, by the actor, in its first worker's entry: the number of requests that all of its
      workers have answered. It only grows; the successor of a dead actor continues the count.
    - `compiling`, by the worker: its process id while it compiles a function, else 0. The word of a
      dead worker is ignored, because the actor no longer waits for that process.
    - `compiled`, by the worker: the number of compilations started. `signs`: the number started
      plus the number finished. Both only grow; a worker's successor continues them.
    - `process`, by the worker: its process id. `began`: its start time, written first. The words of
      a dead worker match no live process, and neither do words read between the two writes.
    """

    shared: SharedArrays
    actor: int

    @staticmethod
    def of_all(actors: int, workers: int) -> tuple[WorkerStatus, ...]:
        """Make the status of all actors, with at most `workers` workers each, in shared memory."""
        names = "waited_for", "started", "answered", "compiling", "compiled", "signs"
        words = *names, "process", "began"
        shared = SharedArrays(dict.fromkeys(words, ((actors, workers), np.int64)))
        return tuple(WorkerStatus(shared, actor) for actor in range(actors))

    def set_waiting(self, worker: int, pid: int | None) -> None:
        """Record, as the actor, that it waits for this worker's process, or (None) does not."""
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
        store(self._words("began"), worker, started(pid))
        store(self._words("process"), worker, pid)

    def set_compiling(self, worker: int, pid: int, compiling: bool) -> None:
        """Record that a worker starts or finishes compiling a function."""
        if compiling:
            self._words("compiled")[worker] += 1
        store(self._words("compiling"), worker, pid if compiling else 0)
        store(self._words("signs"), worker, int(self._words("signs")[worker]) + 1)

    def reset(self) -> None:
        """Clear, as the supervisor, `waited_for` of an actor that has no process."""
        self._words("waited_for")[:] = 0

    def processes(self) -> list[ProcessId]:
        """Return the workers that have started; some may have died."""
        return self._named("process", "began")

    def waited_for(self) -> list[ProcessId]:
        """Return the workers that the actor waits for."""
        return self._named("waited_for", "started")

    def is_compiling(self) -> bool:
        """Return whether a worker that the actor waits for is compiling a function."""
        pids = self._words("waited_for")
        return bool(((self._words("compiling") == pids) & (pids != 0)).any())

    def compiled(self) -> int:
        """Return the number of functions that workers have started to compile."""
        return int(self._words("compiled").sum())

    def signs(self) -> int:
        """Return a number that grows with each start and end of a compilation and each answer."""
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
    """The settings of a worker, and its copies: `first` to `end` - 1."""

    index: int
    game: Game
    options: dict[str, Any]
    code: Code  # of the game's options
    first: int
    end: int
    shared: SharedArrays
    wakeup: Wakeup
    parent_wakeup: Wakeup
    check: bool
    first_copy: int  # the number of the first of all workers' copies
    status: WorkerStatus | None  # for the supervisor of its parent, if there is one
    stream: tuple[int, str] = (0, "")  # seed and name of the workers' global generators


def work(share: Share) -> None:
    """Run a worker."""
    ignore_held_signals()
    _report_to_supervisor(share)
    shared, words = share.shared, share.shared["words"].reshape(-1)
    requested, done, failed = (3 * share.index + word for word in (REQUESTED, DONE, FAILED))
    parent_wakeup = share.parent_wakeup

    def answer() -> None:
        store(words, done, load(words, requested))
        parent_wakeup.ring()

    try:
        add_code(share.code)
        numbers = (*share.stream, "worker", share.index)
        seed_libraries(*numbers, "made")
        env = share.game.make(share.end - share.first, **share.options)
        seed_libraries(*numbers)  # the game's module may have reseeded them
        env.check, env.first_copy = share.check, share.first_copy + share.first
        env.warm_up()
        answer()
        while True:
            while not share.wakeup.wait(lambda: load(words, requested) != load(words, done), 60.0):
                pass  # the lifeline ends this process if its parent dies
            if shared["todo"][share.index, STOP]:
                env.close()
                return
            _serve(env, shared, share)
            answer()
    except Exception as error:
        of_user = str(error) if isinstance(error, UserCodeError) else where_raised(error)
        if of_user is None or share.status is not None:  # in runs stderr is a log file
            traceback.print_exc(file=sys.stderr)
        line = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, RemudaError):
            line = f"{type(error).__name__}: {line}"
        message = (of_user or line).encode()[:MESSAGE]
        shared["message"][share.index, : len(message)] = np.frombuffer(message, np.uint8)
        words[failed] = 1 if of_user is None else OF_THE_USER
        answer()


def _report_to_supervisor(share: Share) -> None:
    """Report this process, and from now on its compilations, to the parent's supervisor."""
    status, pid = share.status, os.getpid()
    if status is not None:
        status.set_process(share.index, pid)
        status.set_compiling(share.index, pid, False)  # loads the code that reporting needs
        tell_compiling(lambda compiling: status.set_compiling(share.index, pid, compiling))


def _serve(env: VectorEnv, shared: SharedArrays, share: Share) -> None:
    own, todo = slice(share.first, share.end), shared["todo"][share.index]
    if todo[RESET]:
        if shared["option_changes"][0] != shared["options_seen"][share.index]:
            shared["options_seen"][share.index] = shared["option_changes"][0]
            for name, value in json.loads(bytes(shared["options"]).rstrip(b"\0")).items():
                env.set_option(name, value)
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
