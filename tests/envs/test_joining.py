"""Agents of AEC environments that die and come back, or join: what they are paid, and when."""

from typing import ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv

from remuda.envs.adapters.aec import AECCopies
from remuda.envs.contract import VectorEnvContract


class Scheduled(AECEnv):
    """Selects by a schedule of letters; everybody alive gets 1 at each act."""

    metadata: ClassVar = {"name": "scheduled", "render_modes": [], "is_parallelizable": False}
    possible_agents: ClassVar = ["a", "b", "c"]
    render_mode = None

    def __init__(self, order, begins="abc", dies=None, joins=None):
        super().__init__()
        self.order, self.begins = order, begins
        self.dies, self.joins = dies or {}, joins or {}

    def observation_space(self, agent):
        return spaces.Box(-99, 99, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return np.array([self.acts], np.float32)

    def reset(self, seed=None, options=None):
        self.acts, self.agents, self.infos = 0, [], {}
        self.rewards, self._cumulative_rewards = {}, {}
        self.terminations, self.truncations = {}, {}
        self._skip_agent_selection = None
        for name in self.begins:
            self.join(name)
        self.agent_selection = self.order[0]

    def join(self, name):
        if name not in self.agents:
            self.agents.append(name)
            self.rewards[name] = self._cumulative_rewards[name] = 0.0
            self.terminations[name] = self.truncations[name] = False
            self.infos[name] = {}

    def step(self, action):
        name = self.agent_selection
        if self.terminations[name] or self.truncations[name]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[name] = 0.0
        self.acts += 1
        for joiner in self.joins.get(self.acts, ""):
            self.join(joiner)
        self.rewards = dict.fromkeys(self.agents, 1.0)
        for dead in self.dies.get(self.acts, ""):
            self.terminations[dead] = True
        later = [
            each
            for each in self.order[self.acts :]
            if each in self.agents and not self.terminations[each]
        ]
        if later:
            self.acts = self.order.index(later[0], self.acts)
            self.agent_selection = later[0]
        else:
            for each in self.agents:
                self.truncations[each] = not self.terminations[each]
        self._accumulate_rewards()
        self._deads_step_first()


def played(env, turns=8):
    """Rewards and ends of each turn, [turns, agents]."""
    env.reset(np.zeros(env.num_envs, np.int64), np.ones(env.num_envs, bool))
    rewards, ended = [], []
    while env.active.any() and len(rewards) < turns:
        env.begin_turn()
        for (agent,) in env.turn_groups:
            env.act(agent, np.zeros(env.num_envs, np.int64))
        result = env.end_turn()
        rewards.append(result.rewards[0].tolist())
        ended.append((result.terminated | result.truncated)[0].tolist())
    return np.array(rewards), np.array(ended)


GAMES = {
    "never selected": {"order": "acacacacac", "dies": {1: "b", 4: "b"}, "joins": {3: "b"}},
    "selected later": {"order": "acaccbacacac", "dies": {1: "b"}, "joins": {3: "b"}},
    "plain": {"order": "abcabc"},
    "a first joiner": {"order": "ababab", "begins": "ab", "joins": {2: "c"}, "dies": {4: "c"}},
}


@pytest.mark.parametrize("game", GAMES)
def test_the_contract_holds_of_those_who_die_and_come_back(game):
    """Red before: one that had died was paid, and ended again, before it was active again."""

    class Suite(VectorEnvContract):
        def make(self, num_envs):
            return AECCopies(lambda: Scheduled(**GAMES[game]), num_envs)

    suite = Suite()
    for name in dir(suite):
        if name.startswith("test_"):
            getattr(suite, name)()


def test_who_has_died_ends_once_unless_it_is_selected_again():
    rewards, ended = played(AECCopies(lambda: Scheduled(**GAMES["never selected"])))
    assert ended[:, 1].sum() == 1
    assert not rewards[1:, 1].any()
    rewards, ended = played(AECCopies(lambda: Scheduled(**GAMES["selected later"])))
    assert ended[:, 1].sum() == 2
    assert rewards[-1, 1] > 0


def test_a_first_joiner_is_paid_before_it_is_selected():
    rewards, ended = played(AECCopies(lambda: Scheduled(**GAMES["a first joiner"])))
    assert rewards[:, 2].sum() == 3
    assert ended[:, 2].sum() == 1
