"""Commands and heartbeats between the coordinator and its children, in shared memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partialmethod
from typing import Generic, TypeVar

import numpy as np

from remuda.system.memory.atomic import fence_full, load, store
from remuda.system.memory.shared import SharedArrays
from remuda.system.memory.waiting import Wakeup

STARTING, RUNNING, DONE, FAILED = range(4)  # states; FAILED: about to end by an exception
T = TypeVar("T")


class _Word(Generic[T]):
    """A word (one shared number) of `Control` that every role may read."""

    def __init__(self, name: str, kind: Callable[[int], T]) -> None:
        self._name, self._kind = name, kind

    def __get__(self, control: Control, owner: type[Control]) -> T:
        return self._kind(load(control.words[self._name], 0))


class Control:
    """A few shared words (64-bit numbers), and a wake-up for each role.

    The coordinator writes `go`, `stop`, `close`, `save` and `settled`. It also writes the entries
    of `state`, `heartbeat` and `compiling` of a role without a process. Each child writes its
    entries of `state`, `heartbeat`, `saved`, `trained`, `compiled` and `compiling`. The actor
    writes `played` and `save_after`. Children end with the coordinator. The entries of a dead child
    remain, except `state`, `heartbeat` and `compiling`, which the coordinator resets. While a
    lockstep actor is dead, learners wait and send heartbeats until the restarted actor plays.

    - `go`: every role has been ready once. No turn is played before the learners are ready.
    - `stop`: actors and learners must finish. `close`: bridges must send the remaining data and
      finish.
    - `save`: the number of the requested checkpoint. `saved`: the last checkpoint whose part the
      role wrote, negative if that failed. `settled`: the last checkpoint that is complete or
      abandoned.
    - `played`, `trained`: in lockstep, turns played by the actor, and turns after which each
      learner has trained. `save_after`: the checkpoint that belongs to the turn in `played`. Each
      node of a cluster has a copy of these three, which its bridge updates from other nodes.
    """

    may_go, stopped, closed = _Word("go", bool), _Word("stop", bool), _Word("close", bool)
    save, settled = _Word("save", int), _Word("settled", int)
    played, save_after = _Word("played", int), _Word("save_after", int)

    def __init__(self, wakeups: tuple[Wakeup, ...], bridges: int = 0) -> None:
        num_roles = len(wakeups)
        self._learners = slice(1, num_roles - bridges)
        words = ("go", "stop", "close", "save", "settled", "played", "save_after")
        self.words = SharedArrays(
            dict.fromkeys(words, ((1,), np.int64))
            | dict.fromkeys(
                ("state", "saved", "trained", "compiled", "compiling"), ((num_roles,), np.int64)
            )
            | {"heartbeat": ((num_roles,), np.float64)}
        )
        self.wakeups = wakeups

    # The coordinator's side.

    def _tell(self, word: str, value: int) -> None:
        store(self.words[word], 0, value)
        fence_full()
        for wakeup in self.wakeups:
            wakeup.ring()

    go = partialmethod(_tell, "go", 1)
    stop = partialmethod(_tell, "stop", 1)
    close = partialmethod(_tell, "close", 1)
    want_save = partialmethod(_tell, "save")  # with the number of a checkpoint
    settle = partialmethod(_tell, "settled")  # with the number of a checkpoint

    def reset(self, role: int) -> None:
        """Reset a role that has no process now."""
        store(self.words["compiling"], role, 0)
        self.enter(role, STARTING)

    # The children's side.

    def enter(self, role: int, state: int) -> None:
        store(self.words["state"], role, state)
        self.beat(role)

    def beat(self, role: int) -> None:
        self.words["heartbeat"][role] = time.monotonic()

    def tell_saved(self, role: int, number: int, failed: bool) -> None:
        store(self.words["saved"], role, -number if failed else number)

    def tell_compiling(self, role: int, compiling: bool) -> None:
        if compiling:
            self.words["compiled"][role] += 1
        store(self.words["compiling"], role, int(compiling))
        self.beat(role)

    def end_turn(self, save_after: int) -> None:
        """In lockstep: report a played turn; the learners may train."""
        store(self.words["save_after"], 0, save_after)
        store(self.words["played"], 0, self.played + 1)
        fence_full()
        for wakeup in self.wakeups[self._learners]:
            wakeup.ring()

    def end_training(self, role: int) -> None:
        """In lockstep: report that all training due after the turn is done."""
        store(self.words["trained"], role, self.played)
        fence_full()
        self.wakeups[0].ring()

    # For every role.

    def trained(self, role: int) -> int:
        return load(self.words["trained"], role)

    def all_trained(self) -> bool:
        return bool((self.words["trained"][self._learners] >= self.played).all())

    def state(self, role: int) -> int:
        return load(self.words["state"], role)

    def saved(self, role: int) -> int:
        return load(self.words["saved"], role)

    def compiling(self, role: int) -> bool:
        return bool(load(self.words["compiling"], role))

    def compiled(self, role: int) -> int:
        return load(self.words["compiled"], role)

    def heartbeat(self, role: int) -> float:
        return float(self.words["heartbeat"][role])
