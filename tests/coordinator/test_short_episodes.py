"""Episodes far shorter than segments: a run says how little of its capacity it can hold."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from remuda.config import load_config, overlay
from remuda.envs.vector_env import VectorEnv
from remuda.training.run import train
from remuda.types import AgentSpec, TurnResult
from remuda.ui.reports.results import remarks
from remuda.ui.reports.summary import read_run
from remuda.ui.terminal.live import PlainView

TREE = {
    "game": "coordinator.test_short_episodes:Short",
    "schedule": "sequential",
    "env": {"num_envs": 8},
    "policy": {"network": {"hidden": (8,)}, "n_frames": 1},
    "run": {"turns": 2_000, "evaluate_episodes": 0},
}
REPLAY = {"experience": {"capacity": 1_000, "learning_starts": 256}, "batch_size": 16}
KINDS = {
    "ppo": {"policy": {"algorithm": "ppo", "ppo": {"rollout_length": 128}}},
    "dqn": {"policy": {"algorithm": "dqn", **REPLAY}},
    "iqn": {"policy": {"algorithm": "iqn", **REPLAY}},
    "recurrent": {"policy": {"algorithm": "dqn", **REPLAY, "network": {"recurrent": 4}}},
    "hybrid": {
        "policy": {
            "algorithm": "ppo",
            "learning_mode": "hybrid",
            "ppo": {"rollout_length": 16},
            "experience": {"capacity": 1_000},
        }
    },
}
DEALT = {"population": {"matchmaker": "random", "policies": 3}}


class Short(VectorEnv):
    """Two agents act together, in episodes of one length."""

    turn_groups = ((0, 1),)

    def __init__(self, num_envs=1, length=2):
        self.num_envs, self._length = num_envs, length
        space = Box(0, 1, (1,), np.float32)
        self.agents = tuple(AgentSpec(f"agent_{i}", space, Discrete(2)) for i in range(2))
        self.active = np.zeros((num_envs, 2), np.bool_)
        self._turn = np.zeros(num_envs, np.int64)

    def reset(self, seeds, mask):
        self._turn[mask] = 0
        self.active[mask] = True

    def begin_turn(self):
        pass

    def observe(self, agent, out):
        out[:] = 0

    def act(self, agent, actions):
        pass

    def end_turn(self):
        self._turn += 1
        over = np.repeat((self._turn >= self._length)[:, None], 2, axis=1)
        self.active[...] = ~over
        return TurnResult(np.zeros((self.num_envs, 2), np.float32), over, np.zeros_like(over))


class Remembers(PlainView):
    def __init__(self):
        super().__init__()
        self.said = []

    def say(self, message):
        self.said.append(message)


def trained(tmp_path, *trees):
    tree = overlay(TREE, {"run": {"directory": str(tmp_path / "run")}})
    for other in trees:
        tree = overlay(tree, other)
    view = Remembers()
    result = train(load_config(tree), view)
    told = [line for line in view.said if "segment_length" in line]
    table = [line for line in remarks(read_run(tmp_path / "run")) if "segment_length" in line]
    return result, told, table


@pytest.mark.slow_cases(
    "dqn-dealt",
    "dqn-fixed",
    "hybrid-dealt",
    "hybrid-fixed",
    "iqn-dealt",
    "ppo-dealt",
    "ppo-fixed",
    "recurrent-dealt",
    "recurrent-fixed",
)
@pytest.mark.parametrize("dealt", [False, True], ids=["fixed", "dealt"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_capacity_that_short_episodes_leave_empty_is_told_once_and_noted(kind, dealt, tmp_path):
    result, told, table = trained(tmp_path, KINDS[kind], DEALT if dealt else {})
    assert len(told) == 1, "policies that are alike share a line"
    assert result.notes == (told[0],)
    assert table == told
    names = [name for name in result.record.policies if name in told[0]]
    assert len(names) == len(result.record.policies)
    assert "policy.experience.segment_length to 2" in told[0]


@pytest.mark.slow_cases("dqn", "hybrid", "iqn", "recurrent")
@pytest.mark.parametrize("kind", KINDS)
def test_with_the_setting_that_is_advised_nothing_is_told(kind, tmp_path):
    advised = {"policy": {"experience": {"segment_length": 2}}}
    result, told, table = trained(tmp_path, KINDS[kind], advised)
    assert (result.notes, told, table) == ((), [], [])


@pytest.mark.slow_cases("ppo")
@pytest.mark.parametrize("kind", ["ppo", "dqn"])
def test_long_episodes_are_not_told_of(kind, tmp_path):
    result, told, table = trained(tmp_path, KINDS[kind], {"env": {"options": {"length": 70}}})
    assert (result.notes, told, table) == ((), [], [])


@pytest.mark.process
@pytest.mark.slow
def test_it_is_told_in_async_too(tmp_path):
    result, told, _ = trained(tmp_path, KINDS["dqn"], {"schedule": "async"})
    assert len(told) == 1
    assert result.notes == tuple(told)
