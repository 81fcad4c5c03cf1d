"""Double oracle with exact best responses: what it converges to, and how it is gone on with."""

import importlib.util
import os
import signal
import sys
from unittest.mock import MagicMock

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.trees.exploitability import nash_conv
from remuda.analysis.trees.open_spiel_games import OpenSpielGame
from remuda.analysis.trees.sequence_form import equilibrium
from remuda.analysis.trees.tree_games import KuhnPoker, MatrixGame
from remuda.analysis.trees.tree_walk import flatten
from remuda.errors import ConfigError, RunDirectoryError, UnknownGameError, UsageError
from remuda.solvers.psro import populations
from remuda.solvers.psro.exact import ExactLoop, run_exact
from remuda.solvers.psro.games import ByHistory, tree_of
from remuda.solvers.psro.iterations import (
    CONVERGED,
    ENOUGH,
    INTERRUPTED,
    NOTHING_NEW,
    SPENT,
    Setup,
)
from remuda.solvers.psro.meta_solvers import MetaSolver, solve
from remuda.solvers.psro.meta_strategy import MetaStrategy, ResponseTarget
from remuda.solvers.psro.populations import Populations
from remuda.solvers.psro.record import Record, read
from remuda.solvers.psro.settings import PsroSettings


def setup_of(game="kuhn_poker", iterations=10, options=None, **settings):
    return Setup(game, options or {}, PsroSettings(iterations=iterations, **settings))


KUHN = setup_of()


def nash(payoffs):
    return solve("nash", payoffs)


def test_kuhn_poker_is_solved_within_ten_iterations():
    """The bar: NashConv <= 0.005 within 10 iterations from a uniform start."""
    found = run_exact(KUHN)
    first = found.iterations[0]
    assert first.policies == (1, 1)
    assert first.nash_conv == pytest.approx(11 / 12)  # of uniform play: OpenSpiel's 0.458 * 2
    assert found.nash_conv <= 0.005
    assert nash_conv(tree_of("kuhn_poker"), found.play) == pytest.approx(found.nash_conv, abs=1e-12)
    assert found.ended == CONVERGED
    assert found.nash_conv <= 2e-9
    value = first_value(found)
    assert value == pytest.approx(-1 / 18, abs=1e-9)


def first_value(found):
    x, y = found.mixtures
    return float(x @ found.last.payoffs[0] @ y)


def test_every_iteration_adds_a_best_response_of_each_player():
    found = run_exact(setup_of(iterations=3))
    assert found.ended == SPENT
    assert [each.policies for each in found.iterations] == [(n, n) for n in (1, 2, 3, 4)]
    for before, after in zip(found.iterations, found.iterations[1:], strict=False):
        n, m = before.policies
        assert after.payoffs[:, :n, :m] == pytest.approx(before.payoffs)
        # The newest policies earn against the mixtures before what was said of best responses.
        x, y = before.mixtures
        assert after.payoffs[0, n, :m] @ y - x @ before.payoffs[0] @ y == pytest.approx(
            before.gains[0]
        )
        assert x @ after.payoffs[1, :n, m] - x @ before.payoffs[1] @ y == pytest.approx(
            before.gains[1]
        )


def test_the_equilibrium_of_the_largest_entropy_solves_kuhn_poker_too():
    found = run_exact(setup_of("kuhn_poker", 25, meta_solver="max-entropy-nash"))
    assert found.nash_conv <= 0.005


def test_rectified_responses_are_as_many_as_policies_are_played():
    """They need not end at an equilibrium (McAleer et al. 2020), but come nearer."""
    found = run_exact(setup_of("kuhn_poker", 8, meta_solver="rectified-nash"))
    assert found.last.nash_conv < 0.25 * found.iterations[0].nash_conv
    for before, after in zip(found.iterations, found.iterations[1:], strict=False):
        more = [n - m for n, m in zip(after.policies, before.policies, strict=True)]
        assert all(1 <= one <= used for one, used in zip(more, before.support, strict=True))
    assert max(found.last.policies) > len(found.iterations)


