"""What the coordinator and its children tell each other, in shared memory."""

from __future__ import annotations

import time

import numpy as np

from remuda.memory.atomic import fence_full, load, store
from remuda.memory.shared import SharedArrays
from remuda.memory.waiting import Wakeup

STARTING, RUNNING, DONE, FAILED = range(4)
"""States of a role; in the last one its process is about to end by an exception."""


class Control:
    """A few words per role, and a wake-up for each.

    Who writes what: the coordinator writes `go`, `stop`, `close`, `save` and `settled`, and an
    entry of `state`, `heartbeat` and `compiling` while that role has no process; each child writes
    its own entries of `state`, `heartbeat`, `saved`, `trained`, `compiled` and `compiling`; the
    actor writes `played` and `save_after`. A child that dies leaves its words as they are; the
    coordinator sets its state anew for a successor.

    - `go`: every role has been ready once, so that no turn is played before the learners are ready.
    - `stop`: actors and learners are to finish; `close`: bridges too, which tell others the rest.
    - `save`: the number of the checkpoint that is wanted; `saved`: the last one that a role wrote
      its part of, negative if it failed; `settled`: the last one that is complete or given up.
    - `played`, `trained`: in lockstep, how many turns the actor has played, and each learner has
      trained after. Where roles live on several nodes, each node has words of its own; a bridge
      writes there those of these three that are another node's. `save_after`: the checkpoint that
      belongs to the turn in `played`.
    """

    def __init__(self, wakeups: tuple[Wakeup, ...], bridges: int = 0) -> None:
        """Make the words."""
        num_roles = len(wakeups)
        self._learners = slice(1, num_roles - bridges)
        words = ("go", "stop", "close", "save", "settled", "played", "save_after")
        self._shared = SharedArrays(
            dict.fromkeys(words, ((1,), np.int64))
            | dict.fromkeys(
                ("state", "saved", "trained", "compiled", "compiling"), ((num_roles,), np.int64)
            )
            | {"heartbeat": ((num_roles,), np.float64)}
        )
        self.wakeups = wakeups
        """By role."""

    @property
    def words(self) -> SharedArrays:
        """All words, by the names above."""
        return self._shared

    # The coordinator's side.

    def go(self) -> None:
        """Let the roles begin to work."""
        self._tell("go", 1)

    def stop(self) -> None:
        """Ask every role to finish, and wake those that sleep."""
        self._tell("stop", 1)

    def close(self) -> None:
        """Ask bridges to finish."""
        self._tell("close", 1)

    def want_save(self, number: int) -> None:
        """Ask every role for its part of a checkpoint."""
        self._tell("save", number)

    def settle(self, number: int) -> None:
        """Tell that a checkpoint is complete or given up."""
        self._tell("settled", number)

    def reset(self, role: int) -> None:
        """Begin a role anew; it has no process now."""
        store(self._shared["compiling"], role, 0)
        self.enter(role, STARTING)

    # The children's side.

    def enter(self, role: int, state: int) -> None:
        """Tell the state one is in now."""
        store(self._shared["state"], role, state)
        self.beat(role)

    def beat(self, role: int) -> None:
        """Give a sign of life."""
        self._shared["heartbeat"][role] = time.monotonic()

    def tell_saved(self, role: int, number: int, failed: bool) -> None:
        """Tell that one's part of a checkpoint is written, or could not be."""
        store(self._shared["saved"], role, -number if failed else number)

    def tell_compiling(self, role: int, compiling: bool) -> None:
        """Tell that one begins to compile a function, or has done so."""
        if compiling:
            self._shared["compiled"][role] += 1
        store(self._shared["compiling"], role, int(compiling))
        self.beat(role)

    def end_turn(self, save_after: int) -> None:
        """In lockstep, for the actor: a turn is played; the learners may train."""
        store(self._shared["save_after"], 0, save_after)
        store(self._shared["played"], 0, self.played + 1)
        fence_full()
        for wakeup in self.wakeups[self._learners]:
            wakeup.ring()

    def end_training(self, role: int) -> None:
        """In lockstep, for a learner: all that is due after the turn is trained."""
        store(self._shared["trained"], role, self.played)
        fence_full()
        self.wakeups[0].ring()

    # For every role.

    @property
    def may_go(self) -> bool:
        """Whether the roles may work."""
        return bool(self._load("go"))

    @property
    def stopped(self) -> bool:
        """Whether the roles are asked to finish."""
        return bool(self._load("stop"))

    @property
    def closed(self) -> bool:
        """Whether bridges are asked to finish."""
        return bool(self._load("close"))

    @property
    def save(self) -> int:
        """The number of the checkpoint that is wanted; 0: none yet."""
        return self._load("save")

    @property
    def settled(self) -> int:
        """The number of the last checkpoint that is complete or given up."""
        return self._load("settled")

    @property
    def played(self) -> int:
        """In lockstep: turns played."""
        return self._load("played")

    @property
    def save_after(self) -> int:
        """In lockstep: the checkpoint to write once the turn `played` is trained."""
        return self._load("save_after")

    def trained(self, role: int) -> int:
        """In lockstep: turns that a learner has trained after."""
        return load(self._shared["trained"], role)

    def all_trained(self) -> bool:
        """In lockstep: whether every learner has trained after every turn."""
        return bool((self._shared["trained"][self._learners] >= self.played).all())

    def state(self, role: int) -> int:
        """STARTING, RUNNING, DONE or FAILED."""
        return load(self._shared["state"], role)

    def saved(self, role: int) -> int:
        """The last checkpoint that a role wrote its part of; negative: it could not."""
        return load(self._shared["saved"], role)

    def compiling(self, role: int) -> bool:
        """Whether a role compiles a function just now."""
        return bool(load(self._shared["compiling"], role))

    def compiled(self, role: int) -> int:
        """Functions that a role's processes have compiled so far, or began to."""
        return load(self._shared["compiled"], role)

    def heartbeat(self, role: int) -> float:
        """When a role gave its last sign of life, by its own clock."""
        return float(self._shared["heartbeat"][role])

    def silence(self, role: int) -> float:
        """Seconds since a role's last sign of life."""
        return time.monotonic() - float(self._shared["heartbeat"][role])

    def _load(self, word: str) -> int:
        return load(self._shared[word], 0)

    def _tell(self, word: str, value: int) -> None:
        store(self._shared[word], 0, value)
        fence_full()
        for wakeup in self.wakeups:
            wakeup.ring()
