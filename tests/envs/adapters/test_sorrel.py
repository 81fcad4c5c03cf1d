"""Sorrel games: the game's own loop stays in charge, and policies of Remuda act in its agents."""

import random

import numpy as np
import pytest

from refusals import refuses
from remuda.envs.adapters.sorrel import SorrelCopies
from remuda.envs.contract import VectorEnvContract
from remuda.errors import ContractError
from sorrel_double import Berries, Berry, Environment, berries


class TestBerries(VectorEnvContract):
    def make(self, num_envs):
        return SorrelCopies(berries, num_envs)


def keep(game, games):
    games.append(game)
    return game


def test_the_game_s_own_loop_plays_as_it_would_alone():
    """The same random numbers and actions: the same world, turn by turn."""
    games = []
    env = SorrelCopies(lambda: keep(berries(), games), 2, max_turns=30)
    env.reset(np.array([3, 4]), np.ones(2, bool))
    copy = games[0]

    alone = berries(max_turns=30)
    np.random.seed(0)
    np.random.set_state(np.random.RandomState(np.random.MT19937(3)).get_state())
    chosen = []
    for agent in alone.agents:
        agent.model.take_action = lambda state: chosen.pop(0)
    alone.reset()
    drawn = np.random.default_rng(1).integers(0, 2, (29, 3))
    for actions in drawn:
        env.begin_turn()
        seen = np.zeros((2, 27), np.float32)
        for agent, action in enumerate(actions):
            assert env.active[0].tolist() == [i == agent for i in range(3)]
            env.observe(agent, seen)
            env.act(agent, np.array([action, 0]))
        rewards = env.end_turn().rewards[0]
        chosen = actions.tolist()
        alone.take_turn()
        assert rewards.tolist() == [reward for _, reward, _ in alone.turn_stats]
        where = [agent.location for agent in alone.agents]
        assert [agent.location for agent in copy.agents] == where
    assert copy.turn_stats == alone.turn_stats
    assert alone.world.total_reward != 0


def test_an_episode_is_cut_off_by_the_adapter_and_ended_by_the_game():
    games = []
    env = SorrelCopies(lambda: keep(berries(), games), 1, max_turns=4)
    env.reset(np.array([0]), np.ones(1, bool))
    for turn in range(4):
        env.begin_turn()
        for agent in range(3):
            env.act(agent, np.array([0]))
        result = env.end_turn()
        assert result.truncated.all() == (turn == 3)
        assert not result.terminated.any()
    assert not env.active.any()
    last = np.zeros((1, 27), np.float32)
    env.observe(1, last)
    assert (last == games[0].agents[1].pov(games[0].world)).all()

    class EndsWithABerry(Berries):
        def take_turn(self, epoch=0):
            super().take_turn(epoch)
            self.world.is_done = any(isinstance(e, Berry) for e in self.world.map[0])

    def game():
        made = berries()
        made.__class__, made.stop_if_done = EndsWithABerry, True
        return made

    env = SorrelCopies(game, 1, max_turns=1000)
    env.reset(np.array([0]), np.ones(1, bool))
    while env.active.any():
        env.begin_turn()
        for agent in range(3):
            env.act(agent, np.array([0]))
        result = env.end_turn()
    assert result.terminated.all()
    assert not result.truncated.any()


def test_a_world_that_is_done_in_its_last_turn_has_ended():
    """Red before: it was cut off."""

    class EndsInTurnFour(Berries):
        def take_turn(self, epoch=0):
            super().take_turn(epoch)
            self.world.is_done = self.turn == 4

    for max_turns, stops, ends in ((4, True, True), (5, True, True), (4, False, False)):

        def game(stops=stops):
            made = berries()
            made.__class__, made.stop_if_done = EndsInTurnFour, stops
            return made

        env = SorrelCopies(game, 1, max_turns=max_turns)
        env.reset(np.array([0]), np.ones(1, bool))
        for _ in range(4):
            env.begin_turn()
            for agent in range(3):
                env.act(agent, np.array([0]))
            result = env.end_turn()
        assert result.terminated.all() == ends
        assert result.truncated.all() == (not ends)


def test_an_agent_that_the_game_passes_over_does_not_act():
    class Lazy(Berries):
        def take_turn(self, epoch=0):
            everybody = self.agents
            self.agents = everybody if self.turn % 2 else everybody[:2]
            Environment.take_turn(self, epoch)
            self.agents = everybody

    def game():
        made = berries()
        made.__class__ = Lazy
        return made

    env = SorrelCopies(game, 1)
    env.reset(np.array([0]), np.ones(1, bool))
    acted = []
    for _ in range(6):
        env.begin_turn()
        row = []
        for agent in range(3):
            row.append(bool(env.active[0, agent]))
            env.act(agent, np.array([0]))
        env.end_turn()
        acted.append(row)
    assert acted == [[True, True, False], [True, True, True]] * 3


def test_a_game_may_make_its_agents_anew():
    class Renewed(Berries):
        def reset(self):
            self.setup_agents()
            super().reset()

    def game():
        made = berries()
        made.__class__ = Renewed
        return made

    env = SorrelCopies(game)
    for seed in range(2):
        env.reset(np.array([seed]), np.ones(1, bool))
        assert env.active[0].tolist() == [True, False, False]
        env.act(0, np.array([0]))
        assert env.active[0].tolist() == [False, True, False]


def test_nobody_else_s_random_numbers_are_touched():
    np.random.seed(7)
    random.seed(7)
    before = np.random.random(3).tolist(), random.random()
    np.random.seed(7)
    random.seed(7)
    env = SorrelCopies(berries, 2)
    env.reset(np.array([1, 2]), np.ones(2, bool))
    env.begin_turn()
    env.act(0, np.zeros(2, np.int64))
    assert (np.random.random(3).tolist(), random.random()) == before


def test_what_is_no_game_is_refused():
    with refuses(ContractError):
        SorrelCopies(dict)

    class Stacks(Berries):
        def setup_agents(self):
            super().setup_agents()
            for agent in self.agents:
                agent.get_action = lambda state, a=agent: a.model.take_action(np.tile(state, 2))

    def game():
        made = berries()
        made.__class__ = Stacks
        made.setup_agents()
        made.reset()
        return made

    env = SorrelCopies(game)
    with refuses(ContractError):
        env.reset(np.array([0]), np.ones(1, bool))


def test_a_fault_in_the_game_is_not_swallowed():
    class Breaks(Berries):
        def take_turn(self, epoch=0):
            super().take_turn(epoch)
            raise ZeroDivisionError("in the game")

    def game():
        made = berries()
        made.__class__ = Breaks
        return made

    env = SorrelCopies(game)
    env.reset(np.array([0]), np.ones(1, bool))
    env.act(0, np.array([0]))
    env.act(1, np.array([0]))
    with pytest.raises(ZeroDivisionError):
        env.act(2, np.array([0]))


class StandsStill(Berries):
    """Its agents act in the first turn alone, and it counts no turns."""

    def take_turn(self, epoch=0):
        if not self.turn:
            super().take_turn(epoch)


def test_a_game_that_stands_still_is_refused():
    """Red before: it was asked for turns for ever."""

    def game():
        made = berries()
        made.__class__ = StandsStill
        return made

    env = SorrelCopies(game, 1)
    env.reset(np.array([0]), np.ones(1, bool))
    env.begin_turn()
    with refuses(ContractError):
        for agent in range(3):
            env.act(agent, np.array([0]))
        env.end_turn()
