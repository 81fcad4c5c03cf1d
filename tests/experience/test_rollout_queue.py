"""On-policy hand-over: whole segments, each once, in order; the actor waits where it must."""

import itertools

import numpy as np
import pytest

from remuda.config import ExperienceConfig
from remuda.experience.experience import Experience
from remuda.experience.ring import CLOSED, CLOSED_STEPS, TAKEN, TAKEN_STEPS, StreamShape
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout
from remuda.system.memory.waiting import Wakeup
from ring_writers import ExperienceWriter
from spawned import child_of


def make_experience(
    rollout=12,
    length=4,
    streams=2,
    n_frames=1,
    size=2,
    on_full="wait",
    capacity=100_000,
    keeps=False,
):
    config = ExperienceConfig(segment_length=length, on_full=on_full, capacity=capacity)
    shape = StreamShape((size,), np.float32, n_frames, mask_size=3)
    return Experience(
        shape, config, (streams,), Wakeup(), (Wakeup(),), rollout=rollout, keeps=keeps
    )


def turn(writer, i, terminated=(), truncated=(), version=0, active=None):
    """Stream s sees 100 s + i + 1, does 100 s + i, is given i / 10; the last is seen as + 0.5."""
    streams = writer.ring.num_streams
    size = writer.ring.shape.size
    base = 100.0 * np.arange(streams, dtype=np.float32) + i
    everyone = np.ones(streams, bool) if active is None else active
    ends = [np.isin(np.arange(streams), which) for which in (terminated, truncated)]
    seen = np.repeat((base + 1)[:, None], size, 1)
    writer.decide(
        seen,
        base.astype(np.int64)[:, None],
        version,
        everyone,
        -base,
        np.tile([True, False, True], (streams, 1)),
    )
    writer.outcome(np.full(streams, i / 10, np.float32), *ends, seen + 0.5, everyone)


def take(rollouts, version=0):
    out = Rollout.empty(rollouts.experience, 1)
    steps = rollouts.take(out, 0, version)
    rows = int(out.num_rows[0])
    assert out.num_steps[0] == steps == (out.streams[0, :rows] != AFTER).sum()
    return out, rows


def test_segments_come_whole_and_in_the_order_in_which_they_were_closed():
    experience = make_experience()
    writer, rollouts = ExperienceWriter(experience), RolloutQueue(experience)
    for i in range(8):
        assert not rollouts.ready()
        turn(writer, i, terminated=[1] if i == 2 else [])
    # Stream 0: 0-3 (closed when 4 is seen), 4-7. Stream 1: 0-2 terminated, and 3; 4-7.
    turn(writer, 8)
    assert rollouts.ready()
    out, rows = take(rollouts)
    assert out.streams[0, :rows].tolist() == [
        *([0] * 4 + [AFTER]),
        *([1] * 3 + [AFTER, 1, AFTER]),
        *([0] * 4 + [AFTER]),
    ]
    assert out.starts[0, : out.num_segments[0]].tolist() == [0, 5, 9, 11]
    assert out.observations[0, :rows, 0].tolist() == [
        *[1, 2, 3, 4, 5],
        *[101, 102, 103, 103.5],
        *[104, 105],
        *[5, 6, 7, 8, 9],
    ]
    steps = out.streams[0, :rows] != AFTER
    assert out.actions[0, :rows, 0][steps].tolist() == [*range(4), *range(100, 104), *range(4, 8)]
    assert (out.log_probs[0, :rows][steps] == -out.actions[0, :rows, 0][steps]).all()
    assert (out.masks[0, :rows][steps] == [True, False, True]).all()
    assert out.discounts[0, :rows].tolist() == [
        *([1] * 4 + [0]),
        *([1, 1, 0, 0, 1, 0]),
        *([1] * 4 + [0]),
    ]
    assert out.rewards[0, 2] == pytest.approx(0.2)
    assert not rollouts.ready()
    assert rollouts.lost == 0


def test_truncation_is_not_termination():
    experience = make_experience(rollout=4, streams=1)
    writer, rollouts = ExperienceWriter(experience), RolloutQueue(experience)
    for i in range(4):
        turn(writer, i, truncated=[0] if i == 3 else [])
    out, rows = take(rollouts)
    assert out.discounts[0, :rows].tolist() == [1, 1, 1, 1, 0]  # what was seen last counts
    assert out.observations[0, rows - 1, 0] == 4.5


