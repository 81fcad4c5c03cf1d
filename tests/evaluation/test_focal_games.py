"""Focal play in games with dying and absent agents, masks and turns, and of recurrent policies."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import remuda
from remuda.envs.games.array_game import TurnArrays
from remuda.types import AgentSpec
from short_runs import trained

TURNS = 4
GUESTS = "absent_agents:Guests"
RECURRENT = {"network": {"hidden": (8,), "recurrent": 8}}


class Digits(TurnArrays):
    """Three agents write one digit of base 4 in each turn, the lowest first.

    So a return is the sequence of an agent's actions. An agent whose first digit is 3 dies at once.
    """

    def __init__(self, num_envs=1):
        space = Box(0.0, 1.0, (2,), np.float32)
        self._make_arrays(num_envs, [AgentSpec(f"agent_{i}", space, Discrete(4)) for i in range(3)])
        self.turn_groups = ((0, 1, 2),)
        self._turn = np.zeros(num_envs, np.int64)
        self._digits = np.zeros((num_envs, 3), np.int64)

    def reset(self, seeds, mask):
        self.active[mask], self._turn[mask] = True, 0

    def observe(self, agent, out):
        out[:, 0] = self._turn == 0
        out[:, 1] = self._turn % 2

    def act(self, agent, actions):
        self._digits[:, agent] = actions

    def end_turn(self):
        worth = (4.0**self._turn)[:, None]
        self._rewards[...] = np.where(self.active, self._digits * worth, 0.0)
        died = (self._turn[:, None] == 0) & (self._digits == 3)
        self._turn += 1
        self._terminated[...] = self.active & (died | (self._turn[:, None] == TURNS))
        self.active &= ~self._terminated
        return self._result


def dies(env, agent, observations, rng):
    return np.full(len(observations), 3)


def counts(env, agent, observations, rng):
    return np.ones(len(observations), np.int64)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    directory = tmp_path_factory.mktemp("digits") / "run"
    return trained(directory, Digits, policy=RECURRENT, run={"turns": 40})


def test_agents_that_die_early_have_the_return_until_then():
    found = remuda.evaluate_among(dies, counts, range(4), 6, game=Digits)
    for each in found.returns:
        assert each.focal_seats == 0 or (each.focal, each.focal_error) == (3.0, 0.0)
        assert each.focal_seats == 3 or (each.background, each.background_error) == (85.0, 0.0)


@pytest.mark.parametrize(("background", "earned"), [(dies, 3.0), (counts, 85.0)])
def test_a_recurrent_policy_remembers_its_own_episode_only(digits, background, earned):
    """Greedy and in a game without chance, it writes the same digits in every match."""
    own = digits.evaluate(6).returns
    assert (own == own[0]).all()
    sequences = {int(value) for value in own[0]}
    assert len(sequences) > 1, "policies that all do the same would hide a mistake"
    found = digits.evaluate_among(
        background, range(4), episodes=120
    )  # each copy plays several matches
    for each in found.returns:
        if each.focal_seats:
            assert each.focal == pytest.approx(own[0].mean())
        if each.focal_seats < 3:
            assert (each.background, each.background_error) == (earned, 0.0)
    assert found.returns[3].focal_error == pytest.approx(0.0, abs=1e-9)


def test_absent_seats_of_a_run_do_not_count(tmp_path):
    """The host earns 4, the other 8, the guest 10 in half of the episodes; the ghost never acts."""
    run = trained(tmp_path / "run", GUESTS)
    for background in ("random", run):
        found = run.evaluate_among(background, range(5), episodes=60)
        for each in found.returns:
            assert 6.0 <= each.all_seats <= 22 / 3
            if each.focal_seats:
                assert 5.0 < each.focal < 9.0
            if each.focal_seats < 4:
                assert 5.0 < each.background < 9.0
        assert found.returns[4].focal == found.returns[4].all_seats


def test_action_masks_hold_on_both_sides(tmp_path):
    """On a board of two rows a column is full after two discs."""
    env = {"options": {"height": 2, "width": 5, "connect": 3}}
    run = trained(tmp_path / "run", "connect_four", env=env)
    for background in ("tactician", "random", run):
        (found,) = run.evaluate_among(background, 1, episodes=20).returns
        assert found.focal == pytest.approx(-found.background)
    (found,) = remuda.evaluate_among("tactician", run, 1, 20, game="connect_four").returns
    assert found.focal > 0.0


@pytest.mark.parametrize(
    ("game", "options", "scripted"),
    [
        ("cleanup", {"num_agents": 3, "max_turns": 12}, ("cleaners", "harvesters")),
        ("bucket_brigade", {"scenario": "hard"}, ("firefighter", "always_rest")),
    ],
)
def test_runs_and_scripted_policies_share_a_world(game, options, scripted, tmp_path):
    """With the same seed, seats that the same policies play earn the same, whoever is focal."""
    one, other = (
        trained(tmp_path / name, game, env={"options": options}, policy=policy)
        for name, policy in (("one", {}), ("other", RECURRENT))
    )
    seats = len(one.agents)
    mixed = one.evaluate_among(other, range(seats + 1), episodes=6)
    assert [each.episodes for each in mixed.returns] == [6] * (seats + 1)
    assert np.isfinite([each.all_seats for each in mixed.returns]).all()
    assert one.evaluate_among(other, seats, 6).returns[0].focal == pytest.approx(
        one.evaluate_among(scripted[0], seats, 6).returns[0].focal
    )
    for name in scripted:
        among = one.evaluate_among(name, 0, 6).returns[0].background
        alone = remuda.evaluate_among(name, one, seats, 6, game=game).returns[0].focal
        without = remuda.evaluate_among(name, "random", seats, 6, game=game, options=options)
        assert among == alone == without.returns[0].focal
