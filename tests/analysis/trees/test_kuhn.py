"""Kuhn poker worked out exactly, against what is known of it."""

import numpy as np
import pytest

from remuda.analysis.trees.kuhn import VALUE, average, exploitability, strategies, value
from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.policies.stack import layout_size
from remuda.population.specs import policy_specs


def equilibrium(alpha):
    """Kuhn's family: player 0 bluffs with the jack by alpha, and bets the king by 3 alpha."""
    first = np.array([[alpha, 0.0], [0.0, alpha + 1 / 3], [3 * alpha, 1.0]])
    second = np.array([[1 / 3, 0.0], [0.0, 1 / 3], [1.0, 1.0]])
    return first, second


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1 / 3])
def test_equilibria_cannot_be_exploited_and_have_the_value_of_the_game(alpha):
    assert value(*equilibrium(alpha)) == pytest.approx(VALUE)
    assert exploitability(*equilibrium(alpha)) == pytest.approx(0.0, abs=1e-12)


def test_by_hand():
    never, always = np.zeros((3, 2)), np.ones((3, 2))
    assert value(always, always) == pytest.approx(0.0)  # the higher card takes two from the other
    assert value(always, never) == pytest.approx(1.0)
    assert value(never, always) == pytest.approx(-1.0)
    # Against one who never bets, betting always earns 1; either way round.
    assert exploitability(never, never) == pytest.approx(1.0)


def test_an_average_plays_like_one_drawn_for_each_game():
    random = np.random.default_rng(0)
    firsts, seconds = random.random((5, 3, 2)), random.random((5, 3, 2))
    first, second = average(list(firsts), list(seconds))
    expected = np.mean([value(a, b) for a in firsts for b in seconds])
    assert value(first, second) == pytest.approx(expected)


def test_strategies_of_a_policy():
    config = load_config({"game": "kuhn_poker", "policy": {"algorithm": "ppo"}})
    spec = policy_specs(config, make_env("kuhn_poker", 1).agents)[0]
    size = layout_size(spec.network().shapes)
    first, second = strategies(spec, np.zeros(size, np.float32))
    assert np.allclose(first, 0.5)
    assert np.allclose(second, 0.5)
