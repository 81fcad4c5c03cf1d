"""The segments that episodes left open, when streams share them: the oldest comes first."""

import numpy as np

from remuda.experience.paused_heap import oldest_first, pop, push
from remuda.experience.ring_block import NOWHERE


def test_the_oldest_segment_comes_first():
    rng, places, segments = np.random.default_rng(0), 13, 40
    numbers, paused = rng.permutation(segments), np.full(places, NOWHERE, np.int64)
    held = []
    for _ in range(5_000):
        if len(held) < places and rng.random() < 0.5:
            held.append(int(rng.choice(np.setdiff1d(np.arange(segments), held))))
            push(numbers, paused, held[-1])
        else:
            oldest = min(held, key=lambda slot: numbers[slot], default=NOWHERE)
            assert pop(numbers, paused) == oldest
            held = [slot for slot in held if slot != oldest]
        assert (paused[len(held) :] == NOWHERE).all()
        assert sorted(paused[: len(held)]) == sorted(held)
        if rng.random() < 0.1:
            paused = oldest_first(numbers, rng.permutation(paused))
            assert (np.diff(numbers[paused[: len(held)]]) > 0).all()
