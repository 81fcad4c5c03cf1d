"""Children of tests, which end with the process of the tests, whatever that dies of."""

import multiprocessing

from remuda.system.memory.lifeline import die_with_parent

SPAWN = multiprocessing.get_context("spawn")


def child_of(target, *args):
    """A process that calls this, not yet started.

    `daemon` alone ends it where the tests end by themselves, and not where they are killed.
    """
    return SPAWN.Process(target=_live_with_parent, args=(target, args), daemon=True)


def _live_with_parent(target, args):
    # Of a spawned child the sentinel is a pipe whose other end its parent alone holds.
    die_with_parent(multiprocessing.parent_process().sentinel)
    target(*args)
