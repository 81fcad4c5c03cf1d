"""Meta-solvers: mixtures from payoffs, and what the next best responses are trained against."""

import time

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.equilibria.regret import regret
from remuda.errors import UsageError
from remuda.solvers.psro import meta_solvers
from remuda.solvers.psro.meta_solvers import NAMES, check_players, solve, to_beat
from remuda.solvers.psro.meta_strategy import MetaStrategy, payoffs_against
from remuda.solvers.psro.replicator import replicate
from role_games import shapley

ROCK = np.array([[0.0, -1.0, 2.0], [1.0, 0.0, -1.0], [-2.0, 1.0, 0.0]])
"""Rock, paper and scissors in which rock's win counts twice: (1, 2, 1) / 4."""


def zero_sum(matrix):
    return np.stack([matrix, -np.asarray(matrix)])


@pytest.mark.slow_cases("shape0-projected-replicator", "shape1-projected-replicator")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 2), (4, 3)])
def test_every_solver_gives_a_mixture_of_each_player(name, shape):
    payoffs = zero_sum(np.random.default_rng(1).normal(size=shape))
    found = solve(name, payoffs)
    assert [mixture.shape for mixture in found.mixtures] == [(n,) for n in shape]
    for mixture in found.mixtures:
        assert mixture.min() >= 0.0
        assert mixture.sum() == pytest.approx(1.0, abs=1e-12)
    assert {target.player for target in found.targets} == {0, 1}


@pytest.mark.parametrize("name", ["nash", "max-entropy-nash", "rectified-nash"])
def test_nash_solvers_find_the_equilibrium(name):
    for mixture in solve(name, zero_sum(ROCK)).mixtures:
        assert mixture == pytest.approx([0.25, 0.5, 0.25], abs=1e-9)


def test_a_constant_sum_is_as_good_as_zero():
    payoffs = zero_sum(ROCK) + np.array([3.0, 4.0])[:, None, None]
    assert solve("max-entropy-nash", payoffs).mixtures[0] == pytest.approx([0.25, 0.5, 0.25])


def test_policies_that_earn_alike_share_alike_by_the_largest_entropy():
    twice = ROCK[[0, 1, 1, 2]][:, [0, 1, 1, 2]]
    mixture = solve("max-entropy-nash", zero_sum(twice)).mixtures[0]
    assert mixture == pytest.approx([0.25, 0.25, 0.25, 0.25], abs=1e-7)


def test_nash_of_a_game_that_is_not_zero_sum_has_no_regret():
    rng = np.random.default_rng(3)
    for _ in range(5):
        payoffs = rng.normal(size=(2, 4, 3))
        assert regret(payoffs, solve("nash", payoffs).mixtures).max() < 1e-7


def test_payoffs_of_matches_may_miss_a_sum_of_zero_by_rounding():
    payoffs = zero_sum(ROCK)
    payoffs[1] += np.random.default_rng(0).normal(size=(3, 3)) * 1e-6
    assert not meta_solvers.is_zero_sum(payoffs)
    assert solve("nash", payoffs, 1e-4).mixtures[0] == pytest.approx([0.25, 0.5, 0.25], abs=1e-4)


def test_uniform_is_fictitious_play():
    first, second = solve("uniform", np.zeros((2, 4, 5))).mixtures
    assert (first == 0.25).all()
    assert (second == 0.2).all()


def test_alpha_rank_gives_all_mass_to_what_dominates():
    payoffs = np.array([[[3.0, 3.0], [0.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]]])
    first, second = solve("alpha-rank", payoffs).mixtures
    assert first == pytest.approx([1.0, 0.0], abs=1e-3)
    assert second == pytest.approx([0.0, 1.0], abs=1e-3)


def test_three_players_are_for_those_solvers_that_know_them():
    payoffs = np.random.default_rng(0).normal(size=(3, 2, 3, 2))
    for name in ("nash", "uniform", "alpha-rank", "projected-replicator"):
        assert [len(m) for m in solve(name, payoffs).mixtures] == [2, 3, 2]
    for name in ("max-entropy-nash", "rectified-nash"):
        with refuses(UsageError):
            check_players(name, 3)
        with refuses(UsageError):
            solve(name, payoffs)


@pytest.mark.parametrize("seed", range(5))
def test_nash_of_three_players_has_no_regret(seed):
    payoffs = np.random.default_rng(seed).normal(size=(3, 2, 3, 2))
    assert regret(payoffs, solve("nash", payoffs).mixtures).max() < 1e-7


def test_of_pure_equilibria_that_with_the_largest_welfare_is_taken():
    """Three players who are paid only if they choose alike; the later choices pay more."""
    payoffs = np.zeros((3, 12, 12, 12))
    for choice in range(12):
        payoffs[:, choice, choice, choice] = 1.0 + choice
    assert [m.argmax() for m in solve("nash", payoffs).mixtures] == [11, 11, 11]


def test_three_players_without_a_pure_equilibrium_mix():
    payoffs = shapley().tensor()
    for mixture in solve("nash", payoffs).mixtures:
        assert mixture == pytest.approx([1 / 3] * 3, abs=1e-6)


def test_a_search_ends_in_time_and_says_how_far_it_came(monkeypatch):
    """Red before: 79 seconds, and then a strategy of regret 0.0186 without a word."""
    monkeypatch.setattr(meta_solvers, "SECONDS", 0.5)
    payoffs = np.random.default_rng(3).normal(size=(3, 10, 10, 10))
    start = time.monotonic()
    found = solve("nash", payoffs)
    assert time.monotonic() - start < 5.0
    assert found.note
    assert found.regret == pytest.approx(regret(payoffs, found.mixtures).max())
    again = MetaStrategy.from_plain(found.as_plain(), 3)
    assert (again.note, again.regret) == (found.note, found.regret)


