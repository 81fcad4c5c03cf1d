"""Live policies that only play in a match: they act as they are now, and nothing of it is kept."""

import numpy as np
import pytest

from actor.test_match_seats import DQN, World, lived_through
from remuda.population.ledger.records import PolicyRef
from remuda.population.matchmaking.matchmaker import Matchmaker
from support import Tape

PLAYED = {"policy": DQN, "env": {"num_envs": 4}}


class OneLearns(Matchmaker):
    """`a` learns against `b` in two matches of three; in the third both only play."""

    def seat(self, population, ledger, random):
        pair = (PolicyRef("a"), PolicyRef("b"))
        self.learner = self.proposed % 3
        return pair if self.learner == 0 else (pair[1], pair[0])

    def learning_seats(self, seats):
        return frozenset(((0,), (1,), ())[self.learner])


def world_of(together=False):
    env = Tape(num_envs=4, num_agents=2, lengths=(2, 3), together=together)
    tree = PLAYED | {"population": {"matchmaker": "random", "policies": ["a", "b"]}}
    return World(env, tree, OneLearns(2))


@pytest.mark.slow_cases("False")
@pytest.mark.parametrize("together", [False, True])
def test_what_a_policy_lives_through_where_it_only_plays_is_not_kept(together):
    """Red before: all that a live policy did was written, and it learned from every match."""
    world = world_of(together)
    truth = {"a": set(), "b": set()}
    counted = dict.fromkeys(("learns", "plays"), 0)
    for _ in range(60):
        seated, learns = world.league.seated.copy(), world.league.learns.copy()
        before = np.zeros((4, 5), np.float32)
        world.env.observe(0, before)  # copy, agent, episode, turn, acts
        assert world.actor.work()
        for copy in range(4):
            for seat in range(2):
                name = world.table.policies[seated[copy, seat]]
                counted["learns" if learns[copy, seat] else "plays"] += 1
                if learns[copy, seat]:
                    truth[name].add((copy, seat, int(before[copy, 2]), int(before[copy, 3])))
    assert min(counted.values()) > 100
    assert len(truth["a"]) > 60
    assert not truth["b"]
    found = set(lived_through(world.experience["a"]))
    lengths = (2, 3)
    assert found == {
        (copy, seat, episode, at)
        for copy, seat, episode, at in truth["a"]
        if (copy, seat, episode, at + 1) in truth["a"] or at + 1 == lengths[copy % 2]
    }
    assert int(world.experience["b"].rings[0].counters.sum()) == 0


def test_who_only_plays_acts_with_its_newest_weights_and_is_counted():
    """It never learns here, and is published twelve times."""
    world = world_of()
    for _ in range(12):
        world.publish("b")
        world.actor.work()
    assert world.league.population[PolicyRef("b")].games > 0
    assert world.seats.look("b").version == world.publishers["b"].version


def test_policies_have_rollouts_of_what_they_learn_from():
    """Shares are counted without the seats on which a policy only plays."""
    world = world_of()
    assert world.league.matchmaker.expected_shares(world.league.population) == pytest.approx(
        {"a": 2 / 3, "b": 0.0}, abs=0.01
    )


def test_who_learns_goes_on_in_the_middle_of_matches():
    world = world_of()
    world.actor.work()
    state, learns = world.league.state(), world.league.learns.copy()
    assert not learns.all()
    world.league.learns[...] = True
    world.league.restore(state)
    assert (world.league.learns == learns).all()
