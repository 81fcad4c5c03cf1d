"""Where an agent ends an episode and is in another at once, the two are told apart everywhere."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from gymnasium import spaces

from envs.adapters.test_joining import GAMES, Scheduled
from envs.test_pettingzoo_export import Away
from faulty_games import actor_of
from remuda.envs.adapters.aec import AECCopies
from remuda.envs.contract import VectorEnvContract
from remuda.envs.description import EnvSpec
from remuda.envs.pettingzoo_export import AECGame, ParallelGame
from remuda.envs.recorded import Recorded
from remuda.solvers.exploit.game import AgainstTargets
from remuda.solvers.exploit.target import make_target
from remuda.types import TurnResult
from remuda.ui.play.playing import episode

PASSED = "back at once, its group passed"
NAMES = {"a": 0, "b": 1, "c": 2}
WHO = [(PASSED, "b"), ("back at once, its group to come", "c")]


def game(name=PASSED, cut=False):
    return Scheduled(**GAMES[name], cut=cut)


def later():
    return game("selected later")


@pytest.mark.parametrize("make", ["game", "later"])
def test_an_oracle_s_episode_ends_once(make, tmp_path):
    """Red before: it played on in its agent's next episode while the other games went on.

    In the game of `later` the agent dies before it acts, so it has no return.
    """
    path = f"{__name__}:{make}"
    make_target(EnvSpec.of(path, {}), {"one": ("random",) * 3}).save(tmp_path / "t")
    found = {}
    for seats in ([1, 0], [1]):
        targets = [str(tmp_path / "t")] * len(seats)
        actor = actor_of(AgainstTargets(1, targets=targets, seats=seats))
        returns = []
        actor.on_episode = lambda copy, each, metrics, to=returns: to.append(float(each[0]))
        for _ in range(30):
            actor.turn()
        found[len(seats)] = returns[0] if returns else math.nan
    assert found[2] == pytest.approx(found[1], abs=0.0, nan_ok=True)
    assert math.isnan(found[1]) == (make == "later")


class Masked(Scheduled):
    """Action 0 is never allowed."""

    def observation_space(self, agent):
        mask = spaces.Box(0, 1, (2,), np.int8)
        return spaces.Dict(observation=super().observation_space(agent), action_mask=mask)

    def observe(self, agent):
        return {"observation": super().observe(agent), "action_mask": np.array([0, 1], np.int8)}

    def step(self, action):
        name = self.agent_selection
        assert action == 1 or self.terminations[name] or self.truncations[name]
        super().step(action)


class Summed(Scheduled):
    """What is seen tells what was done: the sum of all actions."""

    def reset(self, seed=None, options=None):
        self.sum = 0.0
        super().reset(seed, options)

    def observe(self, agent):
        return np.array([self.sum], np.float32)

    def step(self, action):
        self.sum += float(action or 0)
        super().step(action)


def summed():
    return Summed(**GAMES[PASSED])


class TestOraclesWhoseSeatsPlayOn(VectorEnvContract):
    """Red before: what an oracle that was not there chose was seen by the others."""

    def make(self, num_envs):
        with TemporaryDirectory() as place:
            path = Path(place, "target")
            make_target(EnvSpec.of(f"{__name__}:summed", {}), {"one": ("random",) * 3}).save(path)
            return AgainstTargets(num_envs, targets=[str(path)] * 3, seats=[0, 1, 2])


del VectorEnvContract  # it is no test


def masked():
    return Masked(**GAMES[PASSED])


@pytest.mark.parametrize("seats", [[1, 0], [1, 1, 0]], ids=str)
def test_a_seat_that_plays_on_after_its_oracle_s_episode_does_what_is_allowed(seats, tmp_path):
    """Red before: what the oracle that is not there chose was done in its agent's next episode."""
    path = tmp_path / "t"
    make_target(EnvSpec.of(f"{__name__}:masked", {}), {"one": ("random",) * 3}).save(path)
    env = AgainstTargets(1, targets=[str(path)] * len(seats), seats=seats)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    turns = 0
    while env.active.any():
        env.begin_turn()
        for agent in range(len(seats)):
            env.act(agent, env.active[:, agent].astype(np.int64))
        result = env.end_turn()
        assert np.array_equal(env.rewards_so_far, result.rewards)
        turns += 1
    assert turns == 7


