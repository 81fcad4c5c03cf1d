"""The memory of a stack grows with the number of its policies, whoever is ready when."""

import gc

import numpy as np
import pytest
import torch

from policies.made_rollouts import LENGTH, fill, make_stack, room_for, some_lengths

ONE_PASS = {"epochs": 1, "minibatches": 1}


def bytes_held(algorithm):
    """Bytes of all arrays that an algorithm holds on to, each memory once."""
    found, looked, todo = {}, set(), [algorithm]
    while todo:
        each = todo.pop()
        if id(each) in looked:
            continue
        looked.add(id(each))
        if isinstance(each, torch.Tensor):
            storage = each.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        elif isinstance(each, np.ndarray):
            owner = each
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            found[owner.ctypes.data] = owner.nbytes
        elif isinstance(each, dict | list | tuple) or type(each).__module__.startswith("remuda"):
            todo += gc.get_referents(each)
    return sum(found.values())


def patterns(count, random):
    """Who is ready: stretches of every length at many places, and any others."""
    for first in range(count):
        for end in range(first + 1, count + 1):
            if count <= 16 or random.random() < 0.02:
                yield list(range(first, end))
    for _ in range(20):
        yield np.flatnonzero(random.random(count) < random.random()).tolist() or [0]


def memory_after_all(kind, count):
    """Bytes that a stack holds after an update of all and of some, and after every pattern."""
    random = np.random.default_rng(0)
    algorithm = make_stack(kind, range(count), ppo=ONE_PASS)
    room = room_for(algorithm, LENGTH * 6)
    for k in range(count):
        fill(room, k, some_lengths(1 + k % 4, random), algorithm, random)
    for members in (range(count), range(0, count, 2)):
        algorithm.update(room, members)
    before = bytes_held(algorithm)
    for members in patterns(count, random):
        algorithm.update(room, members)
    return before, bytes_held(algorithm)


@pytest.mark.parametrize("kind", ["trunk", pytest.param("continuous", marks=pytest.mark.slow)])
def test_it_holds_no_more_whoever_is_ready_when(kind):
    found = {count: memory_after_all(kind, count) for count in (16, 64)}
    for before, after in found.values():
        assert after <= before
    assert found[64][1] <= 4.1 * found[16][1]
