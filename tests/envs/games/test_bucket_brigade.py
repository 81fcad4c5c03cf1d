"""Bucket Brigade: the recorded nights of the original, its published values, and its own pieces."""

import json
from pathlib import Path

import numpy as np
import pytest

from refusals import refuses
from remuda.envs.contract import VectorEnvContract
from remuda.envs.games.bucket_brigade import (
    BURNING,
    RUINED,
    SAFE,
    SCENARIOS,
    BucketBrigade,
    Draws,
    night,
)
from remuda.envs.games.bucket_brigade_policies import (
    always_rest,
    always_work,
    firefighter,
    owners_duty,
)
from remuda.envs.registry import make_env
from remuda.errors import ConfigError

TRACES = sorted((Path(__file__).parent / "traces").glob("bucket_brigade_*.json"))


class TestBucketBrigade(VectorEnvContract):
    def make(self, num_envs):
        return BucketBrigade(num_envs, scenario="hard")


class TestContinuousAndPlain(VectorEnvContract):
    def make(self, num_envs):
        return BucketBrigade(
            num_envs, scenario="default_continuous", num_agents=6, max_nights=40, scaled=False
        )


def drawn(recorded, missing):
    """Recorded draws as numbers; what was not drawn must not matter, whatever it is."""
    plain = np.array(
        [missing if x is None else x for row in recorded for x in np.ravel(row)], np.float64
    )
    return plain.reshape(np.shape(recorded))


@pytest.mark.parametrize("missing", [0.0, 1.0])
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem[len("bucket_brigade_") :])
def test_recorded_nights_are_replayed_exactly(path, missing):
    trace = json.loads(path.read_text())
    parameters = trace["parameters"]
    agents, houses = parameters["num_agents"], parameters["num_houses"]
    env = BucketBrigade(1, scenario=trace["scenario"], num_agents=agents)
    for name in ("own_house_survives", "other_house_survives"):
        assert np.all(
            np.array(parameters["reward_" + name]) == getattr(env.scenario, "reward_" + name)
        )
    assert trace["house_owners"] == [house % agents for house in range(houses)]
    state, progress = np.zeros(houses, np.int8), np.zeros(houses)
    before, rewards = np.zeros(houses, np.int8), np.zeros(agents, np.float32)
    nights = 0
    for episode in trace["episodes"]:
        state[:] = episode["start"]
        progress[:] = before[:] = 0
        for number, recorded in enumerate(episode["nights"]):
            assert state.tolist() == recorded["before"]
            draws = Draws(
                *(
                    drawn(recorded["draws"][name], missing)
                    for name in ("extinguish", "spread", "spark")
                )
            )
            actions = np.array(recorded["actions"], np.int64)
            night(state, progress, before, actions, draws, env.rules, rewards)
            assert state.tolist() == recorded["after"]
            np.testing.assert_allclose(rewards, recorded["rewards"], atol=1e-3, rtol=0)
            over = number >= env.rules.min_nights and not (state == BURNING).any()
            assert over == recorded["done"]
            nights += 1
    assert nights > 50