def test_where_all_best_responses_are_known_it_ends():
    """Rectified responses to the same mixtures are the same ones: nothing changes any more."""
    found = run_exact(setup_of("kuhn_poker", 40, meta_solver="rectified-nash"))
    assert found.ended == NOTHING_NEW
    assert found.nash_conv > 0.01
    assert len(found.iterations) < 15
    # Fictitious play goes on with policies that it knows, since they then weigh more.
    assert run_exact(setup_of("kuhn_poker", 40, meta_solver="uniform")).ended == SPENT


def iterate(tree, solver, iterations):
    """The iterations with any meta-solver, without a record."""
    loop = ExactLoop(Populations(tree), MetaSolver(solver))
    loop.run(iterations)
    return loop.iterations


@pytest.mark.parametrize("scale", [1e-10, 1e9, 1e12])
def test_what_counts_as_a_gain_goes_by_the_size_of_the_returns(scale):
    payoffs = np.random.default_rng(0).normal(size=(8, 8))
    found = iterate(flatten(MatrixGame(payoffs * scale)), nash, 40)
    assert 5 < len(found) < 12
    assert found[-1].nash_conv <= 1e-7 * scale
    assert len(iterate(flatten(MatrixGame(np.full((2, 3), 0.1 * scale))), nash, 40)) == 1


def test_fictitious_play_comes_nearer_and_nearer():
    found = run_exact(setup_of("kuhn_poker", 60, meta_solver="uniform"))
    assert len(found.iterations) == 61
    assert found.nash_conv < 0.1 < found.iterations[5].nash_conv
    assert found.last.support == (61, 61)


def test_a_matrix_game_ends_where_no_response_gains():
    payoffs = np.array([[0.0, -1.0, 2.0], [1.0, 0.0, -1.0], [-2.0, 1.0, 0.0]])
    found = iterate(flatten(MatrixGame(payoffs)), nash, 20)
    assert found[-1].nash_conv <= 2e-9
    again = run_exact(setup_of("rock_paper_scissors", 20, {"biased": True, "rounds": 1}))
    assert again.play[0][0] == pytest.approx([0.25, 0.5, 0.25], abs=1e-6)


def test_a_game_that_is_not_zero_sum():
    found = run_exact(setup_of("prisoners_dilemma", 10, {"rounds": 1}))
    assert found.nash_conv == pytest.approx(0.0, abs=1e-9)
    assert found.ended == CONVERGED


def test_three_players():
    rng = np.random.default_rng(0)
    tree = flatten(MatrixGame(*rng.normal(size=(3, 2, 3, 2))))

    def mean(payoffs):
        return solve("uniform", payoffs)

    found = iterate(tree, mean, 5)
    assert found[-1].policies == (6, 6, 6)
    assert iterate(tree, nash, 8)[-1].nash_conv == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_leduc_poker_comes_to_its_value():
    found = run_exact(setup_of("leduc_poker", 400))
    assert found.ended == CONVERGED
    assert first_value(found) == pytest.approx(equilibrium(tree_of("leduc_poker")).value, abs=1e-7)


@pytest.mark.slow
def test_tic_tac_toe_is_a_draw_and_its_policies_go_by_history():
    found = run_exact(setup_of("tic_tac_toe", 3))
    assert found.iterations[0].nash_conv > 0.5
    assert found.last.payoffs.shape == (2, 4, 4)


def test_a_mixture_of_policies_is_played_by_what_was_done_before():
    """A toy of two moves: whoever went left goes right, and the other way round."""

    class Twice:
        name, num_players, num_actions, merges = "twice", 1, 2, True

        def root(self):
            return 0, 0

        def player(self, state):
            return 0 if state[0] < 2 else -2

        def actions(self, state):
            return (0, 1)

        def outcomes(self, state):
            return ()

        def child(self, state, action):
            return state[0] + 1, 0

        def information(self, state):
            return state

        def returns(self, state):
            return (0.0,)

    assert flatten(Twice()).num_nodes == 3
    tree = flatten(ByHistory(Twice()))
    assert not tree.merged
    assert tree.num_nodes == 7


