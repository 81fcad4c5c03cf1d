"""A ring on another node is the ring of its actor, whatever is played and however it crosses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.ring_pairs import Kind, Pair, Player, take_all
from refusals import refuses
from remuda.errors import RemudaError
from remuda.experience.ring import CLOSED, CLOSED_STEPS, HEAD
from remuda.experience.rollout_queue import RolloutQueue

kinds = st.builds(
    Kind,
    n_frames=st.integers(1, 3),
    size=st.integers(1, 3),
    masks=st.sampled_from([0, 3]),
    keeps_last_mask=st.booleans(),
    memory=st.sampled_from([0, 2]),
    continuous=st.booleans(),
    streams=st.integers(1, 4),
    length=st.integers(1, 5),
    capacity=st.integers(1, 40),
    rollout=st.sampled_from([0, 6]),
    actors=st.integers(1, 2),
    policies=st.integers(1, 2),
)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("play"), st.integers(1, 40)),
        st.tuples(st.just("pump"), st.integers(0, 300)),
        st.tuples(st.just("pump"), st.just(1 << 20)),
        st.tuples(st.just("link"), st.just(0)),
        st.tuples(st.just("begin"), st.just(0)),
    ),
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(kinds, moves, st.integers(0, 2**20), st.sampled_from([0.05, 0.3, 0.8]))
def test_both_ends_are_equal_in_all_that_is_committed_closed_and_counted(kind, todo, seed, ends):
    pair = Pair(kind)
    player = Player(pair.here, kind, seed, ends)
    for what, number in todo:
        if what == "play":
            player.play(number)
        elif what == "pump":
            pair.pump(number)
        elif what == "link":
            pair.link()
        else:
            player.begin()
        pair.check_there()
    pair.pump_all(200)
    pair.check_same()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(kinds, moves, st.integers(0, 2**20), st.sampled_from([0.05, 0.3, 0.8]))
def test_a_learner_there_takes_each_step_once_and_in_order(kind, todo, seed, ends):
    kind.rollout = 6
    pair = Pair(kind)
    player, taken = Player(pair.here, kind, seed, ends), []
    rollouts = RolloutQueue(pair.there)
    for what, number in todo:
        if what == "play":
            player.play(number)
        elif what == "pump":
            pair.pump(number)
        elif what == "link":
            pair.link()
        else:
            player.begin()
        taken += take_all(rollouts)
    player.begin()  # what is open is closed
    pair.pump_all()
    taken += take_all(rollouts)
    assert len(taken) == len(set(taken)), "a step was handed out twice"
    for stream in range(kind.streams):
        assert (np.diff([step for step in taken if step % kind.streams == stream]) > 0).all()
    assert len(taken) + rollouts.lost == pair.here.written
    assert pair.there.passed == pair.here.written


def test_a_ring_is_cut_where_a_frame_is_full():
    pair = Pair(Kind(streams=4, capacity=80))
    player = Player(pair.here, pair.kind, 0)
    player.play(20)
    frames = 0
    while not (news := pair.collect(0)).words.size:
        pair.following.write(news)
        assert pair.there.written == 0
        pair.check_there()
        frames += 1
    pair.following.write(news)
    assert frames > 3
    pair.check_same()


def test_nothing_that_is_there_is_sent_again():
    pair = Pair(Kind(streams=4, capacity=80))
    player = Player(pair.here, pair.kind, 0)
    player.play(20)
    pair.pump_all()
    assert pair.collect(1 << 20) is None
    pair.link()
    news = pair.collect(1 << 20)
    assert not news.payload.size
    player.play(1)
    pair.following.write(news)
    assert pair.collect(1 << 20).payload.size > 0


def test_steps_that_do_not_go_on_from_those_that_are_here_begin_anew():
    pair = Pair(Kind())
    player = Player(pair.here, pair.kind, 0, ends=0.0)
    player.play(2)
    pair.pump()
    player.play(1)
    pair.collect(1 << 20)  # lost on its way
    player.play(1)
    with refuses(RemudaError):
        pair.pump()
    pair.check_there()
    pair.link()
    pair.pump_all()
    pair.check_same()


def test_the_learner_is_rung_once_there_is_what_it_asked_for():
    pair = Pair(Kind(rollout=6))
    player = Player(pair.here, pair.kind, 0)
    assert not pair.there.has_rollout()
    pair.there.learner.was_rung()
    while pair.here.untaken < 6:
        player.play(1)
        assert not pair.there.learner.was_rung()
    pair.pump()
    assert pair.there.learner.was_rung()
    assert pair.there.has_rollout()


def test_closed_steps_are_those_of_the_segments_that_are_closed():
    """An actor between the two words: neither may run ahead of the other, nor go back."""
    pair = Pair(Kind(rollout=6))
    player = Player(pair.here, pair.kind, 0, ends=0.5)
    player.play(20)
    pair.pump_all()
    here, there = (ring.counters for ring in pair.rings)
    before, closed = int(there[CLOSED_STEPS]), int(here[CLOSED])
    steps = int(here[CLOSED_STEPS])
    while here[CLOSED] == closed:
        player.play(1)
    after = int(here[CLOSED_STEPS])
    # As if it were just there: the segments are counted and their steps not yet.
    here[CLOSED_STEPS] = steps
    pair.pump()
    assert there[CLOSED_STEPS] in (before, after)
    if there[CLOSED_STEPS] == after:
        pair.pump()
        assert there[CLOSED_STEPS] == after, "it went back"
    here[CLOSED_STEPS] = after
    pair.pump_all()
    assert there[CLOSED_STEPS] == after
    assert there[HEAD] == here[HEAD]
