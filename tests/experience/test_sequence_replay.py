"""Segments as sequences: whole, with the state before them, by hand."""

import numpy as np
import pytest
from scipy import stats

from remuda.config import ExperienceConfig
from remuda.experience.experience import Experience
from remuda.experience.priorities import PrioritisedSequences
from remuda.experience.ring import StreamShape
from remuda.experience.sequence_replay import SequenceReplay
from remuda.system.memory.waiting import Wakeup
from ring_writers import ExperienceWriter

ALL = np.ones(1, bool)
NONE = np.zeros(1, bool)
DISCOUNT = 0.5


def make(length=4, burn_in=0, n_frames=1, masks=0):
    config = ExperienceConfig(
        capacity=10 * length, segment_length=length, learning_starts=1, burn_in=burn_in
    )
    shape = StreamShape(
        (1,), np.float32, n_frames, memory=2, mask_size=masks, keeps_last_mask=masks > 0
    )
    return Experience(shape, config, (1,), Wakeup(), (Wakeup(),))


def play(experience, episodes):
    """Episodes of these lengths; step i sees i, does i, is paid i, and had kept i but at first.

    All but the last end by a termination; that one goes on. Step i allows all but i modulo 3.
    """
    writer, i = ExperienceWriter(experience), 1
    size = experience.shape.mask_size
    for number, length in enumerate(episodes):
        for t in range(length):
            seen = np.full((1, 1), i, np.float32)
            kept = np.full((1, 2), i if t else 0, np.float32)
            masks = np.arange(3)[None, :size] != i % 3
            writer.decide(seen, np.array([[i]]), 7, ALL, masks=masks, recurrent_states=kept)
            ends = np.array([t == length - 1 and number < len(episodes) - 1])
            paid = np.full(1, i, np.float32)
            writer.outcome(paid, ends, NONE, np.full((1, 1), -1, np.float32), ALL)
            i += 1


def drawn(experience, size=64, n_steps=1):
    """By the number of its first step, a sequence's row of a batch."""
    replay = SequenceReplay([experience], n_steps, DISCOUNT, np.random.default_rng(0))
    out = replay.empty(1, size)
    assert replay.sample(out, 0, size)
    return out, {int(out.a_tm1[0, g, 0]): g for g in range(size)}


@pytest.mark.slow
def test_a_sequence_is_a_piece_with_what_was_kept_before_it():
    experience = make()
    # Segments: 1 to 4; 5 and 6, 7 and 8; 9, 10 and 11, of which 12 is not complete.
    play(experience, [6, 3, 3])
    out, found = drawn(experience)
    assert sorted(found) == [1, 5, 7, 9, 10]
    g = found[1]
    assert (out.lengths[0, g], out.states[0, g].tolist()) == (4, [0.0, 0.0])
    assert out.inputs[0, g, :, 0].tolist() == [1, 2, 3, 4, 5]
    assert out.a_tm1[0, g].tolist() == [1, 2, 3, 4]
    assert out.r_t[0, g].tolist() == [1, 2, 3, 4]
    assert out.discount_t[0, g].tolist() == [DISCOUNT] * 4
    assert out.after[0, g].tolist() == [1, 2, 3, 4]
    assert (out.versions[0, g] == 7).all()
    g = found[5]
    assert (out.lengths[0, g], out.states[0, g].tolist()) == (2, [5.0, 5.0])
    # Beyond its end a network is given nothing that the game never gave.
    assert out.inputs[0, g, :, 0].tolist() == [5, 6, -1, -1, -1]
    assert out.discount_t[0, g].tolist() == [DISCOUNT, 0, 0, 0], "it ended there"
    assert out.r_t[0, g].tolist() == [5, 6, 0, 0]
    g = found[7]  # an episode that began within the segment, and goes on in the next
    assert (out.lengths[0, g], out.states[0, g].tolist()) == (2, [0.0, 0.0])
    assert out.inputs[0, g, :3, 0].tolist() == [7, 8, 9]
    assert out.discount_t[0, g].tolist() == [DISCOUNT, DISCOUNT, 0, 0]
    assert out.states[0, found[9]].tolist() == [9.0, 9.0]
    assert out.lengths[0, found[10]] == 2, "the third is not known to be complete"
    assert out.inputs[0, found[10], :3, 0].tolist() == [10, 11, 12]


