"""A double oracle of three players: correlated and symmetric meta-games, exact and trained."""

import numpy as np
import pytest

import public_goods
from public_goods import GIVE, KEEP
from refusals import refuses
from remuda.analysis.trees.tree_games import KuhnPoker, MatrixGame
from remuda.analysis.trees.tree_walk import flatten
from remuda.errors import ConfigError, UsageError
from remuda.solvers.psro import meta_solvers
from remuda.solvers.psro.exact import ExactLoop, run_exact
from remuda.solvers.psro.games import tree_of
from remuda.solvers.psro.iterations import CONVERGED, FULL, NOTHING_NEW, SPENT, Setup
from remuda.solvers.psro.meta_solvers import fits, meta_solver, solve
from remuda.solvers.psro.meta_strategy import CCE, CE, MetaStrategy
from remuda.solvers.psro.populations import Populations
from remuda.solvers.psro.record import read
from remuda.solvers.psro.settings import PsroSettings
from remuda.solvers.psro.trained import run_trained
from remuda.ui.terminal.live import PlainView

KUHN = "open_spiel:kuhn_poker(players=3)"
GAME = "public_goods:PublicGoods"
SEEDS = pytest.mark.parametrize("seed", range(3))


def drawn(tree, seed):
    """A deterministic policy of each player."""
    rng = np.random.default_rng(seed)
    found = []
    for player in range(tree.num_players):
        legal = tree.legal_of(player)
        chosen = [rng.choice(np.flatnonzero(own)) for own in legal]
        found.append(np.eye(legal.shape[1])[chosen])
    return found


def iterate(tree, name, iterations, seed, symmetric=False):
    populations = Populations(tree, symmetric, drawn(tree, seed))
    loop = ExactLoop(populations, meta_solver(name, symmetric=symmetric))
    return loop, loop.run(iterations)


@SEEDS
def test_kuhn_poker_of_three_players_comes_to_a_coarse_correlated_equilibrium(seed):
    """The bar: the gains of deviations add up to at most 0.05."""
    pytest.importorskip("pyspiel")
    loop, _ = iterate(tree_of(KUHN), "max-entropy-cce", 9, seed)
    curve = [each.nash_conv for each in loop.iterations]
    assert curve[0] > 1.0
    assert min(curve) <= 0.05
    assert loop.iterations[-1].strategy.gap == CCE


def test_gains_from_a_joint_distribution_are_those_of_open_spiel():
    pyspiel = pytest.importorskip("pyspiel")
    tree = tree_of(KUHN)
    loop, ended = iterate(tree, "max-welfare-cce", 4, 0)
    assert ended == SPENT
    last, game = loop.iterations[-1], pyspiel.load_game("kuhn_poker(players=3)")
    line_ups = []
    for cell in np.argwhere(last.strategy.joint).tolist():
        table = {}
        for player, index in enumerate(cell):
            policy = loop.populations.policies[player][index]
            for known, row in zip(tree.information_sets[player], policy, strict=True):
                table[known.key] = [(a, float(row[a])) for a in known.actions]
        share = float(last.strategy.joint[tuple(cell)])
        line_ups.append((share, pyspiel.TabularPolicy(table)))
    for player in range(3):
        found = pyspiel.cce_dist(game, line_ups, player, 0.0, -1.0)
        value = last.strategy.values(last.payoffs)[player]
        gain = found.best_response_values[0] - value
        assert last.gains[player] == pytest.approx(gain, abs=1e-9)


def rows_of(policies):
    """What a policy of a matrix game plays: [n, A]."""
    return np.array([policy[0] for policy in policies])


@SEEDS
@pytest.mark.parametrize("name", ["max-entropy-ce", "max-welfare-cce", "projected-replicator"])
def test_public_goods_are_kept_by_all(seed, name):
    loop, _ = iterate(flatten(MatrixGame(*public_goods.tables())), name, 2, seed)
    last = loop.iterations[-1]
    for mixture, policies in zip(last.mixtures, loop.populations.policies, strict=True):
        assert (mixture @ rows_of(policies))[KEEP] == pytest.approx(1.0, abs=0.02)
    assert last.welfare == pytest.approx(0.0, abs=0.03)
    assert last.nash_conv == pytest.approx(0.0, abs=0.03)


