"""Trained policies are measured exactly in games of runs that can be walked."""

import json

import numpy as np
import pytest
import torch

from remuda.analysis.trees.exact_play import exact_exploitability, walked_game
from remuda.analysis.trees.played_trees import TIC_TAC_TOE
from remuda.config import load_config
from remuda.envs.adapters.wrappers import WRAPPERS
from remuda.envs.games.kuhn_poker import KuhnPoker
from remuda.envs.games.leduc_poker import LeducPoker
from remuda.envs.games.matrix_games import rock_paper_scissors
from remuda.envs.registry import make_env
from remuda.policies.spec import first_weights
from remuda.population.specs import policy_specs


def player_of(game, weights=None, algorithm="ppo", **policy):
    """A policy of a game; `weights`: the biases of its last layer, all else being 0."""
    config = load_config({"game": game, "policy": {"algorithm": algorithm, **policy}})
    spec = policy_specs(config, make_env(game, 1).agents)[0]
    drawn = first_weights(spec, torch.Generator().manual_seed(0))
    if weights is None:
        return spec, drawn
    flat, at = np.zeros_like(drawn), 0
    for name, shape in spec.network().shapes.items():
        size = int(np.prod(shape))
        if name == "policy.bias":
            flat[at : at + size] = weights
        at += size
    return spec, flat


def test_rock_paper_scissors_is_that_of_the_matrix():
    walked = walked_game("rock_paper_scissors", make_env("rock_paper_scissors", 1))
    # Logarithms of (1/2, 1/4, 1/4): paper earns 1/2 - 1/4 against it, on either seat.
    biased = player_of("rock_paper_scissors", np.log([0.5, 0.25, 0.25]))
    uniform = player_of("rock_paper_scissors", np.zeros(3))
    found = exact_exploitability(walked, {"biased": [biased] * 2, "uniform": [uniform] * 2})
    assert found.found["biased"].nash_conv == pytest.approx(0.5, abs=1e-6)
    assert found.found["biased"].exploitability == pytest.approx(0.25, abs=1e-6)
    assert found.found["uniform"].nash_conv == pytest.approx(0.0, abs=1e-6)
    assert found.in_words().startswith("uniform has exploitability ")
    assert "biased has the most, 0.25" in found.in_words()
    json.dumps(found.as_summary(), allow_nan=False)


def test_uniform_play_of_kuhn_poker_has_the_known_value():
    walked = walked_game("kuhn_poker", make_env("kuhn_poker", 1))
    spec, drawn = player_of("kuhn_poker")
    found = exact_exploitability(walked, {"uniform": [(spec, np.zeros_like(drawn))] * 2})
    assert found.found["uniform"].nash_conv == pytest.approx(11 / 12, abs=1e-6)


def test_uniform_play_of_leduc_poker_has_the_known_value():
    """Half of its NashConv of 4.747222, as OpenSpiel has it too."""
    walked = walked_game("leduc_poker", make_env("leduc_poker", 1))
    spec, drawn = player_of("leduc_poker")
    found = exact_exploitability(walked, {"uniform": [(spec, np.zeros_like(drawn))] * 2})
    assert found.found["uniform"].nash_conv == pytest.approx(4.747222222222222, abs=1e-5)
    assert found.found["uniform"].exploitability == pytest.approx(2.373611, abs=1e-5)


def test_folding_all_that_may_be_folded_gives_every_pot_away():
    """Who folds at every raise loses 1 a game to one who raises at once, whichever its seat."""
    walked = walked_game("leduc_poker", make_env("leduc_poker", 1))
    folds = player_of("leduc_poker", [0.0, 80.0, 40.0, 0.0])
    found = exact_exploitability(walked, {"folds": [folds] * 2}).found["folds"]
    assert found.returns == pytest.approx([0.0, 0.0], abs=1e-6)
    assert found.best == pytest.approx([1.0, 1.0], abs=1e-6)


def test_what_is_observed_in_a_tree_is_worked_out_once():
    walked = walked_game("leduc_poker", make_env("leduc_poker", 1))
    assert walked.observe(0) is walked.observe(0)
    assert walked.observe(0) is not walked.observe(1)


def test_tic_tac_toe_is_walked():
    pytest.importorskip("pettingzoo")
    walked = walked_game(TIC_TAC_TOE, make_env(TIC_TAC_TOE, 1))
    spec, drawn = player_of(TIC_TAC_TOE)
    found = exact_exploitability(walked, {"uniform": [(spec, np.zeros_like(drawn))] * 2})
    assert 1.0 < found.found["uniform"].nash_conv < 2.0


def test_what_goes_by_earlier_observations_is_named_and_not_measured():
    walked = walked_game("kuhn_poker", make_env("kuhn_poker", 1))
    recurrent = player_of("kuhn_poker", network={"recurrent": 8})
    found = exact_exploitability(walked, {"a": [recurrent] * 2})
    assert not found.found
    assert "depends on earlier observations" in found.in_words()


def test_how_many_of_them_are_measured_is_told():
    walked = walked_game("kuhn_poker", make_env("kuhn_poker", 1))
    plain = player_of("kuhn_poker")
    stacked = player_of("kuhn_poker", network={"recurrent": 8})
    other = player_of("rock_paper_scissors")
    seats = {"plain": [plain] * 2} | {f"stacked_{i}": [stacked] * 2 for i in range(4)}
    told = exact_exploitability(walked, seats).in_words()
    assert told.startswith("plain has exploitability ")
    assert told.endswith(" (1 of 5; the others depend on earlier observations).")
    told = exact_exploitability(walked, {"plain": [plain] * 2, "other": [other] * 2}).in_words()
    assert "(1 of 2; of the others, the policy agent_0 " in told
    told = exact_exploitability(walked, {"plain": [plain] * 2}).in_words()
    assert told.endswith("0 is an equilibrium.")


def test_other_games_are_not_walked():
    assert walked_game("connect_four", make_env("connect_four", 1)) is None
    assert walked_game("prisoners_dilemma", make_env("prisoners_dilemma", 1, rounds=2)) is None


def test_a_game_with_wrappers_round_it_is_not_the_one_that_is_walked():
    """Red before: the figure was that of the game without them."""
    env = make_env(TIC_TAC_TOE, 1, **{WRAPPERS: ["pettingzoo.utils:BaseWrapper"]})
    assert walked_game(TIC_TAC_TOE, env) is None


@pytest.mark.parametrize("kind", [KuhnPoker, LeducPoker, rock_paper_scissors])
def test_a_game_derived_from_one_may_have_other_rules(kind):
    env = kind(1)
    assert walked_game("mine:Game", env) is not None
    env.__class__ = type("Mine", (type(env),), {})
    assert walked_game("mine:Game", env) is None
