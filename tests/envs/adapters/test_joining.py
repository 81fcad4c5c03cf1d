"""Agents of AEC environments that die and come back, or join: what they are paid, and when."""

from typing import ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

import remuda
from actor.played_games import PlayedHere
from actor.test_rewards import compare
from faulty_games import actor_of, play
from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.contract import VectorEnvContract
from remuda.envs.workers.pool import WorkerEnvs


class Scheduled(AECEnv):
    """Selects by a schedule of letters; everybody alive gets 1 at each act."""

    metadata: ClassVar = {"name": "scheduled", "render_modes": [], "is_parallelizable": False}
    possible_agents: ClassVar = ["a", "b", "c"]
    render_mode = None

    def __init__(self, order, begins="abc", dies=None, joins=None, cut=False):
        super().__init__()
        self.cut = cut
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
            (self.truncations if self.cut else self.terminations)[dead] = True
        later = [
            each
            for each in self.order[self.acts :]
            if each in self.agents and not (self.terminations[each] or self.truncations[each])
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
    "back at once, its group passed": {
        "order": "abcacbacbacb",
        "dies": {4: "b"},
        "joins": {5: "b"},
    },
    "back at once, its group to come": {
        "order": "abcabcabcabc",
        "dies": {4: "c"},
        "joins": {5: "c"},
    },
    "a first joiner": {"order": "ababab", "begins": "ab", "joins": {2: "c"}, "dies": {4: "c"}},
}


@pytest.mark.slow_cases(
    "a first joiner", "back at once, its group to come", "never selected", "plain", "selected later"
)
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


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    ("name", "agent"),
    [("back at once, its group passed", 1), ("back at once, its group to come", 2)],
)
def test_who_is_back_in_the_turn_that_ended_its_episode_acts_in_the_next(name, agent, cut):
    """Red before: refused as active after its end, or its first act was booked as that end."""
    env = AECCopies(lambda: Scheduled(**GAMES[name], cut=cut))
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    acted, observed = [], np.zeros((1, 1), np.float32)
    for turn in range(3):
        env.begin_turn()
        acted.append([])
        for (each,) in env.turn_groups:
            if env.active[0, each]:
                env.observe(each, observed)
                acted[turn].append((each, observed.item()))
            env.act(each, np.zeros(1, np.int64))
        result = env.end_turn()
        if turn == 1:
            alone = [each == agent for each in range(3)]
            assert (result.truncated if cut else result.terminated)[0].tolist() == alone
            assert not (result.terminated if cut else result.truncated).any()
            assert env.active[0].tolist() == alone
            env.observe(agent, observed)
            assert observed.item() == (4 if cut else agent)  # of the episode that has ended
    # It observes the world of its first act in its next episode once that turn has begun.
    assert agent not in [each for each, _ in acted[1]]
    assert acted[2] == [(agent, 5.0)]


@pytest.mark.parametrize(
    "game", ["back at once, its group passed", "back at once, its group to come"]
)
@pytest.mark.parametrize("policy", [{}, {"network": {"recurrent": 4}}])
def test_an_actor_plays_on_with_who_is_back_at_once(game, policy):
    """Red before, its group passed: refused."""
    play(actor_of(AECCopies(lambda: Scheduled(**GAMES[game]), 2), **policy))


class Masked(Scheduled):
    """Tells those alive what they may do, and the dead nothing."""

    def join(self, name):
        super().join(name)
        self.infos[name] = {"action_mask": np.array([1, 0], np.int8)}

    def step(self, action):
        super().step(action)
        for name, info in self.infos.items():
            if self.terminations[name] or self.truncations[name]:
                info.clear()


@pytest.mark.parametrize(
    "game", ["back at once, its group passed", "back at once, its group to come"]
)
def test_a_mask_is_not_asked_of_the_episode_that_was_cut_off(game):
    """Red without `_acting`: its mask was called missing."""
    env = AECCopies(lambda: Masked(**GAMES[game], cut=True))
    assert all(spec.masked for spec in env.agents)
    agent = "passed" not in game  # b or c
    played(env, turns=2)
    allowed = np.zeros((1, 2), bool)
    env.mask(1 + agent, allowed)
    assert allowed.tolist() == [[True, True]]  # it told none: it may do anything
    env.begin_turn()
    env.mask(1 + agent, allowed)
    assert allowed.tolist() == [[True, False]]


def back_at_once():
    return Scheduled(**GAMES["back at once, its group passed"])


@pytest.mark.slow
def test_copies_in_workers_may_return_at_once():
    env = WorkerEnvs(f"{__name__}:back_at_once", 2, 2)
    try:
        play(actor_of(env))
    finally:
        env.close()


