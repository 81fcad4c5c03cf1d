"""What can be picked from a rollout: steps, or whole segments."""

import numpy as np
import torch

from remuda.config import ExperienceConfig
from remuda.experience.experience import Experience
from remuda.experience.ring import StreamShape
from remuda.experience.rollouts import AFTER, Rollout
from remuda.memory.waiting import Wakeup
from remuda.policies.algorithms.samples import Rows, Sequences

CPU = torch.device("cpu")
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
            rollout.memories[k, segment] = 10 * k + segment
            rollout.streams[k, row : row + length] = 0
            rollout.streams[k, row + length] = AFTER
            row += length + 1
        rollout.num_rows[k], rollout.num_segments[k] = row, len(lengths)
    rows = int(rollout.num_rows.max())
    numbers = torch.arange(2)[:, None] * 100 + torch.arange(rows)
    return rollout, numbers


def test_steps_are_picked_and_rows_after_segments_are_not():
    rollout, numbers = make_rollout()
    samples = Rows(rollout, 0, 2, CPU)
    assert [units.tolist() for units in samples.units] == [[0, 1, 2, 4, 6, 7], [0, 1, 3, 4]]
    pick = samples.pick([np.array([7, 0]), np.array([4, 4])])
    assert pick.of(numbers).tolist() == [[7, 0], [104, 104]]
    everything = torch.cat([pick.of(numbers) for pick in samples.everything()], 1)
    assert torch.equal(everything, numbers)


def test_segments_are_filled_up_to_the_longest_and_the_filling_does_not_count():
    rollout, numbers = make_rollout()
    samples = Sequences(rollout, 0, 2, CPU)
    assert [units.tolist() for units in samples.units] == [[0, 1, 2], [0, 1]]
    pick = samples.pick([np.array([1, 0]), np.array([1, 1])])
    assert pick.of(numbers).tolist() == [[4, 4, 4, 0, 1, 2], [103, 104, 104, 103, 104, 104]]
    assert pick.valid.tolist() == [[1, 0, 0, 1, 1, 1], [1, 1, 0, 1, 1, 0]]
    assert pick.memory[..., 0].tolist() == [[1, 0], [11, 11]]


def test_everything_of_segments_is_every_row_once():
    rollout, numbers = make_rollout()
    found = [[], []]
    for pick in Sequences(rollout, 0, 2, CPU).everything():
        for k in range(2):
            counts = pick.valid[k] > 0
            found[k] += pick.of(numbers)[k][counts].tolist()
    assert found[0] == list(range(9))
    assert found[1] == list(range(100, 106))
