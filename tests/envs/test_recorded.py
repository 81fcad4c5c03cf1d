"""What happens in a game is kept turn by turn, as it was."""

import itertools

import numpy as np
import pytest

from assembled import spec_of
from masked_games import Doors
from remuda.config import load_config
from remuda.envs.recorded import Recorded
from remuda.envs.registry import make_env
from remuda.evaluation.evaluate import evaluate, play_recorded
from remuda.evaluation.results import Limits
from remuda.policies.spec import first_weights
from remuda.population.specs import policy_specs
from remuda.publish.snapshot import Snapshot
from remuda.system.rng import torch_rng
from support import Tape


def play(env, turns, actions):
    seen = np.zeros((env.num_envs, 5), np.float32)
    for turn in range(turns):
        env.begin_turn()
        for agent in range(env.num_agents):
            env.observe(agent, seen)
            env.act(agent, np.full(env.num_envs, actions[turn][agent]))
        env.end_turn()
        env.reset(np.zeros(env.num_envs, np.int64), ~env.active.any(1))


def test_rewards_are_kept_by_turn_until_each_episode_ends():
    env = Recorded(Tape(2, lengths=(2, 3)), episodes=1, states=100)
    env.reset(np.zeros(2, np.int64), np.ones(2, np.bool_))
    env.start()
    play(env, 4, [(1, 2), (3, 0), (1, 1), (2, 2)])
    played = env.played()
    assert played.lengths.tolist() == [2, 3]
    assert played.rewards.tolist() == [[[1, 2], [3, 0], [0, 0]], [[1, 2], [3, 0], [1, 1]]]
    assert played.returns.tolist() == [[4, 2], [5, 3]]
    seen = env.observed([1])
    # Copy, agent, episode, turn and acts of this turn, of two copies in four turns.
    assert seen.observations.shape == (8, 1, 5)
    assert seen.observations[:, 0, 1].tolist() == [1.0] * 8
    assert seen.masks is None
    # The first copy began a second episode after two turns, the second after three.
    assert len(set(seen.episodes.tolist())) == 4
    assert len(env.observed([0, 1]).observations) == 16


def test_frames_are_those_of_the_same_episode_with_the_newest_last():
    env = Recorded(Tape(1, lengths=(3,)), episodes=0, states=10, frames=2)
    env.reset(np.zeros(1, np.int64), np.ones(1, np.bool_))
    env.start()
    play(env, 4, [(0, 0)] * 4)
    turns = env.observed([0]).observations[:, :, 3]
    episodes = env.observed([0]).observations[:, :, 2]
    assert turns.tolist() == [[0, 0], [0, 1], [1, 2], [0, 0]]
    assert episodes.tolist() == [[0, 0], [0, 0], [0, 0], [0, 1]]


def test_nothing_is_kept_before_the_start_and_no_more_than_was_asked_for():
    env = Recorded(Tape(1, lengths=(2,)), episodes=2, states=1)
    env.reset(np.zeros(1, np.int64), np.ones(1, np.bool_))
    play(env, 2, [(1, 1)] * 2)
    assert len(env.played().lengths) == 0
    assert env.observed([0]) is None
    env.start()
    play(env, 8, [(1, 1)] * 8)
    assert env.played().lengths.tolist() == [2, 2]
    assert len(env.observed([0]).observations) == 1


@pytest.mark.parametrize("game", ["kuhn_poker", "leduc_poker", "cleanup"])
def test_returns_and_facts_are_those_of_greedy_play(game):
    tree = {"game": game, "policy": {"algorithm": "ppo", "network": {"hidden": [8]}}}
    config = load_config(tree)
    specs = policy_specs(config, make_env(game, 1).agents)
    snapshots = {
        spec.name: Snapshot(first_weights(spec, torch_rng(0, spec.name)), 0, 0, 0.0)
        for spec in specs
    }
    found = play_recorded(spec_of(config), snapshots, 6, seed=3, states=20)
    wanted = evaluate(spec_of(config), snapshots, 6, seed=3)
    assert not found.cut
    assert found.asked == found.over == found.counted == 6
    played = found.played()
    np.testing.assert_allclose(played.returns, wanted.returns, rtol=1e-5, atol=1e-5)
    for name, told in wanted.episode_metrics.items():
        np.testing.assert_allclose(sorted(played.episode_metrics[name]), sorted(told))
    seen = found.game.observed([0])
    assert seen.observations.shape[2:] == specs[0].observation
    assert (seen.masks is not None) == specs[0].masked
    if seen.masks is not None:
        assert seen.masks.any(1).all()


@pytest.mark.parametrize("choices", [(4,), (2, 3)])
def test_masks_are_as_long_as_the_choices_are_many(choices):
    env = Recorded(Doors(2, choices), episodes=0, states=10)
    env.reset(np.zeros(2, np.int64), np.ones(2, np.bool_))
    env.start()
    seen, allowed = np.zeros((2, 5), np.float32), np.zeros((2, sum(choices)), np.bool_)
    env.begin_turn()
    env.observe(1, seen)
    env.mask(1, allowed)
    assert env.observed([1]).masks.tolist() == allowed.tolist()


class Uneven(Tape):
    """Every second copy never ends its later episodes; with `first` not even its first."""

    def __init__(self, num_envs=1, first=False):
        super().__init__(num_envs, lengths=(2,))
        self._endless = np.arange(num_envs) % 2 == 1
        self._first = first

    def reset(self, seeds, mask):
        super().reset(seeds, mask)
        self._lengths[mask & self._endless & (self._first | (self._episode > 0))] = 10**9


def play_until(monkeypatch, turns, episodes, **options):
    """Play of `Uneven` that is cut after so many turns."""
    asked = itertools.count()
    limits = Limits(interrupted=lambda: next(asked) >= turns)
    monkeypatch.setattr("remuda.evaluation.evaluate.Limits", lambda seconds: limits)
    tree = {
        "game": f"{__name__}:Uneven",
        "env": {"num_envs": 100, "options": options},
        "policy": {"algorithm": "ppo", "network": {"hidden": [8]}},
    }
    config = load_config(tree)
    specs = policy_specs(config, make_env(config.game, 1).agents)
    snapshots = {
        spec.name: Snapshot(first_weights(spec, torch_rng(0, spec.name)), 0, 0, 0.0)
        for spec in specs
    }
    return play_recorded(spec_of(config), snapshots, episodes, seconds=9.0)


def test_of_play_that_is_cut_each_copy_counts_as_often(monkeypatch):
    found = play_until(monkeypatch, 20, 300)
    assert found.cut
    # Of 100 copies half are over with all three of theirs, and half with the first alone.
    assert (found.asked, found.over, found.counted) == (300, 200, 100)
    assert found.played().lengths.tolist() == [2] * 100
    assert found.played().returns.shape == (100, 2)


def test_where_only_short_episodes_are_over_none_counts(monkeypatch):
    found = play_until(monkeypatch, 20, 300, first=True)
    assert (found.over, found.counted) == (150, 0)
    assert found.game.episodes_over.count(0) == 50
    assert len(found.played().returns) == 0
