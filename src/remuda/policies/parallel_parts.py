"""Parallel work on independent parts of an update, in threads of the learner's process.

The order of results does not depend on the number of threads, so neither do their sums.
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
    """The thread pool of this process."""

    count = 1
    pool: ThreadPoolExecutor | None = None


@contextlib.contextmanager
def parts_at_once(count: int) -> Iterator[None]:
    """Let `each` process `count` parts at the same time."""
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
    """Yield each part's result in order; at most as many parts as threads are in flight."""
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
        # By default, torch would use all cores in each thread.
        _Threads.pool = ThreadPoolExecutor(
            _Threads.count, "part", initializer=torch.set_num_threads, initargs=(1,)
        )
    return _Threads.pool


class Turns:
    """An order for parallel parts: a part waits for earlier parts, which have already started."""

    def __init__(self) -> None:
        self._next, self._moved = 0, threading.Condition()
        self._failed: list[int] = []  # the parts that failed

    @contextlib.contextmanager
    def of(self, number: int) -> Iterator[None]:
        """Wait for the turn of a part; raise RuntimeError if an earlier part failed."""
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
        """Wrap the work of a part, so that later parts stop waiting if it fails."""
        try:
            yield
        except BaseException:
            with self._moved:
                self._failed.append(number)
                self._moved.notify_all()
            raise

    def _is_lost(self, number: int) -> bool:
        return any(failed < number for failed in self._failed)