def returns_per_night(scenario, choose, episodes, **options):
    """Mean over episodes of the team's reward per night, and its standard error."""
    env = BucketBrigade(500, scenario=scenario, max_nights=10_000, **options)
    random = np.random.default_rng(0)
    out = np.zeros((500, *env.agents[0].observation_space.shape), np.float32)
    found, every = [], np.ones(500, bool)
    for _ in range(episodes // 500):
        env.reset(random.integers(2**60, size=500), every)
        total, nights = np.zeros(500), np.zeros(500)
        while env.active.any():
            env.begin_turn()
            nights += env.active[:, 0]
            for agent in range(env.num_agents):
                env.observe(agent, out)
                env.act(agent, choose(env, agent, out, random))
            total += env.end_turn().rewards.sum(1)
        found.append(total / nights)
    values = np.concatenate(found)
    return values.mean(), values.std() / np.sqrt(values.size)


def at_random(env, agent, seen, random):
    return random.integers([env.scenario.num_houses, 2, 2], size=(env.num_envs, 3))


@pytest.mark.parametrize(
    ("scenario", "uniform", "duty"),
    [
        ("rest_trap", 302.9, 386.6),
        ("minimal_specialization", -87.7, -28.4),
        ("default", 251.2, 312.4),
        ("chain_reaction", 227.4, 307.7),
        ("v2_minimal", 1.4, 8.0),
    ],
)
def test_reference_policies_earn_what_is_published(scenario, uniform, duty):
    # How exact the published means are is not known; these are good to about one.
    for choose, published in ((at_random, uniform), (owners_duty, duty)):
        mean, error = returns_per_night(scenario, choose, 5000)
        assert abs(mean - published) < 4 * error + 1.0


@pytest.mark.parametrize("scaled", [True, False])
def test_the_nearest_fire_is_fought_from_home(scaled):
    """Agent 1 lives in house 8 of a ring of ten, so houses 9 and 6 are 1 and 2 away."""
    env = BucketBrigade(3, num_agents=2, homes=(0, 8), scaled=scaled)
    env.reset(np.arange(3), np.ones(3, bool))
    env.houses[:] = SAFE
    env.houses[0, [1, 6, 3]] = BURNING
    env.houses[1, [9, 7]] = BURNING  # as near as each other: the lower number
    env.houses[2, [8]] = RUINED
    env.actions[:] = 0
    env.restore(env.state())
    out = np.zeros((3, *env.agents[1].observation_space.shape), np.float32)
    env.observe(1, out)
    expected = [[6, 1, 0], [7, 1, 0], [8, 0, 0]]
    assert firefighter(env, 1, out, None).tolist() == expected
    expected[2][1] = 1
    assert always_work(env, 1, out, None).tolist() == expected
    assert always_rest(env, 1, out, None).tolist() == [[8, 0, 0]] * 3


def test_the_plain_view_is_the_scaled_one_in_other_units():
    plain, scaled = (BucketBrigade(50, scenario="hard", scaled=kind) for kind in (False, True))
    for env in (plain, scaled):
        env.reset(np.arange(50), np.ones(50, bool))
    random = np.random.default_rng(0)
    for _ in range(5):
        for agent in range(4):
            actions = at_random(plain, agent, None, random)
            plain.act(agent, actions)
            scaled.act(agent, actions)
        plain.end_turn()
        scaled.end_turn()
    seen = [np.zeros((50, 42), np.float32) for _ in range(2)]
    plain.observe(2, seen[0])
    scaled.observe(2, seen[1])
    assert (seen[0][:, :10] == plain.houses).all()
    assert (seen[1][:, :10] == np.array([0, 1, -1])[plain.houses]).all()
    assert {SAFE, BURNING, RUINED} == set(np.unique(plain.houses))
    assert (seen[0][:, 10:14] == plain.actions[:, :, 2]).all()
    assert (seen[0][:, 14:18] == plain.actions[:, :, 0]).all()
    assert (seen[0][:, 18:26] == plain.actions[:, :, :2].reshape(50, 8)).all()
    np.testing.assert_allclose(seen[1][:, 14:18], plain.actions[:, :, 0] / 9, rtol=1e-6)
    facts = [0.4, 0.3, 0.05, 100, 100, 1, 0, 2, 0, 0.5, 15, 4]
    np.testing.assert_allclose(seen[0][0, 26:38], facts, rtol=1e-6)
    assert (seen[0][:, 38:] == [0, 0, 1, 0]).all()


def test_an_episode_is_cut_off_when_the_nights_are_over():
    env = BucketBrigade(1, scenario="default_continuous", max_nights=5)
    env.reset(np.array([3]), np.ones(1, bool))
    for number in range(5):
        result = env.end_turn()
        assert result.truncated.all() == (number == 4)
        assert env.active.all() == (number < 4)
        assert not result.terminated.any()


def test_work_far_from_home_costs_more():
    env = make_env("bucket_brigade", 1, scenario="positional_default")
    cost = env.rules.work_cost
    np.testing.assert_allclose(cost[1], 0.5 + 0.1 * np.array([3, 2, 1, 0, 1, 2, 3, 4, 5, 4]))


@pytest.mark.parametrize(
    "options",
    [
        {"scenario": "nope"},
        {"spread": 1},
        {"prob_house_catches_fire": 2.0},
        {"reward_own_house_survives": [1, 2]},
        {"scenario": "positional_default", "num_agents": 5},
    ],
)
def test_what_cannot_be_is_refused(options):
    with refuses(ConfigError):
        make_env("bucket_brigade", 1, **options)


def test_the_picture_shows_fires():
    env = BucketBrigade(1)
    env.reset(np.array([1]), np.ones(1, bool))
    calm = env.render()
    env.houses[0, 3] = BURNING
    assert calm.shape == (272, 272, 3)
    assert (env.render() != calm).any()
    assert len(SCENARIOS) == 18


def test_facts_of_an_episode_by_hand():
    """Two episodes in two copies, added up beside the game."""
    env = BucketBrigade(2, scenario="easy", min_nights=3, max_nights=6)
    random = np.random.default_rng(0)
    seen = []
    for episode in range(2):
        env.reset(np.arange(2) + 10 * episode, np.ones(2, bool))
        team, worked, nights = np.zeros(2), np.zeros(2), np.zeros(2)
        while env.active.any():
            on = env.active[:, 0].copy()
            env.begin_turn()
            for agent in range(4):
                actions = random.integers(0, [10, 2, 2], (2, 3))
                worked += on * actions[:, 1]
                env.act(agent, actions)
            result = env.end_turn()
            team += result.rewards.sum(1)
            nights += on
            for copy in np.flatnonzero(on & ~env.active[:, 0]):
                told = {name: float(values[copy]) for name, values in result.info.items()}
                assert told == {
                    "team_reward_per_night": pytest.approx(team[copy] / nights[copy], rel=1e-5),
                    "work_share": pytest.approx(worked[copy] / (4 * nights[copy])),
                    "ruined_houses": (env.houses[copy] == RUINED).sum(),
                    "nights": nights[copy],
                }
                seen.append(told)
    assert len(seen) == 4
