"""A return exists only for an agent that took part in the episode: in training and evaluation."""

import math
import warnings

import numpy as np
import pytest

import remuda
from absent_agents import RETURNS, TURNS, Empty, Guests, InTurn, Parallel
from refusals import refuses
from remuda.actor.actor import Actor
from remuda.actor.fixed_seats import FixedSeats
from remuda.actor.make_seats import make_seats
from remuda.config import load_config
from remuda.errors import ContractError
from remuda.population.specs import policy_specs
from remuda.system.scoreboard import Scoreboard
from remuda.types import TurnResult

SMALL = {"network": {"hidden": [8]}, "experience": {"segment_length": 8}}
ALGORITHMS = ("ppo", "dqn", "iqn")


def trained(tmp_path, game, algorithm="dqn", **settings):
    # One record of all episodes: the least and the greatest return are of one interval.
    run = {"turns": 600, "directory": str(tmp_path / "run"), "log_every": 3600.0}
    run |= {"evaluate_episodes": 12}
    settings = {
        "env": {"num_envs": 4},
        "policy": SMALL | {"algorithm": algorithm},
        "schedule": "sequential",
        "run": run | settings.pop("run", {}),
        **settings,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return remuda.train(game, **settings)


@pytest.mark.slow_cases("iqn", "ppo")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_on_fixed_seats_each_return_is_of_an_agent_that_took_part(tmp_path, algorithm):
    """A guest that earns 10 in half of the episodes was said to earn 5.29."""
    result = trained(tmp_path, Guests, algorithm)
    found = result.evaluation
    assert len(found.returns) == 12
    for i, name in enumerate(found.agents):
        policy, expected = result.record.policies[name], RETURNS[name]
        assert policy.mean_return == expected
        assert policy.return_min == policy.return_max == expected
        assert (policy.episodes == 0) == (expected is None)
        if expected is None:
            assert np.isnan(found.filled_returns[:, i]).all()
            assert math.isnan(found.mean(i))
            assert math.isnan(found.standard_error(i))
        else:
            assert found.mean(i) == expected
            assert found.standard_error(i) == 0.0
    guest, host = result.record.policies["guest"], result.record.policies["host"]
    assert guest.episodes == pytest.approx(host.episodes / 2, abs=4)
    assert 3 <= found.returns[:, 2].count() <= 9
    assert not np.ma.getmaskarray(found.returns[:, :2]).any()
    assert found.returns.mean(0).tolist() == [4.0, 8.0, 10.0, None]
    told = found.as_summary()["agents"]
    assert told["guest"]["mean"] == 10.0
    assert told["ghost"] == {"mean": None, "standard_error": None, "episodes": 0}


@pytest.mark.slow_cases("dqn-Parallel", "ppo-InTurn", "ppo-Parallel")
@pytest.mark.parametrize("make", [Parallel, InTurn])
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_episodes_that_are_over_when_they_begin_give_nobody_a_return(tmp_path, make, algorithm):
    result = trained(tmp_path, make, algorithm)
    returns = result.evaluation.filled_returns
    assert len(returns) == 12
    assert np.unique(returns[:, 0]).tolist() == [4.0]
    assert np.unique(returns[~np.isnan(returns[:, 1]), 1]).tolist() == [10.0]
    policies = result.record.policies
    assert [policies[name].mean_return for name in ("host", "guest")] == [4.0, 10.0]


def test_an_environment_whose_episodes_are_all_over_when_they_begin_is_told(tmp_path):
    with refuses(ContractError):
        trained(tmp_path, Empty, run={"turns": 10_000})


def test_who_took_part_is_saved_in_mid_episode(tmp_path):
    """An agent that acted and is out when its episode is saved keeps its return there."""

    def actor():
        env = Leaves()
        config = load_config({"policy": {"network": {"hidden": [8]}}})
        board = Scoreboard(tuple(agent.name for agent in env.agents))
        seats = make_seats(env, policy_specs(config, env.agents), board, seed=0, purpose="test")
        found = Actor(env, FixedSeats(env, seats), board.play(), np.random.default_rng(0))
        returns = []
        found.on_episode = lambda _, earned, episode_metrics: returns.append(earned.tolist())
        return found, returns

    (one, _), (other, returns) = actor(), actor()
    for _ in range(2):
        one.turn()
    other.restore("actor", one.state("actor"))
    for _ in range(2):
        other.turn()
    assert returns == [[4.0, 1.0]]


class Leaves(Guests):
    """The guest acts in the first turn alone, is paid 1 for it, and leaves."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs, ("host", "guest"), 0)

    def reset(self, seeds, mask):
        super().reset(seeds, mask)
        self.active[mask] = True

    def end_turn(self):
        super().end_turn()
        ends = self._turn == TURNS
        self.active[...] = ~ends[:, None] & ~self._guests
        first = (self._turn == 1)[:, None]
        rewards = np.where(self._guests, first, 1.0).astype(np.float32)
        terminated = (ends[:, None] & ~self._guests) | (first & self._guests)
        return TurnResult(rewards, terminated, np.zeros_like(terminated))
