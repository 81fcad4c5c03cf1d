"""Parallel work on parts of an update; the order of results does not depend on the threads."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")


class _Threads:
    """The threads of this process."""

    count = 1
    pool: ThreadPoolExecutor | None = None  # None: one part at a time


@contextlib.contextmanager
def parts_at_once(count: int) -> Iterator[None]:
    """Let `each` process `count` parts at the same time."""
    before = _Threads.count, _Threads.pool
    pool = None
    if count > 1:  # by default, torch would use all cores in each thread
        pool = ThreadPoolExecutor(count, "part", initializer=torch.set_num_threads, initargs=(1,))
    _Threads.count, _Threads.pool = count, pool
    try:
        yield
    finally:
        _Threads.count, _Threads.pool = before
        if pool is not None:
            pool.shutdown()


def count_at_once() -> int:
    """Return how many parts `each` processes at the same time."""
    return _Threads.count


def each(work: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
    """Yield each part's result in order; at most as many parts as threads are in flight."""
    pool = _Threads.pool
    if pool is None:
        yield from map(work, parts)
        return
    rest = iter(parts)
    running = deque(pool.submit(work, part) for part in islice(rest, _Threads.count))
    try:
        while running:
            result = running.popleft().result()
            running.extend(pool.submit(work, part) for part in islice(rest, 1))
            yield result
    finally:
        wait(running)  # parts in flight use memory that the caller owns
