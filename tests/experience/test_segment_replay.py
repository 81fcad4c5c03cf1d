"""Draws of the past: whole segments, each step with the same chance, of all who share."""

import numpy as np
import pytest

from experience.test_rollout_queue import make_experience, turn, write_for_ever
from remuda.experience.ring import CLOSED, OTHERS
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout, SegmentReplay
from remuda.system.memory.atomic import load
from ring_writers import ExperienceWriter
from spawned import child_of

STREAMS, LENGTH = 2, 4


def kept(capacity=400, **how):
    """Experience that is kept, and its writer."""
    experience = make_experience(capacity=capacity, keeps=True, on_full="overwrite", **how)
    return experience, ExperienceWriter(experience)


def past_of(*sources, replays=1.0, alone=True, seed=0):
    return SegmentReplay(sources, np.random.default_rng(seed), replays, alone)


def draw(past, experience, steps, version=0, max_staleness=None):
    """Rows and streams of a draw of so many steps."""
    out = Rollout.empty(experience, 1, replays=steps / 12)
    out.num_taken[0] = steps
    past.join(out, 0, version, max_staleness)
    return out, int(out.num_rows[0])


def steps_in(out, rows):
    """What was done in each step, as (stream, turn); and that everything fits to it."""
    found = []
    for i in range(rows):
        if out.streams[0, i] == AFTER:
            continue
        stream, at = divmod(int(out.actions[0, i, 0]), 100)
        assert out.streams[0, i] == stream
        assert out.observations[0, i, 0] == 100 * stream + at + 1
        assert out.log_probs[0, i] == -(100 * stream + at)
        assert out.rewards[0, i] == np.float32(at / 10)
        found.append((stream, at))
    return found


def test_every_step_that_is_held_has_the_same_chance():
    experience, writer = kept()
    # Segments of four steps, and of one and three where an episode ends.
    for i in range(60):
        turn(writer, i, terminated=[1] if i % 8 == 0 else [])
    out, rows = draw(past_of(experience), experience, 20_000)
    found = steps_in(out, rows)
    assert 20_000 <= len(found) == out.num_steps[0] < 20_000 + LENGTH
    counts = {step: found.count(step) for step in set(found)}
    assert set(counts) >= {(s, t) for s in range(2) for t in range(56)}
    expected = len(found) / len(counts)
    # Steps of a segment come together, so their counts are alike; each is binomial.
    assert max(abs(n - expected) for n in counts.values()) < 5 * expected**0.5


def test_segments_are_whole_with_what_was_seen_after():
    experience, writer = kept()
    for i in range(20):
        turn(writer, i)
    out, rows = draw(past_of(experience), experience, 40)
    starts = out.starts[0, : out.num_segments[0]].tolist()
    assert starts[0] == 0
    for start, end in zip(starts, [*starts[1:], rows], strict=True):
        assert end - start == LENGTH + 1
        assert out.streams[0, end - 1] == AFTER
        assert (np.diff(out.observations[0, start:end, 0]) == 1).all()


def test_one_draws_of_all_who_share_and_knows_its_own():
    mine, my_writer = kept()
    theirs, their_writer = kept()
    for i in range(40):
        turn(my_writer, i, version=3)
        for k in range(3):  # they live through three times as much
            turn(their_writer, 3 * i + k - 100 * (i > 32), version=9)
    out, rows = draw(past_of(mine, theirs), mine, 6_000)
    versions = out.versions[0, :rows][out.streams[0, :rows] != AFTER]
    assert set(versions.tolist()) == {3, OTHERS}
    assert 6_000 <= len(versions) < 6_000 + LENGTH  # each draw is of one ring
    held = [len(np.flatnonzero(e.rings[0].shared["committed"] == LENGTH)) for e in (mine, theirs)]
    share = held[0] / sum(held)
    assert abs((versions == 3).mean() - share) < 0.05
    # One's own are too old by one's own versions.
    out, rows = draw(past_of(mine, theirs), mine, 600, version=5, max_staleness=1)
    assert (out.versions[0, :rows][out.streams[0, :rows] != AFTER] == OTHERS).all()


