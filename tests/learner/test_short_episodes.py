"""A run updates as often as its rollouts are set to, and holds its capacity, at any length."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from remuda.config import load_config, overlay
from remuda.envs.vector_env import VectorEnv
from remuda.training.run import train
from remuda.types import AgentSpec, TurnResult
from remuda.ui.terminal.live import PlainView

ROLLOUT, COPIES, UPDATES = 32, 4, 40
TREE = {
    "game": "learner.test_short_episodes:Short",
    "schedule": "sequential",
    "env": {"num_envs": COPIES},
    "policy": {
        "algorithm": "ppo",
        "network": {"hidden": (8,)},
        "ppo": {"rollout_length": ROLLOUT, "minibatches": 1, "epochs": 1},
    },
    "run": {"turns": ROLLOUT * COPIES * UPDATES, "evaluate_episodes": 0},  # of all copies
    "checkpoint": {"evaluate_episodes": 0},
}
KINDS = {
    "sequential": {},
    "async": {"schedule": "async", "actor": {"processes": 2}},
    "one copy": {"env": {"num_envs": 1}, "run": {"turns": ROLLOUT * UPDATES}},
    "recurrent": {"policy": {"network": {"recurrent": 4}}},
    "short rollouts": {
        "policy": {"ppo": {"rollout_length": 8}},
        "run": {"turns": 8 * COPIES * UPDATES},
    },
    "dealt": {
        "population": {"matchmaker": "self_play", "policies": 2, "snapshots": {"every": 4}},
    },
    "in turns": {"env": {"options": {"in_turns": True}}},
}
LENGTHS = {"one": (1,), "three": (3,), "mixed": (1, 2, 7, 40)}


def lengths_of(lengths):
    return {"env": {"options": {"lengths": lengths}}}


class Short(VectorEnv):
    """Two agents, in episodes of the given lengths in turn; they act together, or `in_turns`."""

    turn_groups = ((0, 1),)

    def __init__(self, num_envs=1, lengths=(2,), in_turns=False):
        self.num_envs, self._lengths, self._in_turns = num_envs, np.array(lengths), in_turns
        space = Box(0, 100, (1,), np.float32)
        self.agents = tuple(AgentSpec(f"agent_{i}", space, Discrete(2)) for i in range(2))
        self.active = np.zeros((num_envs, 2), np.bool_)
        self._turn = np.zeros(num_envs, np.int64)
        self._episode = np.arange(num_envs)

    def reset(self, seeds, mask):
        self._turn[mask] = 0
        self._episode[mask] += 1
        self._let_act(mask)

    def begin_turn(self):
        pass

    def observe(self, agent, out):
        out[:, 0] = self._turn

    def act(self, agent, actions):
        pass

    def end_turn(self):
        self._turn += 1
        over = self._turn >= self._lengths[self._episode % len(self._lengths)]
        self.active[...] = False
        self._let_act(~over)
        ended = np.repeat(over[:, None], 2, axis=1)
        cut = ended & (self._episode % 2 == 0)[:, None]
        return TurnResult(np.ones((self.num_envs, 2), np.float32), ended & ~cut, cut)

    def _let_act(self, copies):
        self.active[copies] = True
        if self._in_turns:
            # Agent 1 acts in one turn of three.
            later = (self._turn + self._episode) % 3 == 0
            self.active[copies, 0], self.active[copies, 1] = ~later[copies], later[copies]


def trained(tmp_path, *trees):
    tree = overlay(TREE, {"run": {"directory": str(tmp_path / "run")}})
    for other in trees:
        tree = overlay(tree, other)
    config = load_config(tree)
    return config, train(config, PlainView()).record.policies


QUICK = {("sequential", "one"), ("in turns", "mixed")}


@pytest.mark.process
@pytest.mark.parametrize(
    ("kind", "lengths"),
    [
        pytest.param(kind, lengths, marks=() if (kind, lengths) in QUICK else pytest.mark.slow)
        for kind in KINDS
        for lengths in LENGTHS
    ],
)
def test_a_run_makes_as_many_updates_as_its_rollouts_are_set_to(kind, lengths, tmp_path):
    """One-step episodes ended rollouts early: 166 updates where 19 are set."""
    config, policies = trained(tmp_path, KINDS[kind], lengths_of(LENGTHS[lengths]))
    check_updates(config, policies)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("kind", ["sequential", "dealt"])
@pytest.mark.parametrize("game", ["kuhn_poker", "rock_paper_scissors"])
def test_updates_in_games_of_short_episodes(game, kind, tmp_path):
    check_updates(*trained(tmp_path, KINDS[kind], {"game": game}))


def check_updates(config, policies):
    rollout = config.policy.ppo.rollout_length * config.env.num_envs
    assert sum(policy.steps for policy in policies.values()) > 0.9 * config.run.turns
    for policy in policies.values():
        expected = policy.steps / rollout
        # The last rollout is still open, and with uneven streams so are their segments.
        assert abs(policy.updates - expected) <= max(0.05 * expected, 1.0)
        assert policy.lost == 0
        assert policy.trained == pytest.approx(policy.updates * rollout, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("recurrent", [0, 4])
@pytest.mark.parametrize("length", [1, 2, 60])
def test_a_run_holds_its_capacity(length, recurrent, tmp_path):
    policy = {
        "algorithm": "dqn",
        "network": {"recurrent": recurrent},
        "experience": {"capacity": 4_000, "segment_length": 20, "replay_ratio": 0.01},
    }
    turns = {"run": {"turns": 9_600}}
    _, policies = trained(tmp_path, {"policy": policy}, turns, lengths_of((length,)))
    for policy in policies.values():
        assert policy.replay_fill > 0.95


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("kind", ["sequential", "dealt"])
def test_kuhn_poker_fills_the_memory(kind, tmp_path):
    """2,934 of 100,000 steps were held: each segment had one episode."""
    experience = {"capacity": 4_000, "segment_length": 20, "replay_ratio": 0.01}
    policy = {"algorithm": "iqn", "experience": experience}
    tree = {"game": "kuhn_poker", "policy": policy, "run": {"turns": 24_000}}
    _, policies = trained(tmp_path, KINDS[kind], tree)
    for policy in policies.values():
        assert policy.steps > 5_000
        assert policy.replay_fill > 0.95