@SEEDS
def test_one_set_of_policies_finds_the_equilibrium_of_volunteers(seed):
    tree = flatten(MatrixGame(*public_goods.tables(volunteers=True)))
    loop, ended = iterate(tree, "nash", 6, seed, symmetric=True)
    assert ended == CONVERGED
    last = loop.iterations[-1]
    (mixture,), (policies,) = last.mixtures, loop.populations.policies
    assert (mixture @ rows_of(policies))[GIVE] == pytest.approx(2 / 3, abs=1e-6)
    # Each earns what a sure gift does: 9 - 1.
    assert last.welfare == pytest.approx(3 * 8.0, abs=1e-6)
    assert last.policies == (len(policies),)
    assert last.game.roles[0].seats == 3
    assert last.game.regret(last.mixtures)[0] == pytest.approx(0.0, abs=1e-6)


def test_volunteers_are_chosen_by_lot_in_a_correlated_equilibrium_of_the_largest_welfare():
    """One gives and two keep: 9 + 9 + 8. In a symmetric game each is the one as often."""
    tree = flatten(MatrixGame(*public_goods.tables(volunteers=True)))
    for symmetric in (False, True):
        loop, _ = iterate(tree, "max-welfare-ce", 6, 0, symmetric)
        last = loop.iterations[-1]
        assert last.welfare == pytest.approx(26.0)
        assert last.strategy.gap == CE
        assert last.nash_conv == pytest.approx(0.0, abs=1e-8)
    (mixture,), (policies,) = last.mixtures, loop.populations.policies
    assert (mixture @ rows_of(policies))[GIVE] == pytest.approx(1 / 3)


def test_gains_from_recommendations_are_weighed_by_how_often_they_come():
    """In the game of volunteers: always two keep, and the third gives or keeps."""
    populations = Populations(flatten(MatrixGame(*public_goods.tables(volunteers=True))))
    for player in range(3):
        for action in (KEEP, GIVE):
            populations.add(player, [action])
    joint = np.zeros((3, 3, 3))
    joint[1, 1, 1], joint[1, 1, 2] = 0.25, 0.75
    gains, responses = populations.gains(MetaStrategy.correlated(joint, False, CE))
    # With 1/4 all keep, and a gift gains 8; else it costs 1. Who is told to give does well to.
    assert gains == pytest.approx([0.25 * 8.0 - 0.75, 0.25 * 8.0 - 0.75, 0.25 * 8.0])
    assert len(responses) == 4
    gains, _ = populations.gains(MetaStrategy.correlated(joint, False, CCE))
    assert gains == pytest.approx([0.25 * 8.0 - 0.75, 0.25 * 8.0 - 0.75, 0.25 * 8.0])
    joint[1, 1, 1], joint[2, 1, 1] = 0.0, 0.25
    gains, _ = populations.gains(MetaStrategy.correlated(joint, False, CE))
    assert gains == pytest.approx([0.0, 0.0, 0.0], abs=1e-12)


def test_a_symmetric_rock_paper_scissors_has_one_set(tmp_path):
    options = {"biased": True, "rounds": 1}
    settings = PsroSettings(symmetric=True, iterations=9)
    found = run_exact(Setup("rock_paper_scissors", options, settings), tmp_path / "x")
    assert found.ended == CONVERGED
    assert found.play[0][0] == pytest.approx([0.25, 0.5, 0.25], abs=1e-6)
    again = run_exact(Setup("rock_paper_scissors", options, settings), tmp_path / "x", resume=True)
    assert again.last.as_line() == found.last.as_line()


def test_correlated_iterations_are_gone_on_with(tmp_path):
    pytest.importorskip("pyspiel")

    def run(iterations, place, resume=False):
        settings = PsroSettings(meta_solver="max-entropy-cce", iterations=iterations)
        return run_exact(Setup(KUHN, {}, settings), place, resume)

    whole = run(5, tmp_path / "whole")
    run(3, tmp_path / "few")
    more = run(5, tmp_path / "few", resume=True)
    for one, other in zip(more.iterations, whole.iterations, strict=True):
        assert {**one.as_line(), "seconds": 0} == {**other.as_line(), "seconds": 0}


def test_the_loop_ends_before_a_meta_solver_has_too_many_policies(monkeypatch):
    assert fits("uniform", [1000] * 3)
    assert fits("alpha-rank", [12, 12, 12])
    assert not fits("alpha-rank", [13, 13, 13])
    assert fits("max-entropy-cce", [42] * 3)
    assert not fits("max-welfare-ce", [42] * 3)
    monkeypatch.setattr(meta_solvers, "MOST_PROFILES", 8)
    loop, ended = iterate(flatten(MatrixGame(*public_goods.tables(True))), "alpha-rank", 9, 0)
    assert ended == FULL
    assert loop.iterations[-1].policies == (2, 2, 2)


