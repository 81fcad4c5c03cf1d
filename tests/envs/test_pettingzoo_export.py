"""Games for other libraries, and theirs here, where agents are away, join and come back."""

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.utils.conversions import aec_to_parallel

from refusals import refuses
from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.pettingzoo_export import AECGame, ParallelGame, aec_env
from remuda.envs.vector_env import VectorEnv
from remuda.errors import UsageError
from remuda.types import AgentSpec, TurnResult


class Away(VectorEnv):
    """Ann sits out the second turn, in which she earns 5, and may end in it."""

    turn_groups, num_envs = ((0, 1),), 1

    def __init__(self, ends=False):
        sees = spaces.Box(0, 9, (1,), np.float32)
        self.agents = tuple(AgentSpec(name, sees, spaces.Discrete(2)) for name in ("ann", "bob"))
        self.active, self.ends = np.zeros((1, 2), bool), ends

    def reset(self, seeds, mask):
        self.turn, self.active[:] = 0, True

    def begin_turn(self):
        """Nothing moves by itself."""

    def observe(self, agent, out):
        out[...] = self.turn

    def act(self, agent, actions):
        """Nothing comes of it."""

    def end_turn(self):
        self.turn += 1
        rewards, ended = np.zeros((1, 2), np.float32), np.zeros((1, 2), bool)
        self.active[0, 0] = self.turn != 1 and not (self.ends and self.turn == 2)
        if self.turn == 2:
            rewards[0], ended[0, 0] = (5, 1), self.ends
        return TurnResult(rewards, ended, np.zeros_like(ended))


def test_what_is_earned_by_who_is_away_is_paid_when_it_is_back():
    """Red before: it was lost."""
    game = ParallelGame(Away())
    game.reset(seed=0)
    _, rewards, *_ = game.step({"ann": 0, "bob": 0})
    assert (game.agents, rewards) == (["bob"], {"ann": 0.0, "bob": 0.0})
    seen, rewards, ends, cut, _ = game.step({"bob": 0})
    assert game.agents == ["ann", "bob"]
    assert set(seen) == {"ann", "bob"}
    assert rewards == {"ann": 5.0, "bob": 1.0}
    assert ends == cut == {"ann": False, "bob": False}
    assert game.step({"ann": 0, "bob": 0})[1] == {"ann": 0.0, "bob": 0.0}


class Longer(Away):
    """She is back a turn later."""

    def end_turn(self):
        result = super().end_turn()
        self.active[0, 0] = self.turn not in (1, 2)
        return result


def test_it_is_paid_once_however_long_it_is_away():
    game = ParallelGame(Longer())
    game.reset(seed=0)
    paid = [game.step(dict.fromkeys(game.agents, 0))[1].get("ann") for _ in range(5)]
    assert paid == [0.0, None, 5.0, 0.0, 0.0]
    game.reset(seed=0)
    game.step({"ann": 0, "bob": 0})
    game.step({"bob": 0})
    game.reset(seed=0)  # what was owed in one episode is nobody's in the next
    assert game.step({"ann": 0, "bob": 0})[1]["ann"] == 0.0


def test_the_end_of_who_is_away_is_told():
    """Red before: nothing told that its episode was over."""
    game = ParallelGame(Away(ends=True))
    game.reset(seed=0)
    game.step({"ann": 0, "bob": 0})
    _, rewards, ends, cut, _ = game.step({"bob": 0})
    assert game.agents == ["bob"]
    assert rewards == {"ann": 5.0, "bob": 1.0}
    assert (ends, cut) == ({"ann": True, "bob": False}, {"ann": False, "bob": False})
    _, rewards, ends, *_ = game.step({"bob": 0})  # she begins an episode of her own
    assert (set(rewards), set(ends)) == ({"bob"}, {"bob"})


class Reborn(Away):
    """Ann ends an episode in the second turn, and is in another at once; each turn gives 1."""

    def end_turn(self):
        self.turn += 1
        ended = np.zeros((1, 2), bool)
        ended[0, 0] = self.turn == 2
        return TurnResult(np.ones((1, 2), np.float32), ended, np.zeros_like(ended))


def test_who_is_in_another_episode_at_once_is_paid_in_it():
    """Red before: she acted, and what she earned in the turn after the end was nobody's."""
    game = ParallelGame(Reborn())
    game.reset(seed=0)
    steps = [game.step({"ann": 0, "bob": 0}) for _ in range(4)]
    assert [rewards for _, rewards, *_ in steps] == [{"ann": 1.0, "bob": 1.0}] * 4
    assert [ends["ann"] for _, _, ends, *_ in steps] == [False, True, False, False]


