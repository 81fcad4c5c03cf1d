"""Words in shared memory by which an actor's supervisor watches the actor's workers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remuda.forkserver.activity import ProcessId, started
from remuda.memory.atomic import load, store
from remuda.memory.shared import SharedArrays
from remuda.types import Integers


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

    # The actor's side.

    def set_waiting(self, worker: int, pid: int | None) -> None:
        """Set the worker that the actor waits for; None: none in its place."""
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

    # The workers' side.

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

    # The supervisor's side.

    def reset(self) -> None:
        """Clear what the actor wrote; it has no process now."""
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