def test_players_who_are_not_alike_cannot_share_policies():
    with refuses(ConfigError):
        Populations(flatten(KuhnPoker()), symmetric=True)
    unlike = np.zeros((3, 2, 2, 3))
    with refuses(ConfigError):
        Populations(flatten(MatrixGame(*unlike)), symmetric=True)
    settings = trained_settings(symmetric=True)
    with refuses(ConfigError):
        run_trained(Setup("public_goods:Unlike", {}, settings), None, PlainView())
    with refuses(ConfigError, "agent_2", "mask"):
        run_trained(Setup("public_goods:PartlyMasked", {}, settings), None, PlainView())
    with refuses(UsageError):
        solve("max-entropy-cce", np.full((3, 1, 1, 1), np.nan))


def trained_settings(**changes):
    small = {
        "schedule": "sequential",
        "seconds": None,
        "turns": 3200,
        "num_envs": 64,
        "matches": 200,
        "trials": 200,
        "policy": {"network": {"hidden": [8]}, "ppo": {"rollout_length": 4}},
    }
    return PsroSettings(**{"oracle": "ppo", **small, **changes})


@pytest.mark.slow
@SEEDS
def test_trained_oracles_of_all_players_keep_public_goods(seed, tmp_path):
    settings = trained_settings(meta_solver="max-welfare-cce", iterations=1, seed=seed)
    found = run_trained(Setup(GAME, {}, settings), tmp_path, PlainView())
    assert found.ended == SPENT
    first, last = found.iterations
    assert not first.is_exact
    # Against random play, keeping gains half of what half a gift costs.
    assert first.gains == pytest.approx([0.25] * 3, abs=0.1)
    assert (first.margins > 0.0).all()
    assert last.policies == (2, 2, 2)
    assert last.welfare == pytest.approx(0.0, abs=0.05)
    assert last.nash_conv <= 0.1
    (line,) = (line for line in read(tmp_path) if line.get("responses") == 0)
    assert [role for role, *_ in line["added"]] == [0, 1, 2]


@pytest.mark.slow
@SEEDS
def test_trained_oracles_of_one_set_find_the_equilibrium_of_volunteers(seed, tmp_path):
    settings = trained_settings(symmetric=True, iterations=3, seed=seed, matches=2000, turns=6400)
    found = run_trained(Setup(GAME, {"volunteers": True}, settings), tmp_path, PlainView())
    assert found.iterations[0].gains == pytest.approx([0.625], abs=0.2)
    assert found.last.welfare == pytest.approx(24.0, abs=0.8)
    assert found.last.nash_conv <= 0.6


def test_scripted_policies_are_oracles(tmp_path):
    keeps = "public_goods:keeps"
    settings = trained_settings(oracle="scripted", scripted=(keeps,), meta_solver="max-welfare-cce")
    found = run_trained(Setup(GAME, {}, settings), tmp_path, PlainView())
    assert found.ended == NOTHING_NEW
    assert found.last.policies == (2, 2, 2)
    assert found.last.welfare == 0.0
    assert found.iterations[0].gains == pytest.approx([0.25] * 3, abs=0.15)
    added = [line["added"] for line in read(tmp_path) if "added" in line]
    assert [place for _, _, place in added[0]] == [{"scripted": keeps}] * 3
    again = run_trained(Setup(GAME, {}, settings), tmp_path, PlainView(), resume=True)
    assert [each.as_line() for each in again.iterations] == [
        each.as_line() for each in found.iterations
    ]


@pytest.mark.parametrize("symmetric", [False, True])
def test_oracles_deviate_from_each_recommendation(tmp_path, symmetric):
    scripted = ("public_goods:keeps", "public_goods:gives")
    settings = trained_settings(
        oracle="scripted",
        scripted=scripted,
        meta_solver="max-welfare-ce",
        symmetric=symmetric,
        matches=1000,
    )
    found = run_trained(Setup(GAME, {"volunteers": True}, settings), tmp_path, PlainView())
    assert found.ended == NOTHING_NEW
    assert found.last.strategy.gap == CE
    assert len(found.last.policies) == (1 if symmetric else 3)
    assert found.last.welfare == pytest.approx(26.0, abs=0.1)
    assert found.last.nash_conv == pytest.approx(0.0, abs=0.1)