@pytest.mark.process
@pytest.mark.parametrize(
    ("when", "line"), [("before", 1), ("half", 1), ("after", 1), ("half", 0), ("after", 3)]
)
def test_who_was_killed_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch, when, line):
    whole = run_exact(KUHN, tmp_path / "whole")
    place = tmp_path / "killed"
    child = os.fork()
    if child == 0:
        _killing(when, line)
        run_exact(KUHN, place)
        os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    written = len((place / "psro.jsonl").read_bytes().split(b"\n")) - 1
    if not written:
        assert line == 0
        with pytest.raises(RunDirectoryError):
            run_exact(KUHN, place, resume=True)
        found = run_exact(KUHN, place)
    else:
        walked = []
        play = populations.profile_returns
        monkeypatch.setattr(
            populations, "profile_returns", lambda *all_of: walked.append(1) or play(*all_of)
        )
        found = run_exact(KUHN, place, resume=True)
        known, last = written - 1, len(found.iterations)
        assert len(walked) == last**2 - known**2  # only pairs that had not met
    for one, other in zip(found.iterations, whole.iterations, strict=True):
        assert {**one.as_line(), "seconds": 0} == {**other.as_line(), "seconds": 0}
    assert [play.tolist() for play in found.play] == [play.tolist() for play in whole.play]
    assert found.ended == whole.ended


def _killing(when, line):
    """From now on this process is killed as it writes a line of a record."""
    append, count = Record.append, iter(range(100))

    def killed(self, content):
        if next(count) < line:
            return append(self, content)
        if when != "before":
            append(self, content)
        if when == "half":
            path = self.directory / "psro.jsonl"
            os.truncate(path, path.stat().st_size - 9)
        return os.kill(os.getpid(), signal.SIGKILL)

    Record.append = killed


def test_more_iterations_go_on_where_fewer_ended(tmp_path):
    first = run_exact(setup_of(iterations=2), tmp_path / "few")
    told = []
    more = run_exact(
        setup_of(iterations=4), tmp_path / "few", resume=True, on_iteration=told.append
    )
    whole = run_exact(setup_of(iterations=4))
    assert first.ended == more.ended == SPENT
    assert [each.nash_conv for each in more.iterations] == [
        each.nash_conv for each in whole.iterations
    ]
    assert [each.number for each in told] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "order",
    [
        (0, 1, 2, 3, 4, 4),  # a line twice
        (0, 1, 2, 2, 3, 4),
        (0, 0, 1, 2, 3, 4),
        (0, 1, 3, 4),  # one is missing
        (0, 2, 1, 3, 4),  # two the other way round
    ],
)
def test_lines_that_do_not_follow_from_those_before_are_refused(tmp_path, order):
    run_exact(setup_of(iterations=3), tmp_path)
    path = tmp_path / "psro.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = b"".join(lines[i] for i in order)
    path.write_bytes(damaged)
    with refuses(RunDirectoryError):
        run_exact(setup_of(iterations=5), tmp_path, resume=True)
    assert path.read_bytes() == damaged


def test_it_ends_where_nash_conv_is_small_enough(tmp_path):
    found = run_exact(setup_of(enough=0.2), tmp_path / "x")
    curve = [each.nash_conv for each in found.iterations]
    assert curve[-1] <= 0.2 < min(curve[:-1])
    assert found.ended == ENOUGH
    further = run_exact(KUHN, tmp_path / "x", resume=True)
    assert further.ended == CONVERGED
    assert len(further.iterations) > len(curve)


def test_an_interruption_ends_after_the_iteration():
    found = run_exact(KUHN, stopped=lambda: True)
    assert found.ended == INTERRUPTED
    assert len(found.iterations) == 1


def test_what_cannot_be_is_one_clear_line(tmp_path):
    for setup, kind in (
        (setup_of("connect_four"), ConfigError),
        (setup_of("kuhn_pokr"), UnknownGameError),
        (setup_of(options={"cards": 4}), ConfigError),
        (setup_of(meta_solver="nsh"), UsageError),
    ):
        with refuses(kind) as raised:
            run_exact(setup, tmp_path / "none")
        assert "\n" not in str(raised.value)
    assert not (tmp_path / "none").exists()


