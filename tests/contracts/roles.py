"""Roles that only count, and tell in files what they went through."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from remuda.system.memory.shared import SharedArrays
from remuda.system.memory.waiting import Wakeup


class Counter:
    """Plays turns up to a number; or follows those of another, without end."""

    def __init__(self, role):
        self.role, self.parts = role, role.parts
        if role.broken == "build":
            raise LookupError("no game today")
        self._words = role.words["counts"]
        self._tell("built")

    def _tell(self, what):
        with self.role.diary.open("a") as file:
            file.write(f"{self.role.name} {what}\n")

    @property
    def done(self):
        return bool(self.role.index == 0 and self._words[0] >= self.role.turns)

    def work(self):
        if self.role.broken == "work":
            raise LookupError("no game today")
        mine = self._words[self.role.index]
        limit = self.role.turns if self.role.index == 0 else self._words[0]
        if mine >= limit:
            return False
        if mine == 0:
            self._tell("began")
        self._words[self.role.index] += 1
        for wakeup in self.role.all_wakeups:
            wakeup.ring()
        return True

    def wait(self, timeout, interrupted):
        words = self._words
        self.role.wakeup.wait(lambda: interrupted() or words[0] > words[1], min(timeout, 0.05))

    def finish(self):
        self._tell("finished")

    def state(self, part):
        return {"count": int(self._words[self.role.index])}

    def restore(self, part, state):
        self._words[self.role.index] = state["count"]
        self._tell(f"restored {state['count']}")


@dataclass(frozen=True)
class CountingRole:
    """The recipe of a counter; index 0 is the actor."""

    name: str
    index: int
    turns: int
    diary: Path
    words: SharedArrays
    all_wakeups: tuple[Wakeup, ...]
    broken: str = ""

    @staticmethod
    def pair(turns, directory, broken):
        words = SharedArrays({"counts": ((2,), np.int64)})
        wakeups = (Wakeup(), Wakeup())
        return tuple(
            CountingRole(name, i, turns, directory / "diary", words, wakeups, broken * (i == 0))
            for i, name in enumerate(("actor", "learner"))
        )

    @property
    def wakeup(self):
        return self.all_wakeups[self.index]

    @property
    def parts(self):
        return (self.name,)

    @property
    def told(self):
        """What both went through, in order."""
        return self.diary.read_text().splitlines() if self.diary.exists() else []

    def build(self):
        return Counter(self)

    def on_process_death(self):
        pass