def test_what_an_exploiter_was_given_so_far_is_of_its_own_episode(tmp_path):
    """Red before: its seat's rewards were there too, of the next episode."""
    make_target(EnvSpec.of(f"{__name__}:game", {}), {"one": ("random",) * 3}).save(tmp_path / "t")
    env = AgainstTargets(1, targets=[str(tmp_path / "t")], seats=[1])
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    given = []
    for _ in range(4):
        env.begin_turn()
        env.act(0, np.zeros(1, np.int64))
        assert np.array_equal(env.end_turn().rewards, env.rewards_so_far)
        given.append(float(env.rewards_so_far[0, 0]))
    assert given == [3.0, 1.0, 0.0, 0.0]


def test_recorded_frames_are_those_of_one_episode():
    """Red before: the first of the next had the last of the old beside it."""
    env = Recorded(AECCopies(game), 0, states=50, frames=2)
    env.start()
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    observed = np.zeros((1, 1), np.float32)
    for _ in range(3):
        env.begin_turn()
        for (agent,) in env.turn_groups:
            env.observe(agent, observed)
            env.act(agent, np.zeros(1, np.int64))
        env.end_turn()
    assert env.observed([1]).observations[..., 0].tolist() == [[0, 1], [0, 5]]


@pytest.mark.parametrize(("name", "who"), WHO)
@pytest.mark.parametrize("cut", [False, True])
def test_an_exported_game_shows_the_last_of_the_episode_that_has_ended(name, who, cut):
    """Red before, cut off and back at once: it showed the first of the next one."""

    def last_of(env):
        env.reset(seed=0)
        found = []
        for each in env.agent_iter(14):
            seen, _, terminated, truncated, _ = env.last()
            if each == who and (terminated or truncated):
                found.append(float(seen[0]))
            env.step(None if terminated or truncated else 0)
        return found[:1]

    if not cut:  # what one has seen who dies is of no use, and PettingZoo's own may show anything
        assert last_of(AECGame(AECCopies(lambda: game(name))))
        return
    exported = AECGame(AECCopies(lambda: game(name, cut=True)))
    assert last_of(exported) == last_of(game(name, cut=True))


def test_a_parallel_game_shows_who_has_ended_what_was_at_its_end():
    """Red before: what the next turn had begun with."""

    class Counted(Away):
        """Counts beginnings too; Bob is cut off in the first turn, and Ann plays on."""

        can_observe_together = True

        def reset(self, seeds, mask):
            self.begun = 0
            super().reset(seeds, mask)

        def begin_turn(self):
            self.begun += 1

        def observe(self, agent, out):
            out[...] = self.begun

        def end_turn(self):
            self.turn += 1
            nothing, cut = np.zeros((1, 2), np.float32), np.zeros((1, 2), bool)
            cut[0, 1] = self.turn == 1
            self.active[0, 1] = False
            return TurnResult(nothing, np.zeros_like(cut), cut)

    env = ParallelGame(Counted())
    env.reset(seed=0)
    seen, *_ = env.step({"ann": 0, "bob": 0})
    assert (seen["bob"].item(), seen["ann"].item()) == (1, 2)


class Counts:
    """How often it was asked in this episode, at each time that it is."""

    def __init__(self, agent):
        self.agent, self.asked, self.told = agent, 0, []

    def begin(self):
        self.asked = 0

    def __call__(self, env, agent, observations, random):
        if env.active[0, agent]:
            self.asked += 1
            self.told.append(self.asked)
        return np.zeros(1, np.int64)


def test_who_is_watched_forgets_with_the_end_of_its_episode():
    """Red before: recurrent policies and frames went on, unlike in training."""
    seats = [Counts(agent) for agent in range(3)]
    list(episode(AECCopies(game), seats, 4, 0))
    assert seats[1].told[:2] == [1, 1]
    assert seats[0].told[:3] == [1, 2, 3]
