"""Agents that take no part in some matches: tournaments, exploiters, double oracle, reports."""

import json
import math
import warnings

import numpy as np
import pytest

import remuda
from absent_agents import RETURNS, Guests
from played_tournaments import play_across
from refusals import refuses
from remuda.analysis.payoffs.returns import balanced
from remuda.analysis.society.society import society
from remuda.analysis.society.welfare import efficiency, equality, long_run_equality
from remuda.coordinator.best_checkpoint import measurement
from remuda.envs.description import EnvSpec
from remuda.envs.registry import find_game, make_env
from remuda.envs.scripted import at_random
from remuda.errors import UsageError
from remuda.evaluation.evaluate import play_recorded
from remuda.evaluation.results import Evaluation, Limits
from remuda.evaluation.tournaments.engine import margin
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.solvers.exploit.bounds import error_of_sum, mean_of
from remuda.solvers.exploit.matches import Lineup, play_lineups
from remuda.solvers.exploit.target import make_target
from remuda.solvers.psro.matches import LineUpSums, play_line_ups, with_rest
from remuda.ui.cli.main import run
from remuda.ui.play.playing import episode
from remuda.ui.plots.recording import write_histories
from support import play_episodes

GUESTS, TWO = "absent_agents:Guests", "absent_agents:two_hosts"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guests") / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        remuda.train(
            GUESTS,
            policy={"network": {"hidden": [8]}, "experience": {"segment_length": 8}},
            schedule="sequential",
            env={"num_envs": 4},
            run={"turns": 400, "directory": str(directory), "evaluate_episodes": 24},
            checkpoint={"every": 3600, "evaluate_episodes": 24},
        )
    return directory


def test_in_a_tournament_a_seat_counts_by_matches_in_which_it_took_part(tmp_path):
    entrants = {"one": "random", "other": "random"}
    found = play_across(GUESTS, {}, entrants, 30, directory=tmp_path / "played")
    mean = np.mean([value for value in RETURNS.values() if value is not None])
    assert found.means == pytest.approx(np.full((2, 2), mean))
    assert found.errors == pytest.approx(np.zeros((2, 2)))
    assert not found.cut
    again = play_across(GUESTS, {}, entrants, 30, directory=tmp_path / "played")
    assert np.array_equal(again.means, found.means)
    assert np.array_equal(again.matches, found.matches)