def curve_of_open_spiel(name, iterations, ties, monkeypatch):
    """NashConv by iteration of OpenSpiel's PSRO with its exact oracle.

    Payoffs are expectations in place of samples, and the meta-solver is ours, since the one of
    OpenSpiel needs a package that is no part of it.

    Args:
        name: of the game.
        iterations: how many.
        ties: by iteration and player, the action to take in each information set if it is one of
            the best.
        monkeypatch: of the test.
    """
    pyspiel = pytest.importorskip("pyspiel")
    if importlib.util.find_spec("cvxpy") is None:
        monkeypatch.setitem(sys.modules, "cvxpy", MagicMock())
    from open_spiel.python import policy
    from open_spiel.python.algorithms import best_response, expected_game_score, exploitability
    from open_spiel.python.algorithms.psro_v2 import best_response_oracle, psro_v2, utils

    game = pyspiel.load_game(name)
    calls = {0: 0, 1: 0}

    class TiesBroken(best_response.BestResponsePolicy):
        def __init__(self, game, player, others):
            super().__init__(game, player, others)
            self.wanted = ties[calls[player]][player]
            calls[player] += 1

        def best_response_action(self, infostate):
            known = self.infosets[infostate]
            worth = {
                action: sum(likely * self.q_value(state, action) for state, likely in known)
                for action in known[0][0].legal_actions()
            }
            wanted = self.wanted[infostate]
            assert worth[wanted] >= max(worth.values()) - 1e-9
            return wanted

    monkeypatch.setattr(best_response, "BestResponsePolicy", TiesBroken)

    def meta_solver(solver, return_joint=False):
        payoffs = np.stack([np.asarray(one, np.float64) for one in solver.get_meta_game()])
        mixtures = list(solve("nash", payoffs).mixtures)
        return (mixtures, np.outer(*mixtures).reshape(-1)) if return_joint else mixtures

    class Exactly(psro_v2.PSROSolver):
        def sample_episodes(self, policies, num_episodes):
            return expected_game_score.policy_value(game.new_initial_state(), policies)

    solver = Exactly(
        game,
        best_response_oracle.BestResponseOracle("py", game),
        sims_per_entry=1,
        initial_policies=[policy.UniformRandomPolicy(game) for _ in range(2)],
        training_strategy_selector="probabilistic",
        meta_strategy_method=meta_solver,
        sample_from_marginals=True,
    )
    found = []
    for iteration in range(iterations + 1):
        if iteration:
            solver.iteration()
        played = utils.aggregate_policies(game, solver.get_policies(), solver.get_meta_strategies())
        with monkeypatch.context() as patch:
            patch.setattr(best_response, "BestResponsePolicy", TiesBroken.__mro__[1])
            found.append(exploitability.nash_conv(game, played))
    return found


def test_the_curve_is_that_of_open_spiels_own_psro(tmp_path, monkeypatch):
    """The bar: with the same tie-breaks NashConv is the same at every iteration."""
    pytest.importorskip("pyspiel")
    ours = run_exact(setup_of("open_spiel:kuhn_poker", 10), tmp_path / "x")
    tree = flatten(OpenSpielGame("kuhn_poker"))
    names = [[known.key for known in own] for own in tree.information_sets]
    ties = [
        {
            player: dict(zip(names[player], actions, strict=True))
            for player, actions in line["added"]
        }
        for line in read(tmp_path / "x")[2:]
    ]
    theirs = curve_of_open_spiel("kuhn_poker", len(ties), ties, monkeypatch)
    numbers = [each.nash_conv for each in ours.iterations]
    assert numbers == pytest.approx(theirs, abs=1e-9)
    assert numbers[-1] <= 0.005
    assert len(numbers) > 5


def test_a_solver_of_ones_own_says_what_is_responded_to():
    tree = flatten(KuhnPoker())

    def newest(payoffs):
        mixtures = tuple(np.eye(n)[-1] for n in payoffs.shape[1:])
        found = MetaStrategy.independent(mixtures, 2)
        return found.aiming([ResponseTarget(0, mixtures[1])])

    found = iterate(tree, newest, 2)
    assert [each.policies for each in found] == [(1, 1), (2, 1), (3, 1)]