@pytest.mark.parametrize("ends", [False, True])
def test_so_it_is_there_and_back(ends):
    env = ParallelCopies(lambda: ParallelGame(Away(ends)))
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    earned, ended = np.zeros(2), np.zeros(2, int)
    for _ in range(3):
        env.begin_turn()
        for agent in range(2):
            env.act(agent, np.zeros(1, np.int64))
        result = env.end_turn()
        earned += result.rewards[0]
        ended += result.terminated[0]
    assert (earned.tolist(), ended.tolist()) == ([5, 1], [int(ends), 0])


def test_a_game_of_moves_in_turn_is_not_taken_for_one_of_moves_at_once():
    """Red before: PettingZoo's conversion took it, and moves landed elsewhere."""
    assert not aec_env("connect_four").metadata["is_parallelizable"]
    assert aec_env("treasure_hunt").metadata["is_parallelizable"]
    with pytest.raises(AssertionError):
        aec_to_parallel(aec_env("connect_four"))


class Joins(AECEnv):
    """Bob joins by ann's first step, and is paid at once; he may leave, and come back so."""

    metadata = {"name": "joins", "render_modes": []}  # noqa: RUF012
    possible_agents, render_mode = ("ann", "bob"), None

    def observation_space(self, agent):
        return spaces.Box(-9, 9, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return np.array([self.turn], np.float32)

    def tell(self, **rewards):
        self.rewards = dict.fromkeys(self.agents, 0.0) | rewards
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {name: {} for name in self.agents}

    def reset(self, seed=None, options=None):
        self.turn, self.agents, self.agent_selection = 0, ["ann"], "ann"
        self.tell()

    def step(self, action):
        self.turn += 1
        if self.turn == 1:
            self.agents = ["ann", "bob"]
            self.tell(ann=1.0, bob=3.0)
        else:
            self.tell(ann=1.0, bob=1.0)
        self.agent_selection = "ann" if self.agent_selection == "bob" else "bob"


def test_who_joins_in_turn_earns_from_then_on():
    """Red before: what it earned before it was first selected was lost."""
    env = AECCopies(Joins)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    env.begin_turn()
    env.act(0, np.zeros(1, np.int64))
    env.act(1, np.zeros(1, np.int64))
    assert env.end_turn().rewards.tolist() == [[2.0, 4.0]]


@pytest.mark.parametrize("ends", [False, True])
def test_there_and_back_in_turn_nothing_is_lost(ends):
    env = AECCopies(lambda: AECGame(Away(ends)))
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    earned = np.zeros(2)
    for _ in range(4):
        env.begin_turn()
        for agent in range(2):
            if env.active[0, agent]:
                env.act(agent, np.zeros(1, np.int64))
        earned += env.end_turn().rewards[0]
    assert earned.tolist() == [5, 1]


@pytest.mark.parametrize("action", [2, -1, 0.5, np.array([0, 1]), None, np.nan, 2**64])
@pytest.mark.parametrize("exported", [ParallelGame, AECGame])
def test_an_action_outside_its_space_is_refused(exported, action):
    """Kernels of games do not check actions: it was looked up in memory beyond an array."""
    game = exported(Away())
    game.reset(seed=1)
    with refuses(UsageError, "ann"):
        game.step({"ann": action, "bob": 0} if exported is ParallelGame else action)


class Recorded(Away):
    def __init__(self, space):
        super().__init__()
        self.agents = tuple(AgentSpec(a.name, a.observation_space, space) for a in self.agents)

    def act(self, agent, actions):
        self.acted = actions


@pytest.mark.parametrize(
    ("space", "action", "expected"),
    [
        *((spaces.Discrete(2), one, [1]) for one in (1, np.array([1]), 1.0, True, np.int8(1))),
        (spaces.MultiDiscrete([3]), 2, [[2]]),
        (spaces.MultiDiscrete([3, 3]), np.array([2.0, 0.0]), [[2, 0]]),
    ],
)
@pytest.mark.parametrize("exported", [ParallelGame, AECGame])
def test_an_action_is_cast_to_its_space(exported, space, action, expected):
    """Red before: all but 1 and a numpy integer were refused."""
    made = Recorded(space)
    game = exported(made)
    game.reset(seed=1)
    game.step({"ann": action} if exported is ParallelGame else action)
    assert made.acted.dtype == space.dtype
    assert made.acted.tolist() == expected


def test_an_action_of_an_inactive_agent_is_ignored():
    """Red before: it was checked, and refused."""
    game = ParallelGame(Away())
    game.reset(seed=0)
    game.step({"ann": 0, "bob": 0})
    assert game.agents == ["bob"]
    game.step({"ann": 9, "bob": 0})
