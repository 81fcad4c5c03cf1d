"""Commands and signs of life between the coordinator and its children, in shared memory."""

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

    The coordinator writes `go`, `stop`, `close`, `save` and `settled`, and an entry of `state`,
    `heartbeat` and `compiling` while that role has no process. Each child writes its entries of
    `state`, `heartbeat`, `saved`, `trained`, `compiled` and `compiling`; the actor writes `played`
    and `save_after`. The words of a child that dies stay; the coordinator resets its state for a
    successor.

    - `go`: every role has been ready once, so that no turn is played before the learners are ready.
    - `stop`: actors and learners must finish; `close`: bridges too, after they forwarded the rest.
    - `save`: the number of the requested checkpoint; `saved`: the last one of which a role wrote
      its part, negative if that failed; `settled`: the last one that is complete or was given up.
    - `played`, `trained`: in lockstep, turns played by the actor, and turns after which each
      learner has trained. Each node of a cluster has separate words; its bridge writes those of
      these three that belong to other nodes. `save_after`: the checkpoint that belongs to the turn
      in `played`.
    """

    def __init__(self, wakeups: tuple[Wakeup, ...], bridges: int = 0) -> None:
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
        """Announce that a checkpoint is complete or given up."""
        self._tell("settled", number)

    def reset(self, role: int) -> None:
        """Reset a role that has no process now."""
        store(self._shared["compiling"], role, 0)
        self.enter(role, STARTING)

    # The children's side.

    def enter(self, role: int, state: int) -> None:
        """Enter a state."""
        store(self._shared["state"], role, state)
        self.beat(role)

    def beat(self, role: int) -> None:
        """Give a sign of life."""
        self._shared["heartbeat"][role] = time.monotonic()

    def tell_saved(self, role: int, number: int, failed: bool) -> None:
        """Report that this role's part of a checkpoint is written, or failed."""
        store(self._shared["saved"], role, -number if failed else number)

    def tell_compiling(self, role: int, compiling: bool) -> None:
        """Report the begin or end of a compilation."""
        if compiling:
            self._shared["compiled"][role] += 1
        store(self._shared["compiling"], role, int(compiling))
        self.beat(role)

    def end_turn(self, save_after: int) -> None:
        """In lockstep: report a played turn; the learners may train."""
        store(self._shared["save_after"], 0, save_after)
        store(self._shared["played"], 0, self.played + 1)
        fence_full()
        for wakeup in self.wakeups[self._learners]:
            wakeup.ring()

    def end_training(self, role: int) -> None:
        """In lockstep: report that all training due after the turn is done."""
        store(self._shared["trained"], role, self.played)
        fence_full()
        self.wakeups[0].ring()

    # For every role.

    @property
    def may_go(self) -> bool:
        """True once the roles may work."""
        return bool(self._load("go"))

    @property
    def stopped(self) -> bool:
        """True once the roles must finish."""
        return bool(self._load("stop"))

    @property
    def closed(self) -> bool:
        """True once the roles may work."""
        return bool(self._load("close"))

    @property
    def save(self) -> int:
        """True once the roles must finish."""
        return self._load("save")

    @property
    def settled(self) -> int:
        """True once bridges must finish."""
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
        """In lockstep: turns after which a learner has trained."""
        return load(self._shared["trained"], role)

    def all_trained(self) -> bool:
        """In lockstep: return whether every learner has trained after every turn."""
        return bool((self._shared["trained"][self._learners] >= self.played).all())

    def state(self, role: int) -> int:
        """Return STARTING, RUNNING, DONE or FAILED."""
        return load(self._shared["state"], role)

    def saved(self, role: int) -> int:
        """Return the last checkpoint of which a role wrote its part; negative if that failed."""
        return load(self._shared["saved"], role)

    def compiling(self, role: int) -> bool:
        """Return whether a role is compiling a function."""
        return bool(load(self._shared["compiling"], role))

    def compiled(self, role: int) -> int:
        """Count the functions that a role's processes compiled or began to compile."""
        return load(self._shared["compiled"], role)

    def heartbeat(self, role: int) -> float:
        """Return the time of a role's last sign of life, by its own clock."""
        return float(self._shared["heartbeat"][role])

    def silence(self, role: int) -> float:
        """Return the seconds since a role's last sign of life."""
        return time.monotonic() - float(self._shared["heartbeat"][role])

    def _load(self, word: str) -> int:
        return load(self._shared[word], 0)

    def _tell(self, word: str, value: int) -> None:
        store(self._shared[word], 0, value)
        fence_full()
        for wakeup in self.wakeups:
            wakeup.ring()