@pytest.mark.slow
def test_payoffs_of_a_tournament_are_of_matches_in_which_both_took_part(tmp_path, capsys):
    played = tmp_path / "played"
    play_across(TWO, {}, {"one": "random", "other": "random"}, 40, directory=played)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert run(["analyse", str(played), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    means = np.array(found["payoffs"]["means"], np.float64)
    assert np.diag(means).tolist() == [7.0, 7.0]
    assert means.sum() == pytest.approx(28.0)  # 4 and 10 in every meeting, on either side


def test_a_lineup_has_no_return_where_a_seat_took_no_part():
    target = make_target(EnvSpec.of(GUESTS, {}), {"target": ("random",) * 4})
    (found,) = play_lineups(target, [Lineup()], 40, 1)
    assert len(found) == 40
    empty = np.isnan(found).all(1)
    assert 0.2 < empty.mean() < 0.5
    assert np.isnan(found[:, 3]).all()
    for seat, expected in enumerate(list(RETURNS.values())[:3]):
        known = found[~np.isnan(found[:, seat]), seat]
        assert set(known.tolist()) == {expected}
        assert mean_of(found[:, seat], (expected, expected)).value == expected
    assert math.isnan(mean_of(found[:, 3], (0.0, 0.0)).value)
    assert error_of_sum(found, [0, 1, 2]) == 0.0


def test_a_double_oracle_takes_each_seat_s_mean_over_the_matches_in_which_it_acted():
    line_up = {(0, 0, 0): ("random",) * 3}
    options = {"names": ["host", "other", "guest"], "empty": 0}
    (found,) = play_line_ups(EnvSpec.of(GUESTS, options), line_up, [40], 3)
    count, others, guests, *sums = found["sums"]
    assert count == others == 40
    assert 10 <= guests <= 30
    assert sums[:3] == [4.0 * count, 8.0 * count, 10.0 * guests]
    assert sums[3:] == [16.0 * count, 64.0 * count, 100.0 * guests]
    known = LineUpSums(3)
    known.add((0, 0, 0), found["sums"])
    assert known.payoffs((1, 1, 1)).ravel().tolist() == [4.0, 8.0, 10.0]
    assert known.matches((1, 1, 1)) == guests
    line_up = {(0, 0): ("random", "random")}
    with refuses(UsageError):
        play_line_ups(EnvSpec.of("absent_agents:never_together", {}), line_up, [8], 3)


def test_an_absent_seat_of_a_constant_sum_game_has_the_rest_of_the_sum():
    """Red before: means over different matches were no zero-sum game, which solvers refused."""
    returns = np.array([[3.0, -2.0], [-1.0, np.nan], [0.0, 1.0], [np.nan, 4.0]])
    assert with_rest(returns).tolist() == [[3.0, -2.0], [-1.0, 2.0], [0.0, 1.0], [-3.0, 4.0]]
    for other in (np.delete(returns, [0, 2], 0), np.vstack([returns, [5.0, 5.0]])):
        assert np.array_equal(with_rest(other), other, equal_nan=True)
    (found,) = play_line_ups(EnvSpec.of(TWO, {}), {(0, 0): ("random", "random")}, [40], 3)
    assert found["sums"] == [40.0, 40.0, 160.0, 400.0, 640.0, 4000.0]


def test_sums_over_seats_vary_as_the_sum_of_their_means_does():
    random = np.random.default_rng(0)
    returns = random.normal([1.0, 2.0, 3.0], size=(4000, 3))
    assert balanced(returns) is returns
    returns[random.random((4000, 3)) < [0.0, 0.5, 0.9]] = np.nan
    filled, counts = balanced(returns), (~np.isnan(returns)).sum(0)
    assert filled.mean(0) == pytest.approx(np.nanmean(returns, axis=0))
    errors = np.nanstd(returns, axis=0) / np.sqrt(counts)
    assert filled.std(0) / np.sqrt(4000) == pytest.approx(errors, rel=1e-6)
    assert balanced(np.array([[1.0, np.nan]])).tolist() == [[1.0]]


def test_recorded_play_tells_who_took_part(trained):
    spec, snapshots = load_run(RunDirectory.open(trained))
    played = play_recorded(spec, snapshots, 24).played()
    assert len(played.rewards) == 24
    for agent, expected in enumerate(RETURNS.values()):
        there = played.took_part[:, agent]
        assert np.isnan(played.returns[~there, agent]).all()
        assert set(played.returns[there, agent].tolist()) <= {expected}
    found = society(played.agents, played.rewards, played.lengths, took_part=played.took_part)
    assert [each.value for each in found.mean_returns[:3]] == [4.0, 8.0, 10.0]
    assert math.isnan(found.mean_returns[3].value)
    assert found.mean_returns[2].episodes == played.took_part[:, 2].sum() < 24
    assert "guest has the highest return, 10" in found.in_words()["returns"]
    assert "host the lowest, 4" in found.in_words()["returns"]
    json.dumps(found.as_summary(), allow_nan=False)


def test_welfare_is_that_of_the_agents_that_took_part():
    nan = np.nan
    assert equality([[1.0, 3.0, nan]] * 2).value == equality([[1.0, 3.0]] * 2).value
    returns = [[2.0, 4.0, nan], [2.0, nan, nan]]
    assert efficiency(returns, 2).value == (6.0 + 2.0) / 2 / 2
    # Averages of 2 and 4, whoever was away meanwhile.
    found = long_run_equality(returns)
    assert found.value == long_run_equality([[2.0, 4.0]] * 2).value
    assert np.isfinite(found.error)


def test_the_best_checkpoint_is_judged_by_agents_that_took_part(trained):
    nan = np.nan
    found = measurement(Evaluation(("a", "b"), np.array([[1.0, nan], [3.0, nan]])))
    assert found["mean_return"] == 2.0
    assert not found["constant_sum"]
    assert measurement(Evaluation(("a", "b"), np.array([[1.0, nan]])), ["a"])["mean_return"] is None
    swaps = Evaluation(("a", "b", "c"), np.array([[1.0, -1.0, nan], [2.0, nan, -2.0]]))
    assert measurement(swaps)["constant_sum"]
    best = RunDirectory.open(trained).checkpoints.best()
    assert best is None or best["mean_return"] == pytest.approx(22.0 / 3.0)
    spec, snapshots = load_run(RunDirectory.open(trained))
    assert margin(spec, snapshots, snapshots, 6, 0, Limits()) == 0.0


def test_what_is_printed_says_who_took_part(trained, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert run(["evaluate", str(trained), "--episodes", "12"]) == 0
        text = capsys.readouterr().out
        assert run(["evaluate", str(trained), "--episodes", "12", "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert run(["analyse", str(trained)]) == 0
        analysed = capsys.readouterr().out
        assert run(["report", str(trained)]) == 0
        assert run(["status", str(trained)]) == 0
        assert run(["runs", str(trained.parent)]) == 0
        listed = capsys.readouterr().out
    assert "nan" not in text + analysed + listed
    lines = {line.split()[0]: line for line in text.splitlines()[1:]}
    assert "never took part" in lines["ghost"]
    assert "10.0" in lines["guest"]
    assert "of 12 episodes" in lines["guest"]
    assert "episodes" not in lines["host"]
    assert found["agents"]["guest"]["mean"] == 10.0
    assert found["agents"]["ghost"]["mean"] is None


def test_histories_have_no_return_of_who_took_no_part(tmp_path):
    class Config:
        game = "open_spiel:any"

    returns = np.array([[1.0, np.nan]])
    write_histories(tmp_path / "h", Config, Evaluation(("a", "b"), returns, histories=((0, 1),)))
    assert json.loads((tmp_path / "h").read_text())["returns"] == {"a": 1.0, "b": None}


def test_an_episode_that_is_watched_begins_with_agents_and_tells_who_plays():
    game = find_game(GUESTS)
    moments = list(episode(make_env(GUESTS, 1), game.policy("random"), 10, 0))
    assert moments[0].returns == {"host": 0.0, "other": 0.0, "guest": None, "ghost": None}
    assert moments[-1].over
    assert moments[-1].returns["host"] == 4.0
    assert moments[-1].returns["ghost"] is None


def test_random_play_has_returns_of_who_took_part():
    returns = play_episodes(Guests(3), [at_random] * 4, 6)
    assert len(returns) == 18
    for agent, expected in enumerate(RETURNS.values()):
        known = returns[~np.isnan(returns[:, agent]), agent]
        assert set(known.tolist()) == ({expected} if expected else set())


def test_returns_are_those_of_an_agent_or_a_policy_by_name():
    """Red before: a name was an IndexError of NumPy."""
    returns = np.array([[1.0, math.nan], [3.0, 5.0]])
    found = Evaluation(("a", "b"), returns, policies={"prey": np.array([2.0, 4.0, 9.0])})
    assert [found.mean(name) for name in (0, "a", 1, "b", -1, "prey")] == [2, 2, 5, 5, 5, 5]
    assert (found.episodes("b"), found.episodes("prey")) == (1, 3)
    assert found.standard_error("a") == found.standard_error(0) == 1.0
    for wrong in ("pray", 2, 1.5):
        with refuses(UsageError, "a, b, prey"):
            found.mean(wrong)