def test_rewards_of_n_steps_are_summed_within_a_sequence():
    experience = make()
    play(experience, [5, 3, 2])
    out, found = drawn(experience, n_steps=3)
    g = found[1]
    assert out.r_t[0, g].tolist() == [1 + 2 / 2 + 3 / 4, 2 + 3 / 2 + 4 / 4, 3 + 4 / 2, 4]
    assert out.discount_t[0, g].tolist() == [0.125, 0.125, 0.25, 0.5]
    assert out.after[0, g].tolist() == [3, 4, 4, 4]
    g = found[6]  # an episode of three, that terminated
    assert out.r_t[0, g, :3].tolist() == [6 + 7 / 2 + 8 / 4, 7 + 8 / 2, 8]
    assert (out.discount_t[0, g] == 0).all()


def test_steps_of_the_burn_in_do_not_count_but_where_an_episode_begins():
    experience = make(burn_in=2)
    play(experience, [9, 2])  # 1 to 4, 5 to 8, 9 alone; 10
    out, found = drawn(experience)
    valid = {step: out.valid(slice(0, 1), 64)[0, g].tolist() for step, g in found.items()}
    assert valid[1] == [True] * 4
    assert valid[5] == [False, False, True, True]
    assert valid[9] == [True, False, False, False], "one step is left to learn from at least"
    assert valid[10] == [True, False, False, False]


def test_frames_and_masks_come_along():
    experience = make(n_frames=2, masks=3)
    play(experience, [6, 2])
    out, found = drawn(experience)
    g = found[5]
    assert out.inputs[0, g, :3].tolist() == [[4, 5], [5, 6], [6, -1]]
    expected = [[j != i % 3 for j in range(3)] for i in (5, 6)] + [[True] * 3]
    assert out.allowed[0, g, :3].tolist() == expected, "after the end anything is"
    g = found[1]
    expected = [[j != i % 3 for j in range(3)] for i in (1, 2, 3, 4, 5)]
    assert out.allowed[0, g].tolist() == expected


def test_each_segment_is_drawn_as_often_however_many_steps_it_has():
    experience = make()
    play(experience, [6, 1, 2])
    out, found = drawn(experience, 4000)
    counts = [int((out.a_tm1[0, :, 0] == step).sum()) for step in sorted(found)]
    assert len(counts) == 4
    assert stats.chisquare(counts).pvalue > 1e-4


def test_prioritised_segments_are_drawn_by_their_errors_and_weighed():
    experience = make()
    play(experience, [6, 1, 2])
    replay = PrioritisedSequences([experience], 1, DISCOUNT, np.random.default_rng(0), 1.0)
    errors = {1: 1.0, 5: 2.0, 7: 4.0, 8: 1.0}
    out = replay.empty(1, 2000, weighed=True)
    for _ in range(2):
        assert replay.sample(out, 0, 2000)
        first = out.a_tm1[0, :, 0]
        replay.learn(np.array([errors[int(step)] for step in first], np.float32))
    shares = [int((first == step).sum()) / 2000 for step in errors]
    # The second draw goes by the errors of the first: 1, 2, 4 and 1 of 8.
    assert shares == pytest.approx([1 / 8, 2 / 8, 4 / 8, 1 / 8], abs=0.002)
    weights = {int(step): float(w) for step, w in zip(first, out.weights[0], strict=True)}
    assert weights[5] == pytest.approx(weights[1] / 2, rel=1e-3)
    assert weights[7] == pytest.approx(weights[1] / 4, rel=1e-3)


def test_a_successor_goes_on_drawing_where_it_was_saved():
    experience = make()
    play(experience, [6, 3, 3, 2])
    one = SequenceReplay([experience], 1, DISCOUNT, np.random.default_rng(0))
    out, other_out = one.empty(1, 8), one.empty(1, 8)
    one.sample(out, 0, 8)
    other = SequenceReplay([experience], 1, DISCOUNT, np.random.default_rng(9))
    other.restore(one.state())
    one.sample(out, 0, 8)
    other.sample(other_out, 0, 8)
    assert (out.a_tm1 == other_out.a_tm1).all()


def test_there_is_nothing_to_draw_from_before_a_step_is_complete():
    experience = make()
    replay = SequenceReplay([experience], 1, DISCOUNT, np.random.default_rng(0))
    assert not replay.sample(replay.empty(1, 4), 0, 4)
