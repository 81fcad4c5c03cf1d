"""Wrappers whose state outlasts episodes: refused or told, since no run saves it."""

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, TimeLimit
from pettingzoo.utils.wrappers import BaseParallelWrapper

from envs.test_costly_games import Monitored, Plain, Together, trained
from refusals import refuses
from remuda.envs.adapters.gymnasium import GymnasiumEnv
from remuda.errors import ConfigError


class Statistics:
    def __init__(self):
        self.n, self.mean, self.std = 0, 0.0, 1.0

    def update(self):
        self.n += 1


class OwnNorm(gymnasium.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.seen = Statistics()

    def observation(self, observation):
        self.seen.update()
        return observation


class TogetherNorm(BaseParallelWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.seen = Statistics()

    def step(self, actions):
        self.seen.update()
        return super().step(actions)


class Standardised(Plain):
    """An environment that normalises by itself."""

    def __init__(self):
        self.seen = Statistics()

    def step(self, action):
        self.seen.update()
        return super().step(action)


class Noisy(Plain):
    """Its noise has constants that are called as statistics are."""

    def __init__(self):
        self.noise = Statistics()


def notes_of(result):
    """Notes of a run without that it was too short for an update."""
    return [note for note in result.notes if "no update was made" not in note]


def frozen(env):
    made = NormalizeObservation(env)
    made.update_running_mean = False
    return made


def normalised():
    return NormalizeObservation(Plain())


@pytest.mark.parametrize(
    ("game", "wrappers"),
    [
        (Plain, [NormalizeObservation]),
        (Plain, [NormalizeReward, TimeLimit]),
        (Plain, [OwnNorm]),
        (normalised, []),
        (Standardised, []),
        (Together, [TogetherNorm]),
        ("gymnasium:CartPole-v1", ["gymnasium.wrappers:NormalizeObservation"]),
    ],
)
def test_running_statistics_are_refused(tmp_path, game, wrappers):
    """Red before: training returned 10.0, and the greedy evaluation 8.97, without a word."""
    if TimeLimit in wrappers:
        wrappers = [NormalizeReward, "gymnasium.wrappers:TimeLimit(max_episode_steps=3)"]
    with refuses(ConfigError):
        trained(game, tmp_path, env={"wrappers": wrappers})


def test_running_statistics_are_refused_if_the_first_copy_is_replaced(tmp_path):
    """Red before: a reset in mid-episode was refused, so no turns were played to find them."""
    with refuses(ConfigError):
        trained(Monitored, tmp_path, env={"wrappers": [NormalizeObservation]})


def test_running_statistics_of_a_library_are_refused_when_an_environment_is_made():
    """Red before: only `prepare` refused them, so exploiters accepted them."""
    with refuses(ConfigError):
        GymnasiumEnv(normalised)


def test_statistics_that_do_not_change_are_played(tmp_path):
    assert not notes_of(trained(Plain, tmp_path, env={"wrappers": [frozen]}))


def test_constants_with_the_names_of_statistics_are_played(tmp_path):
    """Red before: an environment with a noise of `mean`, `std` and `n` was refused."""
    assert not notes_of(trained(Noisy, tmp_path))


class Harder(gymnasium.Wrapper):
    """A curriculum that goes on from episode to episode."""

    level = 0

    def step(self, action):
        found = self.env.step(action)
        self.level = self.level + found[2]
        return found


class Counts(gymnasium.Wrapper):
    """What it keeps is of one episode."""

    def __init__(self, env):
        super().__init__(env)
        self.scale = np.ones(3)

    def reset(self, *, seed=None, options=None):
        self.steps, self.rewards = 0, []
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        found = self.env.step(action)
        self.steps += 1
        self.rewards.append(found[1])
        return found


@pytest.mark.slow_cases("async")
@pytest.mark.parametrize("schedule", ["sequential", "async"])
def test_state_of_ones_own_that_lasts_is_told(tmp_path, schedule):
    """Red before: nothing was told."""
    result = trained(Plain, tmp_path, env={"wrappers": [Counts, Harder]}, schedule=schedule)
    [note] = notes_of(result)
    assert "Harder.level" in note
    assert "Counts" not in note


def test_what_is_of_one_episode_is_not_told(tmp_path):
    assert not notes_of(trained(Plain, tmp_path, env={"wrappers": [Counts]}))