def test_steps_of_others_are_too_old_by_the_versions_of_those_who_chose_them():
    """Red before: whatever others had lived through was drawn, however old it was."""
    mine, my_writer = kept()
    theirs, their_writer = kept()
    for i in range(40):
        turn(my_writer, i, version=50)
        turn(their_writer, i, version=i // 8)  # the newest is 4, far behind one's own
    past = past_of(mine, theirs)
    out, rows = draw(past, mine, 4_000, version=50, max_staleness=1)
    is_other = out.versions[0, :rows] == OTHERS
    begun = [int(a) % 100 for a in out.actions[0, :rows, 0][is_other]]
    assert min(begun) >= 24
    assert {n // 8 for n in begun} == {3, 4}
    assert (out.versions[0, :rows] == 50).any()
    out, rows = draw(past, mine, 4_000, version=50)
    every = out.actions[0, :rows, 0][out.versions[0, :rows] == OTHERS] % 100
    assert every.min() == 0


def test_what_was_overwritten_is_not_drawn():
    experience, writer = kept(capacity=40)
    for i in range(99):
        turn(writer, i)
    out, rows = draw(past_of(experience), experience, 2_000)
    oldest = min(t for _, t in steps_in(out, rows))
    ring = experience.rings[0]
    assert oldest >= 99 - ring.num_segments * LENGTH / STREAMS - LENGTH
    assert load(ring.counters, CLOSED) > ring.num_segments


@pytest.mark.parametrize(
    ("alone", "replays", "share"), [(True, 1.0, 0.0), (False, 1.0, 0.5), (False, 3.0, 0.25)]
)
def test_a_rollout_joins_its_share_of_the_past(alone, replays, share):
    experience, writer = kept(rollout=12)
    rollouts = RolloutQueue(experience, past=past_of(experience, replays=replays, alone=alone))
    out = Rollout.empty(experience, 1, replays)
    taken = []
    for i in range(61):
        turn(writer, i)
        if rollouts.ready():
            rollouts.take(out, 0, 0)
            fresh = int(out.num_taken[0])
            assert fresh == 12
            found = steps_in(out, int(out.num_rows[0]))
            assert len(found) == out.num_steps[0]
            wanted = fresh * replays + (0 if alone else fresh)
            assert wanted <= len(found) < wanted + LENGTH
            if not alone:
                assert fresh / len(found) == pytest.approx(share, abs=0.05)
                taken += found[:fresh]
    # What is played sets the pace, and every rollout is counted once.
    assert rollouts.experience.untaken < 12
    if not alone:
        assert len(set(taken)) == len(taken) == 120


def test_draws_go_on_where_they_were_saved():
    experience, writer = kept()
    for i in range(40):
        turn(writer, i)
    past = past_of(experience)
    draw(past, experience, 40)
    saved = past.state()
    first = steps_in(*draw(past, experience, 40))
    successor = past_of(experience, seed=7)
    successor.restore(saved)
    assert steps_in(*draw(successor, experience, 40)) == first


def test_nothing_is_drawn_where_nothing_was_closed():
    experience, writer = kept()
    turn(writer, 0)
    out, rows = draw(past_of(experience), experience, 12)
    assert rows == out.num_steps[0] == 0


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("check", [True, False])
def test_a_segment_is_drawn_whole_or_not_at_all(check):
    """An actor that overwrites at full speed; without the sequence check the test sees it."""
    experience = make_experience(
        rollout=8, streams=1, size=2_000, on_full="overwrite", capacity=8, keeps=True
    )
    child = child_of(write_for_ever, experience)
    child.start()
    try:
        assert experience.learner.wait(experience.has_rollout, 60.0)
        past = SegmentReplay(
            [experience], np.random.default_rng(0), 1.0, alone=True, check_sequence=check
        )
        torn = drawn = 0
        while drawn < 40_000 if check else not torn:
            out, rows = draw(past, experience, 64)
            steps = np.flatnonzero(out.streams[0, :rows] != AFTER)
            seen, numbers = out.observations[0, steps], out.actions[0, steps, 0]
            torn += int((seen != (numbers % 60_000)[:, None]).sum())
            drawn += len(steps)
        assert (torn == 0) == check
    finally:
        child.kill()
        child.join(60)
