"""Experience: what is written is what is sampled; nothing torn, nothing across an episode."""

import numpy as np
import pytest

from refusals import refuses
from remuda.config import ExperienceConfig
from remuda.errors import CheckpointError
from remuda.experience.experience import Experience
from remuda.experience.replay import Batch, TransitionReplay
from remuda.experience.ring import CONSUMED, HEAD, LOST, StreamShape
from remuda.system.checkpoint.state import pack, unpack
from remuda.system.memory.atomic import load, store
from remuda.system.memory.waiting import Wakeup
from ring_writers import ExperienceWriter
from spawned import child_of
from support import sample

ALL = np.ones(1, bool)
NONE = np.zeros(1, bool)


def make_experience(
    capacity=40, length=10, n_frames=3, size=2, streams=1, dtype=np.float32, **options
):
    config = ExperienceConfig(
        capacity=capacity, segment_length=length, learning_starts=1, **options
    )
    shape = StreamShape((size,), dtype, n_frames)
    return Experience(shape, config, (streams,), Wakeup(), (Wakeup(),))


def play(writer, episodes, terminate=True, start=0):
    """Episodes of the given lengths; step i sees i + 1, does i, is given i / 10; returns i."""
    i = start
    for length in episodes:
        for t in range(length):
            seen = np.full((1, 2), i + 1, np.float32)
            writer.decide(seen, np.array([[i]]), i // 7, ALL)
            ends = np.array([t == length - 1])
            after = np.full((1, 2), i + 1.5, np.float32)
            terminated, truncated = (ends, NONE) if terminate else (NONE, ends)
            writer.outcome(np.array([i / 10], np.float32), terminated, truncated, after, ALL)
            i += 1
    return i


def all_samples(experience, n_steps=1, discount=0.5, draws=40):
    replay = TransitionReplay([experience], n_steps, discount, np.random.default_rng(0))
    found = {}
    for _ in range(draws):
        batch = sample(replay, 64)
        for b in range(64):
            found[int(batch.a_tm1[b])] = (
                batch.s_tm1[b].reshape(-1, 2)[:, 0].tolist(),
                float(batch.r_t[b]),
                float(batch.discount_t[b]),
                batch.s_t[b].reshape(-1, 2)[:, 0].tolist(),
                int(batch.versions[b]),
            )
    return found


def test_transitions_are_what_was_played():
    experience = make_experience()
    play(ExperienceWriter(experience), [4, 3])
    found = all_samples(experience)
    assert sorted(found) == list(range(7))
    assert found[0] == ([0, 0, 1], 0.0, 0.5, [0, 1, 2], 0)
    assert found[2] == ([1, 2, 3], pytest.approx(0.2), 0.5, [2, 3, 4], 0)
    # The last step of an episode leads to what was seen after the turn, and counts nothing more.
    assert found[3] == ([2, 3, 4], pytest.approx(0.3), 0.0, [3, 4, 4.5], 0)
    # The next episode starts with empty frames.
    assert found[4][0] == [0, 0, 5]


def test_truncation_keeps_what_was_to_come():
    experience = make_experience()
    play(ExperienceWriter(experience), [4], terminate=False)
    assert all_samples(experience)[3] == ([2, 3, 4], pytest.approx(0.3), 0.5, [3, 4, 4.5], 0)


def test_n_step_returns_by_hand():
    experience = make_experience()
    play(ExperienceWriter(experience), [5])
    found = all_samples(experience, n_steps=3)
    # 0.1 + 0.5 * 0.2 + 0.25 * 0.3, then half of a half of a half of what is seen at step 4.
    assert found[1][1:4] == (pytest.approx(0.275), 0.125, [3, 4, 5])
    # Steps 3 and 4 reach the end, where nothing more is to come.
    assert found[3][1:3] == (pytest.approx(0.3 + 0.5 * 0.4), 0.0)
    assert found[4][1:3] == (pytest.approx(0.4), 0.0)


def test_n_step_returns_stop_at_a_truncation():
    experience = make_experience()
    play(ExperienceWriter(experience), [5, 5], terminate=False)
    found = all_samples(experience, n_steps=3)
    assert found[4][1:4] == (pytest.approx(0.4), 0.5, [4, 5, 5.5])
    assert found[3][1:3] == (pytest.approx(0.3 + 0.5 * 0.4), 0.25)


def test_a_long_episode_goes_on_with_the_same_frames():
    experience = make_experience()
    play(ExperienceWriter(experience), [25])
    found = all_samples(experience)
    assert sorted(found) == list(range(25))
    assert found[9] == ([8, 9, 10], pytest.approx(0.9), 0.5, [9, 10, 11], 1)
    assert found[10] == ([9, 10, 11], pytest.approx(1.0), 0.5, [10, 11, 12], 1)


def test_a_step_counts_only_when_its_successor_is_seen():
    experience = make_experience()
    writer = ExperienceWriter(experience)
    seen = np.ones((1, 2), np.float32)
    writer.decide(seen, np.array([[0]]), 0, ALL)
    writer.outcome(np.zeros(1, np.float32), NONE, NONE, seen, ALL)
    assert experience.written == 0
    writer.decide(seen, np.array([[1]]), 0, ALL)
    assert experience.written == 1


def test_rewards_without_a_turn_belong_to_the_last_decision():
    experience = make_experience()
    writer = ExperienceWriter(experience)
    seen = np.ones((1, 2), np.float32)
    writer.decide(seen, np.array([[0]]), 0, ALL)
    writer.outcome(np.array([1.0], np.float32), NONE, NONE, seen, ALL)
    writer.decide(seen, np.array([[3]]), 0, NONE)  # not its turn
    writer.outcome(np.array([2.0], np.float32), ALL, NONE, seen, NONE)
    assert all_samples(experience) == {0: ([0, 0, 1], 3.0, 0.0, [0, 1, 1], 0)}


def test_the_oldest_make_room():
    experience = make_experience(capacity=40, length=10)
    end = play(ExperienceWriter(experience), [10] * 9)
    assert end == 90
    assert sorted(all_samples(experience, draws=60)) == list(range(50, 90))
    assert (experience.written, experience.overwritten, experience.fill) == (90, 50, 1.0)


def test_every_step_is_as_likely():
    experience = make_experience(capacity=40, length=10)
    play(ExperienceWriter(experience), [1, 9, 3, 7])  # segments of unequal lengths
    replay = TransitionReplay([experience], 1, 0.9, np.random.default_rng(1))
    counts = sum(np.bincount(sample(replay, 1000).a_tm1, minlength=20) for _ in range(50))
    expected = 50_000 / 20
    assert ((counts - expected) ** 2 / expected).sum() < 43.8  # chi-square, 19 degrees, p = 0.001


def test_streams_do_not_mix():
    experience = make_experience(streams=3, capacity=60)
    writer = ExperienceWriter(experience)
    active = np.ones(3, bool)
    for t in range(25):
        seen = np.array([[100 * s + t, s] for s in range(3)], np.float32)
        writer.decide(seen, np.array([[100 * s + t] for s in range(3)]), 0, active)
        ends = np.array([t % (4 + s) == 3 + s for s in range(3)])
        writer.outcome(np.zeros(3, np.float32), ends, ~active, seen, active)
    for action, (before, _, _, after, _) in all_samples(experience, draws=100).items():
        stream = action // 100
        for number in [*before, *after]:
            assert number == 0 or number // 100 == stream


def test_fresh_memory_is_poison():
    experience = make_experience(dtype=np.uint8)
    assert (experience.rings[0].shared["observations"] == 0xA5).all()
    assert np.isnan(experience.rings[0].shared["rewards"]).all()


def test_an_empty_ring_is_told_from_a_batch_of_zeros():
    experience = make_experience()
    replay = TransitionReplay([experience], 1, 0.9, np.random.default_rng(0))
    assert not replay.sample(Batch.empty(experience, 1, 4), 0, 4)


def test_a_saved_ring_knows_whose_steps_it_lost():
    experience, successor = make_experience(), make_experience()
    store(experience.rings[0].counters, LOST, 7)
    successor.restore(experience.state(), 0)
    assert successor.lost == 7


def test_the_learner_is_rung_when_its_wish_is_met():
    experience = make_experience()
    assert not experience.has(5)
    play(ExperienceWriter(experience), [3])
    assert not experience.learner.wait(lambda: experience.has(5), 0.01)
    play(ExperienceWriter(experience), [2])
    assert experience.learner.wait(lambda: experience.has(5), 10.0)


def test_wait_holds_the_actor_until_the_learner_has_caught_up():
    experience = make_experience(capacity=20, on_full="wait", replay_ratio=1.0)
    writer = ExperienceWriter(experience)
    play(writer, [20])
    assert writer.room.has_room()
    play(writer, [1])
    assert not writer.room.has_room()
    experience.consume(1)
    assert writer.room.wakeup.wait(writer.room.has_room, 10.0)
    play(writer, [1])
    assert not writer.room.has_room()
    writer.room.leave_behind()
    assert writer.room.has_room()
    assert load(experience.rings[0].counters, CONSUMED) == 1


def test_a_dead_writers_half_ready_segment_is_skipped_and_repaired():
    experience = make_experience()
    play(ExperienceWriter(experience), [10, 4])
    sequence = experience.rings[0].shared["sequence"]
    store(sequence, 0, int(sequence[0]) + 1)  # as if it died while it emptied the first segment
    assert sorted(all_samples(experience)) == list(range(10, 14))
    successor = ExperienceWriter(experience)
    assert not (sequence % 2).any()
    head = load(experience.rings[0].counters, HEAD)
    play(successor, [4], start=50)
    assert load(experience.rings[0].counters, HEAD) == head + 1
    assert sorted(all_samples(experience)) == [*range(10, 14), *range(50, 54)]


def _write_for_ever(experience):
    writer = ExperienceWriter(experience)
    size = experience.shape.size
    i = 0
    while True:
        seen = np.full((1, size), i % 60_000, np.float32)
        ends = np.array([i % 8 == 7])
        writer.decide(seen, np.array([[i % 60_000]]), i, ALL)
        writer.outcome(np.array([i % 60_000], np.float32), ends, NONE, seen, ALL)
        i += 1


@pytest.mark.process
@pytest.mark.slow_cases("False-1000000", "True-100000")
@pytest.mark.parametrize(
    ("check", "steps"),
    [
        (True, 100_000),
        (False, 1_000_000),
        pytest.param(True, 1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
    ],
)
def test_a_sampler_never_sees_half_of_a_step(check, steps):
    """With the sequence check nothing is torn; without it, the same test does see torn steps."""
    experience = make_experience(capacity=16, length=8, n_frames=1, size=1_000)
    assert experience.rings[0].num_segments == 2
    child = child_of(_write_for_ever, experience)
    child.start()
    try:
        assert experience.learner.wait(lambda: experience.has(100), 60.0)
        replay = TransitionReplay(
            [experience], 1, 0.9, np.random.default_rng(0), check_sequence=check
        )
        torn = sampled = 0
        while sampled < steps or experience.written < steps:
            batch = sample(replay, 64)
            sampled += 64
            whole = (batch.s_tm1 == batch.a_tm1[:, None]).all(1) & (batch.r_t == batch.a_tm1)
            torn += int((~whole).sum())
            if torn and not check:
                break
        assert (torn == 0) == check
        assert not check or replay.redrawn > 0, "the writer never overtook the sampler"
    finally:
        child.kill()
        child.join(60)


def test_a_saved_ring_goes_on_where_it_was():
    experience = make_experience(capacity=40, length=10)
    writer = ExperienceWriter(experience)
    play(writer, [10, 25, 4])
    state, written = unpack(pack(experience.state())), experience.written
    open_segments = unpack(pack(writer.state()))
    successor = make_experience(capacity=40, length=10)
    successor.restore(state, written)
    assert (successor.written, successor.overwritten) == (
        experience.written,
        experience.overwritten,
    )
    assert successor.lost == 0
    assert sorted(all_samples(successor)) == sorted(all_samples(experience))
    next_writer = ExperienceWriter(successor)
    next_writer.restore(open_segments)
    for each in (writer, next_writer):
        play(each, [7], start=100)
    assert sorted(all_samples(successor)) == sorted(all_samples(experience))
    assert load(successor.rings[0].counters, HEAD) == load(experience.rings[0].counters, HEAD)


@pytest.mark.parametrize("dtype", [np.float32, np.bool_])
def test_a_ring_with_masks_that_is_not_full_is_restored(dtype):
    config = ExperienceConfig(capacity=40, segment_length=10, learning_starts=1)
    shape = StreamShape((2,), dtype, 1, mask_size=3, keeps_last_mask=True)
    experience, successor = (
        Experience(shape, config, (1,), Wakeup(), (Wakeup(),)) for _ in range(2)
    )
    successor.restore(unpack(pack(experience.state())), 0)


def test_a_ring_that_was_not_saved_starts_empty_and_counts_on():
    experience = make_experience()
    experience.restore(None, 1234)
    assert (experience.written, experience.overwritten, experience.lost, experience.fill) == (
        1234,
        1234,
        1234,
        0.0,
    )
    ExperienceWriter(experience)
    assert (experience.written, experience.fill) == (1234, 0.0)
    with refuses(CheckpointError):
        make_experience(size=3).restore(experience.state(), 0)


@pytest.mark.slow
def test_a_ring_is_saved_while_it_is_written():
    """Segments that change meanwhile are left out; what is kept is whole."""
    experience = make_experience(capacity=64, length=8, n_frames=1, size=1_000)
    child = child_of(_write_for_ever, experience)
    child.start()
    try:
        assert experience.learner.wait(lambda: experience.has(100), 60.0)
        kept = 0
        for _ in range(300):
            state = experience.rings[0].state()
            for slot, committed in enumerate(state["committed"]):
                seen = state["observations"][slot, :committed]
                assert (seen == state["actions"][slot, :committed]).all()
                kept += committed
        assert kept > 1000
    finally:
        child.kill()
        child.join(60)