class JoinsAtOnce(ParallelEnv):
    """`b` joins in step 2 and is paid 5 for it; it may die in step 3 and join again in step 5."""

    metadata: ClassVar = {"name": "joins_at_once", "render_modes": []}
    possible_agents: ClassVar = ["a", "b"]
    render_mode = None
    dies = True

    def observation_space(self, agent):
        return spaces.Box(-99, 99, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def tell(self, names, value):
        return dict.fromkeys(names, value)

    def reset(self, seed=None, options=None):
        self.agents, self.turn = ["a"], 0
        return self.tell(self.agents, np.zeros(1, np.float32)), self.tell(self.agents, {})

    def step(self, actions):
        self.turn += 1
        joins = self.turn == 2 or (self.dies and self.turn == 5)
        dead = {"b": self.dies and self.turn == 3, "a": False}
        everybody = ["a", "b"] if joins or "b" in self.agents else ["a"]
        rewards = self.tell(everybody, 1.0) | ({"b": 5.0} if joins else {})
        if self.dies and self.turn == 4:
            rewards["b"] = 100.0  # it is dead, and in no episode
        self.agents = [name for name in everybody if not dead[name]]
        over = self.turn == 6
        seen = self.tell(everybody, np.full(1, self.turn, np.float32))
        ends = {name: dead[name] for name in everybody}
        if over:
            self.agents = []
        return seen, rewards, ends, self.tell(everybody, over), self.tell(everybody, {})


class JoinsAndStays(JoinsAtOnce):
    dies = False


@pytest.mark.slow_cases("JoinsAndStays")
@pytest.mark.parametrize("make", [JoinsAtOnce, JoinsAndStays])
def test_the_contract_holds_of_those_who_join_at_once(make):
    class Suite(VectorEnvContract):
        def make(self, num_envs):
            return ParallelCopies(make, num_envs)

    suite = Suite()
    for name in dir(suite):
        if name.startswith("test_"):
            getattr(suite, name)()


@pytest.mark.parametrize(
    ("make", "given"), [(JoinsAtOnce, [0, 5, 1, 0, 5, 1]), (JoinsAndStays, [0, 5, 1, 1, 1, 1])]
)
def test_the_reward_of_the_step_in_which_an_agent_joins_counts(make, given):
    """Red before: it was lost."""
    env = ParallelCopies(make)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    rewards = []
    for _ in range(6):
        env.begin_turn()
        for agent in range(2):
            env.act(agent, np.zeros(1, np.int64))
        rewards.append(env.end_turn().rewards[0].copy())
    assert np.transpose(rewards).tolist() == [[1.0] * 6, given]


@pytest.mark.slow_cases(
    "population0-dqn-JoinsAtOnce-returns0",
    "population0-iqn-JoinsAndStays-returns1",
    "population0-iqn-JoinsAtOnce-returns0",
    "population0-ppo-JoinsAndStays-returns1",
    "population0-ppo-JoinsAtOnce-returns0",
    "population1-dqn-JoinsAndStays-returns1",
    "population1-dqn-JoinsAtOnce-returns0",
    "population1-iqn-JoinsAndStays-returns1",
    "population1-iqn-JoinsAtOnce-returns0",
    "population1-ppo-JoinsAndStays-returns1",
    "population1-ppo-JoinsAtOnce-returns0",
)
@pytest.mark.parametrize(("make", "returns"), [(JoinsAtOnce, [6, 12]), (JoinsAndStays, [6, 9])])
@pytest.mark.parametrize("algorithm", ["ppo", "mappo", "dqn", "iqn", "sac"])
@pytest.mark.parametrize("population", [{}, {"policies": 2, "matchmaker": "random"}])
def test_a_run_counts_the_reward_of_the_step_in_which_an_agent_joins(
    make, returns, algorithm, population, tmp_path
):
    """In training and in evaluation."""
    result = remuda.train(
        make,
        env={"num_envs": 2},
        policy={"algorithm": algorithm, "network": {"hidden": [4]}},
        population=population,
        schedule="sequential",
        run={"turns": 60, "directory": str(tmp_path / "run"), "evaluate_episodes": 2},
    )
    if not population:
        assert [result.evaluation.mean(agent) for agent in range(2)] == returns
        assert [each.mean_return for each in result.record.policies.values()] == returns


@pytest.mark.parametrize("make", [JoinsAtOnce, JoinsAndStays])
@pytest.mark.parametrize(("seats", "algorithm"), [("fixed", "dqn"), ("dealt", "ppo")])
def test_the_reward_of_the_step_in_which_an_agent_joins_is_in_no_transition(make, seats, algorithm):
    """No decision brought it about."""
    compare(PlayedHere(lambda: ParallelCopies(make, 3)), seats, algorithm, 3)
