"""Parts of a learner's work that threads of its process may do at the same time.

What is computed of each part does not depend on how many threads there are: a part is computed by
one thread, as it would be by itself, and results are added up in the order of the parts.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import torch

Part = TypeVar("Part")
Found = TypeVar("Found")


class _Threads:
    """Those of this process: set once, where a role is hosted."""

    count = 1
    pool: ThreadPoolExecutor | None = None


@contextlib.contextmanager
def parts_at_once(count: int) -> Iterator[None]:
    """Let so many parts be worked on at the same time in this process."""
    before = _Threads.count
    _Threads.count = count
    try:
        yield
    finally:
        _Threads.count = before
        pool, _Threads.pool = _Threads.pool, None
        if pool is not None:
            pool.shutdown()


def each(work: Callable[[Part], Found], parts: Iterable[Part]) -> Iterator[Found]:
    """What comes of each part, in their order; several are worked on at the same time.

    No more parts are taken, and no more results wait, than are worked on.
    """
    if _Threads.count == 1:
        yield from map(work, parts)
        return
    rest, pool = iter(parts), _pool()
    running = deque(pool.submit(work, part) for part in islice(rest, _Threads.count))
    while running:
        found = running.popleft().result()
        running.extend(pool.submit(work, part) for part in islice(rest, 1))
        yield found


def _pool() -> ThreadPoolExecutor:
    if _Threads.pool is None:
        # A new thread of torch's would use all cores by itself.
        _Threads.pool = ThreadPoolExecutor(
            _Threads.count, "part", initializer=torch.set_num_threads, initargs=(1,)
        )
    return _Threads.pool


class Turns:
    """Lets parts that are worked on side by side do something one after another, in their order.

    Parts are begun in their order, so one that waits waits for what another thread is at.
    """

    def __init__(self) -> None:
        """Let part 0 begin."""
        self._next, self._moved = 0, threading.Condition()
        self._failed: list[int] = []
        """The parts that failed."""

    @contextlib.contextmanager
    def of(self, number: int) -> Iterator[None]:
        """The turn of a part: after that of the one before it.

        Raises:
            RuntimeError: that one failed, and has raised by itself what is wrong.
        """
        with self._moved:
            self._moved.wait_for(lambda: self._next == number or self._is_lost(number))
        if self._next != number:
            raise RuntimeError("a part before this one failed")
        yield
        with self._moved:
            self._next = number + 1
            self._moved.notify_all()

    @contextlib.contextmanager
    def failing(self, number: int) -> Iterator[None]:
        """Round all that is done of a part: should it fail, none waits for its turn."""
        try:
            yield
        except BaseException:
            with self._moved:
                self._failed.append(number)
                self._moved.notify_all()
            raise

    def _is_lost(self, number: int) -> bool:
        """Whether a part's turn will never come, as one before it failed."""
        return any(failed < number for failed in self._failed)
