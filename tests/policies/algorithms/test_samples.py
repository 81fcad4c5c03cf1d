"""What can be picked from a rollout: steps, or whole segments."""

import numpy as np
import torch

from remuda.config import ExperienceConfig
from remuda.experience.experience import Experience
from remuda.experience.ring import StreamShape
from remuda.experience.segments import AFTER, Rollout
from remuda.policies.algorithms.samples import PASS, Amount, Rows, Sequences, alike
from remuda.system.memory.waiting import Wakeup

CPU = torch.device("cpu")
BOTH = np.arange(2)
LENGTHS = ((3, 1, 2), (2, 2))


def make_rollout():
    """Two policies with segments of these lengths; each row is numbered by policy and place."""
    config = ExperienceConfig(segment_length=4)
    experience = Experience(
        StreamShape((1,), np.float32, 1, memory=1), config, (2,), Wakeup(), (Wakeup(),), 8
    )
    rollout = Rollout.empty(experience, 2)
    for k, lengths in enumerate(LENGTHS):
        row = 0
        for segment, length in enumerate(lengths):
            rollout.starts[k, segment] = row
            rollout.recurrent_states[k, segment] = 10 * k + segment
            rollout.streams[k, row : row + length] = 0
            rollout.streams[k, row + length] = AFTER
            row += length + 1
        rollout.num_rows[k], rollout.num_segments[k] = row, len(lengths)
    rows = int(rollout.num_rows.max())
    numbers = torch.arange(2)[:, None] * 100 + torch.arange(rows)
    return rollout, numbers


def test_steps_are_picked_and_rows_after_segments_are_not():
    rollout, numbers = make_rollout()
    samples = Rows(rollout, [0, 1], CPU)
    assert [units.tolist() for units in samples.units] == [[0, 1, 2, 4, 6, 7], [0, 1, 3, 4]]
    pick = samples.pick(BOTH, [np.array([7, 0]), np.array([4, 4])])
    assert pick.of(numbers).tolist() == [[7, 0], [104, 104]]
    assert pick.valid is None
    found = [[], []]
    for pick in samples.everything(BOTH, 4):
        for k in range(2):
            found[k] += pick.of(numbers)[k][: pick.counts[k]].tolist()
    assert found[0] == list(range(9))
    assert found[1] == list(range(100, 106))


def test_unlike_numbers_of_steps_are_filled_up_and_the_filling_does_not_count():
    rollout, numbers = make_rollout()
    samples = Rows(rollout, [0, 1], CPU)
    pick = samples.pick(BOTH, [np.array([7, 0, 2]), np.array([4])])
    assert pick.of(numbers).tolist() == [[7, 0, 2], [104, 104, 104]]
    assert pick.valid.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert pick.counts.tolist() == [3, 1]
    alone = Rows(rollout, [1], CPU).pick(np.array([0]), [np.array([3])])
    assert alone.of(numbers[1:]).tolist() == [[103]]


def test_segments_are_filled_up_to_the_longest_and_the_filling_does_not_count():
    rollout, numbers = make_rollout()
    samples = Sequences(rollout, [0, 1], CPU)
    assert [units.tolist() for units in samples.units] == [[0, 1, 2], [0, 1]]
    pick = samples.pick(BOTH, [np.array([1, 0]), np.array([1, 1])])
    assert pick.of(numbers).tolist() == [[4, 4, 4, 0, 1, 2], [103, 104, 104, 103, 104, 104]]
    assert pick.valid.tolist() == [[1, 0, 0, 1, 1, 1], [1, 1, 0, 1, 1, 0]]
    assert pick.memory[..., 0].tolist() == [[1, 0], [11, 11]]
    pick = samples.pick(BOTH, [np.array([1, 0]), np.array([1])])
    assert pick.of(numbers).tolist() == [[4, 4, 4, 0, 1, 2], [103, 104, 104, 103, 103, 103]]
    assert pick.valid.tolist() == [[1, 0, 0, 1, 1, 1], [1, 1, 0, 0, 0, 0]]
    assert pick.counts.tolist() == [4, 2]


def test_everything_of_segments_is_every_row_once():
    rollout, numbers = make_rollout()
    found = [[], []]
    for pick in Sequences(rollout, [0, 1], CPU).everything(BOTH, 4):
        for k in range(2):
            counts = pick.valid[k] > 0
            found[k] += pick.of(numbers)[k][counts].tolist()
    assert found[0] == list(range(9))
    assert found[1] == list(range(100, 106))


def test_like_amounts_go_together_and_much_does_not_wait_for_little():
    assert alike([Amount(500)] * 4) == [[0, 1, 2, 3]]
    assert alike([Amount(n) for n in (1000, 900, 64_000, 15_000, 1010, 64_100)]) == [
        [0, 1, 4],
        [2, 5],
        [3],
    ]
    # With little at all one pass costs less than two.
    assert alike([Amount(n) for n in (1, 2, 64, 9)]) == [[0, 1, 2, 3]]
    assert alike([Amount(100, 32), Amount(100, 1)]) == [[0], [1]]


def test_what_is_filled_up_stays_small():
    random = np.random.default_rng(0)
    for _ in range(50):
        count = int(random.integers(1, 65))
        amounts = [
            Amount(int(1000 * 64 ** random.random()), int(random.integers(1, 33)))
            for _ in range(count)
        ]
        groups = alike(amounts)
        assert sorted(i for group in groups for i in group) == list(range(count))
        for group in groups:
            rows = sum(amounts[i].units * amounts[i].longest for i in group)
            grid = max(amounts[i].units for i in group) * max(amounts[i].longest for i in group)
            assert grid * len(group) <= max(1.25 * rows, rows + PASS)
