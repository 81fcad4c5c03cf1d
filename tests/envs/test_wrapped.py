"""Games with something about them changed."""

import numpy as np
import pytest

from remuda.checkpoint.state import pack, unpack
from remuda.config import load_config
from remuda.coordinator.run_directory import RunDirectory
from remuda.envs.contract import VectorEnvContract
from remuda.envs.registry import make_env
from remuda.envs.scripted import at_random, play_episodes
from remuda.envs.treasure_hunt import TreasureHunt, greedy_walker
from remuda.envs.wrapped import SeatsTaken
from remuda.errors import ConfigError
from remuda.evaluate import evaluate
from remuda.saved_weights import load_run
from remuda.training import train
from remuda.ui.live import PlainView


def up(env, agent, seen, random):
    """A policy that draws nothing, so that copies stay independent of each other."""
    return np.zeros(len(seen), np.int64)


class TestSeatsTaken(VectorEnvContract):
    def make(self, num_envs):
        game = TreasureHunt(num_envs, max_turns=20)
        return SeatsTaken(game, {1: up}, np.random.default_rng(0))


def test_scripted_policies_take_seats():
    env = SeatsTaken(make_env("treasure_hunt", 100), {0: greedy_walker}, np.random.default_rng(0))
    returns = play_episodes(env, [at_random] * 2, 1)
    assert returns[:, 0].mean() > 100
    assert returns[:, 1].mean() < 40


def test_what_scripted_policies_draw_is_saved_with_the_game():
    env, twin = (
        SeatsTaken(make_env("treasure_hunt", 3), {0: at_random}, np.random.default_rng(seed))
        for seed in (1, 2)
    )
    still = np.zeros(3, np.int64)

    def turns(env):
        rewards = []
        for _ in range(30):
            env.begin_turn()
            for agent in range(2):
                env.observe(agent, np.zeros((3, 5, 5, 5), np.uint8))
                env.act(agent, still)
            rewards.append(env.end_turn().rewards.tolist())
        return rewards

    for each in (env, twin):
        each.reset(np.arange(3), np.ones(3, bool))
    turns(env)
    twin.restore(unpack(pack(env.state())))
    assert turns(env) == turns(twin)


def test_a_run_may_leave_seats_to_scripted_policies(tmp_path):
    config = load_config(
        {
            "schedule": "sequential",
            "env": {"num_envs": 8, "scripted": {"agent_1": "greedy_walker"}},
            "policy": {"algorithm": "ppo"},
            "run": {"turns": 4000, "directory": tmp_path / "run", "evaluate_episodes": 40},
        }
    )
    result = train(config, PlainView())
    learns, scripted = (result.record.policies[f"agent_{i}"] for i in range(2))
    assert learns.updates > 0
    assert scripted.updates == scripted.steps == 0
    assert scripted.mean_return > 100
    assert result.evaluation.mean(1) > 100
    _, snapshots = load_run(RunDirectory.open(tmp_path / "run"))
    against_nobody = evaluate(config, snapshots, 40, scripted={"agent_1": "random"})
    assert against_nobody.mean(1) < 40


@pytest.mark.parametrize(
    ("scripted", "said"),
    [
        ({"bob": "random"}, "treasure_hunt has no agent 'bob' to be scripted; it has agent_0"),
        ({"agent_1": "bob"}, "treasure_hunt has no scripted policy 'bob'; it has random, greedy"),
        ({"agent_1": "support:bob"}, "cannot load the scripted policy 'support:bob'"),
    ],
)
def test_wrong_seats_are_told_before_anything_begins(scripted, said, tmp_path):
    run = {"directory": tmp_path / "run"}
    with pytest.raises(ConfigError, match=said):
        train(load_config({"env": {"scripted": scripted}, "run": run}), PlainView())
    assert not (tmp_path / "run").exists()