def test_every_step_is_handed_over_exactly_once():
    rng = np.random.default_rng(0)
    experience = make_experience(rollout=16, length=5, streams=3)
    writer, rollouts = ExperienceWriter(experience), RolloutQueue(experience)
    played, found = set(), []
    active = np.ones(3, bool)
    for i in range(90):
        if not writer.room.has_room():
            out, rows = take(rollouts)
            steps = out.streams[0, :rows] != AFTER
            found += out.actions[0, :rows, 0][steps].tolist()
            assert writer.room.has_room()
        ends = np.flatnonzero(rng.random(3) < 0.2)
        turn(writer, i, terminated=ends, active=active)
        played |= {100 * s + i for s in range(3)}
    assert len(found) == len(set(found)) > 180
    assert set(found) <= played
    assert rollouts.lost == 0
    for stream in range(3):  # in order, within each stream
        mine = [a for a in found if a // 100 == stream]
        assert mine == sorted(mine)


def test_the_actor_waits_while_a_whole_rollout_was_not_taken():
    experience = make_experience(rollout=8)
    writer, rollouts = ExperienceWriter(experience), RolloutQueue(experience)
    i = 0
    while writer.room.has_room():
        turn(writer, i)
        i += 1
    assert i == 5  # the fifth turn closes two segments of four
    assert rollouts.ready()
    take(rollouts)
    assert writer.room.has_room()


def test_rollouts_are_whole_where_episodes_are_short():
    """They ended early: each episode took the place of a whole segment."""
    experience = make_experience(rollout=64, length=32)
    writer, rollouts = ExperienceWriter(experience), RolloutQueue(experience)
    found = []
    for i in range(97):
        if not writer.room.has_room():
            assert rollouts.ready()
            out, rows = take(rollouts)
            assert out.num_steps[0] == out.num_segments[0] == 64
            found += out.actions[0, :rows, 0][out.streams[0, :rows] != AFTER].tolist()
        turn(writer, i, terminated=[0, 1])
    assert len(found) == len(set(found)) == 3 * 64
    assert rollouts.lost == 0


def test_an_actor_that_waits_no_more_overwrites_and_what_is_lost_is_counted():
    experience = make_experience(rollout=8)
    writer, rollouts = ExperienceWriter(experience), RolloutQueue(experience)
    i = 0
    while i < 99:
        if not writer.room.has_room():
            writer.room.leave_behind()
        turn(writer, i)
        i += 1
    found = []
    while rollouts.ready():
        out, rows = take(rollouts)
        found += out.actions[0, :rows, 0][out.streams[0, :rows] != AFTER].tolist()
    assert len(found) == len(set(found))
    assert max(found) % 100 == 95  # the newest closed segment
    assert rollouts.lost == 2 * 96 - len(found) > 0


def test_steps_by_weights_that_are_too_old_are_passed_over():
    experience = make_experience(rollout=16, streams=1)
    writer, rollouts = ExperienceWriter(experience), RolloutQueue(experience, max_staleness=2)
    for i in range(17):
        turn(writer, i, version=i // 4)
    out, rows = take(rollouts, version=4)
    assert sorted(set(out.versions[0, :rows][out.streams[0, :rows] != AFTER])) == [2, 3]
    assert rollouts.lost == 8


def test_of_a_segment_of_several_episodes_only_those_that_are_too_old_are_passed_over():
    """Red before: the first episode's age decided for all of them."""
    experience = make_experience(rollout=8, streams=1, length=8)
    writer, rollouts = ExperienceWriter(experience), RolloutQueue(experience, max_staleness=2)
    observations, everyone = np.ones((1, 1), np.float32), np.ones(1, bool)
    for i in range(8):  # episodes of one step, by versions 0 to 7
        writer.decide(observations, np.full((1, 1), i), i, everyone)
        writer.outcome(np.ones(1, np.float32), everyone, ~everyone, observations, everyone)
    out, rows = take(rollouts, version=7)
    steps = out.streams[0, :rows] != AFTER
    assert out.versions[0, :rows][steps].tolist() == [5, 6, 7]
    assert out.actions[0, :rows, 0][steps].tolist() == [5, 6, 7]
    assert rollouts.lost == 5


def test_what_a_dead_actor_had_open_is_closed_by_its_successor():
    experience = make_experience(rollout=4, length=8)
    writer = ExperienceWriter(experience)
    for i in range(3):
        turn(writer, i)
    successor = ExperienceWriter(experience)  # two steps of each stream are complete, one is not
    successor.close_orphans()
    out, rows = take(RolloutQueue(experience))
    steps = out.streams[0, :rows] != AFTER
    assert sorted(out.actions[0, :rows, 0][steps].tolist()) == [0, 1, 100, 101]
    assert out.observations[0, :rows, 0][~steps].tolist() == [3, 103]


def test_a_segment_that_was_closed_before_its_first_step_is_passed_over():
    """A writer that died may leave one; it would be a sequence of nothing, a mean over none."""
    experience = make_experience(rollout=12, length=4, streams=1)
    writer, rollouts = ExperienceWriter(experience), RolloutQueue(experience)
    for i in range(13):
        turn(writer, i)
    ring = experience.rings[0]
    ring.shared["committed"][ring.shared["queue"][1]] = 0
    out, rows = take(rollouts)
    assert out.actions[0, :rows, 0][out.streams[0, :rows] != AFTER].tolist() == [
        *range(4),
        *range(8, 12),
    ]
    assert out.num_segments[0] == 2
    assert np.diff([*out.starts[0, :2], rows]).tolist() == [5, 5]


def write_for_ever(experience):
    writer = ExperienceWriter(experience)
    i = 0
    one = np.ones(1, bool)
    while True:
        seen = np.full((1, experience.shape.size), i % 60_000, np.float32)
        ends = np.array([i % 7 == 6])
        writer.decide(seen, np.array([[i]]), i, one)
        writer.outcome(np.array([i % 60_000], np.float32), ends, ~one, seen, one)
        i += 1


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("check", [True, False])
def test_a_segment_is_taken_whole_or_not_at_all(check):
    """An actor that overwrites at full speed; without the sequence check the test sees it."""
    experience = make_experience(rollout=8, length=4, streams=1, size=2_000, on_full="overwrite")
    child = child_of(write_for_ever, experience)
    child.start()
    try:
        assert experience.learner.wait(experience.has_rollout, 60.0)
        rollouts = RolloutQueue(experience, check_sequence=check)
        out = Rollout.empty(experience, 1)
        torn = taken = 0
        last = -1
        while taken < 40_000 if check else not torn:
            if not rollouts.ready():
                experience.learner.wait(rollouts.ready, 1.0)
                continue
            taken += rollouts.take(out, 0, 0)
            rows = int(out.num_rows[0])
            steps = np.flatnonzero(out.streams[0, :rows] != AFTER)
            numbers = out.actions[0, steps, 0]
            seen = out.observations[0, steps]
            whole = (seen == (numbers % 60_000)[:, None]).all(1)
            torn += int((~whole).sum()) + int((np.diff(numbers, prepend=last) <= 0).sum())
            last = numbers[-1] if len(numbers) else last
        assert (torn == 0) == check
        assert rollouts.lost > 0, "the actor never overwrote what was not taken"
    finally:
        child.kill()
        child.join(60)


def test_a_segment_comes_with_what_was_kept_before_its_first_step():
    config = ExperienceConfig(segment_length=3, on_full="wait")
    shape = StreamShape((1,), np.float32, 1, memory=2)
    experience = Experience(shape, config, (2,), Wakeup(), (Wakeup(),), 6)
    writer, rollouts = ExperienceWriter(experience), RolloutQueue(experience)
    everyone, none = np.ones(2, bool), np.zeros(2, bool)
    for i in range(4):
        seen = np.full((2, 1), i, np.float32)
        kept = np.array([[i, 0.5], [10 + i, 0.5]], np.float32)
        writer.decide(seen, np.zeros((2, 1), np.int64), 0, everyone, recurrent_states=kept)
        ends = np.array([False, i == 1])
        writer.outcome(np.zeros(2, np.float32), ends, none, seen, everyone)
    out, _ = take(rollouts)
    count = int(out.num_segments[0])
    assert out.streams[0, out.starts[0, :count]].tolist() == [0, 1, 1]
    # The second episode of stream 1 began in the same segment, so with a zero state.
    assert out.recurrent_states[0, :count].tolist() == [[0, 0.5], [10, 0.5], [0, 0]]
    shared = experience.rings[0].shared
    turn_three = shared["recurrent_states"][shared["committed"] == 0].tolist()
    assert [3, 0.5] in turn_three  # both went on in another segment
    assert [13, 0.5] in turn_three


def test_an_actor_never_waits_for_a_learner_that_takes_no_more():
    experience = make_experience(rollout=8)
    writer, rollouts = ExperienceWriter(experience), RolloutQueue(experience)
    i = 0
    while writer.room.has_room():
        turn(writer, i)
        i += 1
    experience.release()
    for j in range(i, i + 500):
        assert writer.room.has_room()
        turn(writer, j, terminated=[0, 1] if j % 3 == 0 else [])
    assert not rollouts.ready()
    assert experience.fill == 0.0
    successor = RolloutQueue(experience)  # restored from before it stopped learning
    for k in range(1, 20):
        turn(writer, j + k)
    assert successor.ready()
    assert experience.fill > 0.0


def rings_of(actors, on_full="overwrite", rollout=32):
    config = ExperienceConfig(segment_length=6, on_full=on_full)
    shape = StreamShape((2,), np.float32, 1)
    wakeups = tuple(Wakeup() for _ in range(actors))
    experience = Experience(shape, config, (2,) * actors, Wakeup(), wakeups, rollout)
    return experience, [ExperienceWriter(experience, actor) for actor in range(actors)]


def play_on(writer, numbers, turns, random, end=0.2):
    """So many turns of its streams; each step's action is a number that no other step has."""
    for _ in range(turns):
        steps = np.array([[next(numbers)] for _ in range(2)])
        both = np.ones(2, bool)
        writer.decide(np.zeros((2, 2), np.float32), steps, 0, both)
        ends = random.random(2) < end
        seen = np.zeros((2, 2), np.float32)
        writer.outcome(np.zeros(2, np.float32), ends, np.zeros(2, bool), seen, both)


@pytest.mark.slow_cases("2-False", "4-False", "4-True")
@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize("actors", [1, 2, 4])
def test_each_closed_step_is_taken_lost_or_untaken_whichever_rings_it_is_in(actors, newest):
    """A ring that was reached with enough taken moved on by its segments, not by their steps."""
    random, numbers = np.random.default_rng(actors), itertools.count()
    experience, writers = rings_of(actors)
    rollouts = RolloutQueue(experience, newest=newest)
    closed_at = [{0: 0} for _ in writers]  # by ring and closed segment: the steps up to its end
    taken, handed_out = 0, []

    def write(writer, turns):
        for _ in range(turns):  # no more than one segment of each stream is closed in a turn
            play_on(writer, numbers, 1, random)
            ring = writer.ring
            closed, ends = int(ring.counters[CLOSED]), ring.shared["queue_steps"]
            for i in range(max(closed_at[ring.actor]) + 1, closed + 1):
                closed_at[ring.actor][i] = int(ends[(i - 1) % ends.size])

    for _ in range(60):
        for writer in writers:
            write(writer, int(random.choice([0, 3, 20, 150])))
        while rollouts.ready():
            untaken_before = experience.untaken
            out, rows = take(rollouts)
            steps = int(out.num_steps[0])
            taken += steps
            handed_out += out.actions[0, :rows, 0][out.streams[0, :rows] != AFTER].tolist()
            assert steps + rollouts.lost > 0
            assert experience.untaken < untaken_before
            closed = sum(int(ring.counters[CLOSED_STEPS]) for ring in experience.rings)
            assert taken + rollouts.lost + experience.untaken == closed
            for ring, ends in zip(experience.rings, closed_at, strict=True):
                assert ring.counters[TAKEN_STEPS] == ends[int(ring.counters[TAKEN])]
            if random.random() < 0.3:
                break
    assert len(handed_out) == len(set(handed_out)), "a step was handed out twice"
    assert rollouts.lost > 0
    assert taken > 1000


def test_a_learner_that_passes_over_all_but_the_newest_counts_no_step_that_it_passed_over():
    random, numbers = np.random.default_rng(0), itertools.count()
    experience, writers = rings_of(4)
    rollouts = RolloutQueue(experience, newest=True)
    for writer in writers:
        play_on(writer, numbers, 120, random, end=0.0)
    while rollouts.ready():  # of old steps, a second rollout of a few was taken too
        out, _ = take(rollouts)
        assert out.num_steps[0] >= experience.rollout
    assert experience.untaken < experience.rollout


def test_where_a_ring_was_written_over_the_newest_whole_rollout_is_taken_from_all():
    """A ring's share went by all that it had closed, most of which was written over."""
    random, numbers = np.random.default_rng(0), itertools.count()
    experience, writers = rings_of(2, rollout=400)
    rollouts = RolloutQueue(experience, newest=True)
    play_on(writers[0], numbers, 20_000, random, end=0.5)
    play_on(writers[1], numbers, 200, random, end=0.5)
    out, _ = take(rollouts)
    assert out.num_steps[0] >= 400
