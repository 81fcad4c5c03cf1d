"""Spaces of Melting Pot's substrates: dictionaries of an RGB image and float64 scalars."""

import numpy as np
import pytest

import remuda
from melting_pots import ACTIONS, PIXELS, SHOOT, TURNS, Kettle, Pot, shimmy_pot
from remuda.envs.contract import VectorEnvContract
from remuda.envs.observation_parts import parts_of
from remuda.envs.registry import make_env

NETWORK = {"convolutions": [[8, 8, 4], [8, 4, 4]], "layout": "hwc", "hidden": [16]}


@pytest.mark.slow
class TestPot(VectorEnvContract):
    def make(self, num_envs):
        return make_env("melting_pots:Pot", num_envs)


def test_the_image_and_the_scalars_are_parts_of_one_row():
    env = make_env("melting_pots:Pot", 1)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    space = env.agents[0].observation_space
    parts = {part.name: part for part in parts_of(space)}
    assert parts["RGB"].shape == PIXELS
    assert parts["RGB"].is_pixels
    assert not parts["READY_TO_SHOOT"].are_bytes
    out = np.zeros((1, *space.shape), space.dtype)
    env.observe(0, out)
    image = out[0, parts["RGB"].start : parts["RGB"].start + parts["RGB"].size].reshape(PIXELS)
    world = Kettle()
    world.start(0)
    assert np.flatnonzero(image.sum((1, 2))).tolist() in (list(range(44)), list(range(44, 88)))
    assert out[0, parts["INVENTORY"].start : parts["INVENTORY"].start + 2].tolist() == [-1.0, -1.0]
    assert out[0, parts["READY_TO_SHOOT"].start] == 1.0


def test_the_world_has_the_spaces_and_values_that_shimmy_gives_a_substrate():
    pytest.importorskip("dm_env")
    ours, theirs = Pot(), shimmy_pot()
    assert theirs.possible_agents == ours.possible_agents
    assert theirs.state_space == ours.state_space
    for agent in ours.possible_agents:
        assert theirs.observation_space(agent) == ours.observation_space(agent)
        assert theirs.action_space(agent) == ours.action_space(agent)
    pairs = [(ours.reset()[0], theirs.reset()[0])]
    rng = np.random.default_rng(0)
    for _ in range(TURNS):
        actions = dict(zip(ours.agents, rng.integers(0, ACTIONS, 2).tolist(), strict=True))
        own, others = ours.step(actions), theirs.step(actions)
        assert own[1:4] == others[1:4]  # rewards and ends
        pairs.append((own[0], others[0]))
    assert ours.agents == theirs.agents == []
    for own, others in pairs:
        for agent, parts in own.items():
            assert parts.keys() == others[agent].keys()
            for name, value in parts.items():
                np.testing.assert_array_equal(value, others[agent][name])
                assert np.asarray(value).dtype == others[agent][name].dtype


@pytest.mark.slow
@pytest.mark.parametrize("make", ["Pot", "shimmy_pot"])
def test_ppo_learns_from_the_image_and_its_policies_are_loaded(make, tmp_path):
    if make == "shimmy_pot":
        pytest.importorskip("dm_env")
    result = remuda.train(
        f"melting_pots:{make}",
        env={"num_envs": 8},
        schedule="sequential",
        policy={
            "algorithm": "ppo",
            "learning_rate": 3e-3,
            "network": NETWORK,
            "ppo": {"rollout_length": 16},
        },
        run={"turns": 6000, "directory": tmp_path / "run", "evaluate_episodes": 20},
        checkpoint={"evaluate_episodes": 0},
        view="quiet",
    )
    # Random play earns 0.75 in 12 turns; shooting always, whatever the image shows, earns 6 too.
    assert result.evaluation.returns.mean() > 4.0
    run, pot = remuda.load(tmp_path / "run"), Pot()
    again = run.evaluate(20)
    assert again.returns.mean() == pytest.approx(result.evaluation.returns.mean(), abs=1.5)
    policy, (observations, _) = run["player_1"], pot.reset(seed=3)
    assert 0 <= policy.act(observations["player_1"]) < ACTIONS
    upper = [observations["player_1"] | {"RGB": _half(True)}] * 2
    batch = {name: np.stack([np.asarray(each[name]) for each in upper]) for name in upper[0]}
    assert (policy.act(batch) == SHOOT).all()


def _half(is_up):
    image = np.zeros(PIXELS, np.uint8)
    image[: 44 if is_up else 88][-44:] = 200
    return image


@pytest.mark.slow
def test_a_centralised_critic_gets_joint_observations(tmp_path):
    """Shimmy's `state()` returns the players' observations, which are not in its `state_space`."""
    assert make_env("melting_pots:Pot", 1).agents[0].state_space is None
    result = remuda.train(
        "melting_pots:Pot",
        env={"num_envs": 2},
        schedule="sequential",
        policy={"algorithm": "mappo", "network": NETWORK, "ppo": {"rollout_length": 8}},
        run={"turns": 100, "directory": tmp_path / "run", "evaluate_episodes": 0},
        checkpoint={"evaluate_episodes": 0},
        view="quiet",
    )
    assert all(own.updates > 0 for own in result.record.policies.values())
