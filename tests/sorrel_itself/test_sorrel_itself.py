"""Sorrel's own games and models, where Sorrel is installed: `make test-sorrel`."""

import numpy as np
import pytest

import remuda
import remuda.api.sorrel
from refusals import refuses
from remuda.envs.adapters.sorrel import EXAMPLES
from remuda.envs.contract import VectorEnvContract
from remuda.envs.registry import make_env
from remuda.errors import ConfigError

pytestmark = pytest.mark.process

pytest.importorskip("sorrel.environment")

SHORT = {
    "schedule": "sequential",
    "env": {"num_envs": 2},
    "policy": {
        "algorithm": "iqn",
        "n_frames": 2,
        "network": {"hidden": [32]},
        "experience": {"learning_starts": 200},
    },
    "run": {"turns": 300, "evaluate_episodes": 2, "live": False},
    "checkpoint": {"evaluate_episodes": 0},
}


@pytest.mark.parametrize("game", EXAMPLES)
def test_each_game_trains_and_is_shown(game, tmp_path):
    run = {**SHORT["run"], "directory": str(tmp_path / "run")}
    result = remuda.train(f"sorrel:{game}", **{**SHORT, "run": run})
    last = result.record
    assert last.turns >= 300
    assert all(policy.updates > 0 for policy in last.policies.values())
    assert result.evaluation is not None
    assert np.isfinite(result.evaluation.returns).all()
    env = make_env(f"sorrel:{game}", 2)
    env.reset(np.arange(2), np.ones(2, bool))
    for copy in range(2):
        picture = env.render(copy)
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.std() > 0


@pytest.mark.parametrize("game", EXAMPLES)
def test_the_same_seeds_are_the_same_episodes(game):
    def played():
        env = make_env(f"sorrel:{game}", 2)
        env.reset(np.array([5, 6]), np.ones(2, bool))
        rng, told = np.random.default_rng(0), []
        for _ in range(12):
            env.begin_turn()
            for group in env.turn_groups:
                for agent in group:
                    spec = env.agents[agent]
                    seen = np.zeros(
                        (2, *spec.observation_space.shape), spec.observation_space.dtype
                    )
                    env.observe(agent, seen)
                    told.append(seen.copy())
                    env.act(agent, rng.integers(spec.action_space.n, size=2))
            told.append(env.end_turn().rewards.copy())
        return told

    for one, other in zip(played(), played(), strict=True):
        np.testing.assert_array_equal(one, other)


class TestTreasurehunt(VectorEnvContract):
    def make(self, num_envs):
        return make_env("sorrel:treasurehunt", num_envs)


class TestCleanup(VectorEnvContract):
    def make(self, num_envs):
        return make_env("sorrel:cleanup", num_envs)


class TestTag(VectorEnvContract):
    def make(self, num_envs):
        return make_env("sorrel:tag", num_envs)


class TestIowa(VectorEnvContract):
    def make(self, num_envs):
        return make_env("sorrel:iowa", num_envs)


def test_options_are_the_game_s_configuration():
    wide = make_env("sorrel:treasurehunt", 1, world={"height": 9, "width": 11})
    wide.reset(np.zeros(1, np.int64), np.ones(1, bool))
    world = wide.envs[0].world if hasattr(wide, "envs") else None
    assert world is None or (world.height, world.width) == (9, 11)
    assert make_env("sorrel:treasurehunt", 1, model={"num_agents": 3}).num_agents == 3
    with refuses(ConfigError):
        make_env("sorrel:treasurehunt", 1, world={"heigth": 9})


def treasurehunt(spawn=0.05):
    """As Sorrel's own script makes it."""
    from sorrel.examples.treasurehunt.entities import EmptyEntity
    from sorrel.examples.treasurehunt.env import TreasurehuntEnv
    from sorrel.examples.treasurehunt.world import TreasurehuntWorld

    config = {
        "experiment": {"epochs": 2, "max_turns": 40, "record_period": 50},
        "model": {"agent_vision_radius": 2, "epsilon_decay": 0.0005, "observation_spec": "rgb"},
        "world": {
            "height": 9,
            "width": 9,
            "gem_value": 10,
            "food_value": 5,
            "bone_value": -10,
            "spawn_prob": spawn,
        },
    }
    return TreasurehuntEnv(TreasurehuntWorld(config=config, default_entity=EmptyEntity()), config)


def played_by_itself(environment, episodes):
    """What agents earn in Sorrel's own loop, on the mean."""
    earned = []
    for _ in range(episodes):
        environment.reset()
        for agent in environment.agents:
            agent.model.start_epoch_action(epoch=0)
        for _ in range(40):
            environment.take_turn()
        earned.append(environment.world.total_reward)
    return float(np.mean(earned))


def test_models_of_its_own_are_trained_inside_its_script(tmp_path):
    environment = treasurehunt()
    untaught = [
        {name: value.clone() for name, value in agent.model.qnetwork_local.state_dict().items()}
        for agent in environment.agents
    ]
    result = remuda.api.sorrel.train(
        environment,
        env={"num_envs": 4},
        run={**SHORT["run"], "turns": 600, "directory": str(tmp_path / "run")},
        checkpoint={"evaluate_episodes": 0},
    )
    run = remuda.load(result)
    rng = np.random.default_rng(0)
    for i, agent in enumerate(environment.agents):
        model = agent.model
        assert any(
            not (untaught[i][name] == value).all()
            for name, value in model.qnetwork_local.state_dict().items()
        )
        policy, shape = run[f"agent_{i}"], run[f"agent_{i}"].observation_space.shape
        same = 0
        for _ in range(50):
            frames = rng.random((model.n_frames, *shape)).astype(np.float32)
            policy.begin()
            for frame in frames:
                wanted = int(policy.act(frame))
            same += int(model.take_action(frames.reshape(1, -1))) == wanted
        # Its quantiles are drawn, where ours are fixed: near ties may be taken otherwise.
        assert same >= 40
    assert np.isfinite(played_by_itself(environment, 3))


@pytest.mark.slow
def test_what_was_learned_is_worth_more_in_its_own_loop(tmp_path):
    environment = treasurehunt()
    before = played_by_itself(environment, 30)
    remuda.api.sorrel.train(
        environment,
        env={"num_envs": 8},
        schedule="sequential",  # so that nothing depends on what else the machine does
        run={**SHORT["run"], "turns": 80_000, "directory": str(tmp_path / "run")},
        checkpoint={"evaluate_episodes": 0},
    )
    assert played_by_itself(environment, 30) > before + 15.0