def test_a_search_ends_at_a_signal():
    """Red before: Ctrl-C waited for the end of the search."""
    asked = []
    payoffs = np.random.default_rng(3).normal(size=(3, 10, 10, 10))
    solve("nash", payoffs, stop=lambda: asked.append(1) or len(asked) > 3)
    assert len(asked) < 10


def slowly(payoffs, iterations, step, floor):
    """The mean of projected replicator dynamics, with the projection by bisection."""
    mixtures = [np.full(n, 1.0 / n) for n in payoffs.shape[1:]]
    total = [mixture.copy() for mixture in mixtures]
    for _ in range(iterations):
        worth = [payoffs[0] @ mixtures[1], mixtures[0] @ payoffs[1]]
        moved = []
        for mixture, one in zip(mixtures, worth, strict=True):
            point = mixture + step * mixture * (one - one @ mixture)
            low, high = -2.0, 2.0
            for _ in range(100):
                middle = (low + high) / 2.0
                if np.maximum(point + middle, floor).sum() > 1.0:
                    high = middle
                else:
                    low = middle
            moved.append(np.maximum(point + low, floor))
        mixtures = moved
        for sums, mixture in zip(total, mixtures, strict=True):
            sums += mixture
    return [sums / (iterations + 1) for sums in total]


@pytest.mark.parametrize("floor", [1e-6, 0.05, 0.2])
def test_replicator_dynamics_keep_to_the_floor_and_are_those_of_the_paper(floor):
    payoffs = zero_sum(ROCK * 5.0)
    payoffs[1] += np.random.default_rng(2).normal(size=(3, 3))
    found = replicate(payoffs, 300, 0.05, floor)
    for mixture, wanted in zip(found, slowly(payoffs, 300, 0.05, floor), strict=True):
        assert mixture == pytest.approx(wanted, abs=1e-9)
        assert mixture.min() >= floor - 1e-12
    with refuses(UsageError):
        replicate(payoffs, 1, 0.05, 0.4)


def test_replicator_dynamics_equal_those_of_open_spiel():
    theirs = pytest.importorskip(
        "open_spiel.python.algorithms.projected_replicator_dynamics"
    ).projected_replicator_dynamics
    rng = np.random.default_rng(5)
    for shape in ((2, 2), (3, 4), (2, 3, 2)):
        payoffs = rng.normal(size=(len(shape), *shape)) * 4.0
        found = replicate(payoffs, 400, 0.02, 0.01)
        wanted = theirs(list(payoffs), prd_iterations=400, prd_dt=0.02, prd_gamma=0.01)
        for mixture, other in zip(found, wanted, strict=True):
            assert mixture == pytest.approx(other, abs=1e-9)


def test_rectified_responses_are_trained_against_what_their_policy_beats():
    found = solve("rectified-nash", zero_sum(ROCK))
    assert [target.player for target in found.targets] == [0, 0, 0, 1, 1, 1]
    # Rock draws with rock and beats scissors, each played with 1/4; paper with 1/2, and rock.
    against = [target.others for target in found.targets[:3]]
    assert against[0] == pytest.approx([0.5, 0.0, 0.5])
    assert against[1] == pytest.approx([1 / 3, 2 / 3, 0.0])
    assert against[2] == pytest.approx([0.0, 2 / 3, 1 / 3])
    # Player 1 sees the same game from the other side.
    assert found.targets[3].others == pytest.approx([0.5, 0.0, 0.5])


def test_one_that_beats_nothing_trains_against_the_mixture_as_it_is():
    found = solve("rectified-nash", zero_sum([[-1.0, -2.0], [-3.0, -1.0]]))
    for target in found.targets[:2]:
        assert target.player == 0
        assert target.others == pytest.approx(found.mixtures[1])


def test_what_a_response_has_to_beat():
    """What rock beats or draws with it earns 1 from; the mixture, which is worth 0, earns less."""
    payoffs = zero_sum(ROCK)
    found = solve("rectified-nash", payoffs)
    target = found.targets[0]
    beaten = to_beat("rectified-nash", payoffs, found, target)
    assert payoffs_against(payoffs, target) @ beaten == pytest.approx(1.0)
    for name in ("nash", "max-entropy-nash"):
        found = solve(name, payoffs)
        for target in found.targets:
            beaten = to_beat(name, payoffs, found, target)
            assert sorted(beaten) == [0.0, 0.0, 1.0]
            assert payoffs_against(payoffs, target) @ beaten == pytest.approx(0.0, abs=1e-9)
    found = solve("uniform", payoffs)
    for target in found.targets:
        assert to_beat("uniform", payoffs, found, target) == pytest.approx([1 / 3] * 3)


def test_an_unknown_meta_solver_is_one_clear_line():
    with pytest.raises(UsageError) as raised:
        solve("nahs", zero_sum(ROCK))
    told = str(raised.value)
    assert 'no meta-solver "nahs"; did you mean "nash"?' in told
    assert all(name in told for name in NAMES)
    assert "\n" not in told


def test_max_entropy_is_refused_where_payoffs_are_not_zero_sum():
    with refuses(UsageError):
        solve("max-entropy-nash", np.random.default_rng(0).normal(size=(2, 3, 3)))


def test_payoffs_that_are_missing_are_told():
    payoffs = zero_sum(ROCK)
    payoffs[0, 1, 1] = np.nan
    with refuses(UsageError):
        solve("nash", payoffs)
