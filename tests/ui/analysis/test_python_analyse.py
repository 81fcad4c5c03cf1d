"""`remuda.analyse`: what it accepts, and what it refuses in one line."""

import re

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.analysis.payoffs.payoffs import exact
from remuda.errors import RemudaError, UsageError

PAYOFFS = exact([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], names=[("rock", "paper", "scissors")] * 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    result = remuda.train(
        "rock_paper_scissors",
        schedule="sequential",
        policy={"algorithm": "ppo"},
        env={"num_envs": 16},
        population={"matchmaker": "random", "policies": 3},
        run={
            "turns": 200,
            "evaluate_episodes": 0,
            "directory": tmp_path_factory.mktemp("analyse") / "run",
        },
        view="quiet",
    )
    return remuda.load(result)


def test_payoffs_are_analysed():
    found = remuda.analyse(PAYOFFS)
    np.testing.assert_allclose(found.analyses[0].equilibrium.answer.mixtures[0], [1 / 3] * 3)
    assert "rock" in str(found)
    assert found.as_summary()["analysis"] == 1
    assert remuda.analyse(PAYOFFS, only=["rock", "paper"]).analyses[0].ranking.names


def test_a_game_of_several_roles_is_analysed():
    means = np.stack([[[3.0, 0.0], [1.0, 2.0]], [[-3.0, 0.0], [-1.0, -2.0]]])
    game = remuda.EmpiricalGame.from_arrays(means, {"a": ["x", "y"], "b": ["x", "y"]})
    (found,) = remuda.analyse(game).analyses
    assert [each.role.strategies for each in found.roles] == [("a: x", "a: y"), ("b: x", "b: y")]
    assert found.equilibrium.answer.mixtures[0] == pytest.approx([0.25, 0.75])
    assert found.equilibrium.answer.mixtures[1] == pytest.approx([0.5, 0.5])
    few = remuda.EmpiricalGame.from_arrays(means, {"a": ["x", "y"], "b": ["z", "w"]})
    (found,) = remuda.analyse(few, only=["x", "z", "w"]).analyses
    assert found.roles[0].role.strategies == ("x",)
    with refuses(UsageError):
        remuda.analyse(few, only=["x", "y"])


def test_exact_payoffs_are_shown_without_rounding_errors():
    means = np.random.default_rng(0).integers(-3, 4, (3, 3)) / 7.0
    means[0] -= means[0].mean()
    roles = {"a": ["x", "y", "z"], "b": ["u", "v", "w"]}
    shown = repr(remuda.analyse(remuda.EmpiricalGame.from_arrays([means, -means], roles)))
    assert "exact payoffs" in shown
    assert "e-1" not in shown
    assert not re.search(r"\.\d{5}", shown)


def test_a_game_of_three_seats_is_analysed():
    """A public goods game: contributing pays 1, and all three share 1.5 times what was paid."""
    keeps = np.indices((2, 2, 2))
    means = 0.5 * (3 - keeps.sum(0)) - (keeps[0] == 0)
    game = remuda.EmpiricalGame.from_arrays(means, {"players": ["contribute", "keep"]})
    (found,) = remuda.analyse(game).analyses
    assert found.equilibrium.answer.mixtures[0] == pytest.approx([0.0, 1.0], abs=1e-6)
    assert found.ranking.names[int(np.argmin(found.ranking.ranks))] == "keep"


def test_missing_line_ups_are_named_where_a_solver_needs_them():
    means = np.array([[[3.0, np.nan], [1.0, 2.0]], [[-3.0, np.nan], [-1.0, -2.0]]])
    game = remuda.EmpiricalGame.from_arrays(means, {"a": ["x", "y"], "b": ["z", "w"]})
    with refuses(UsageError):
        remuda.analyse(game)


def test_a_run_is_analysed_by_itself_its_directory_or_in_a_list(run):
    found = run.analyse(seconds=0)
    assert set(found.analyses[0].ranking.names) == {"policy_0", "policy_1", "policy_2"}
    by_path = remuda.analyse(run.path, seconds=0)
    assert by_path.as_summary() == found.as_summary()
    assert remuda.analyse([str(run.path)], seconds=0).as_summary() == found.as_summary()


def test_a_saved_tournament_is_analysed(run, tmp_path):
    entrants = {name: run[name] for name in ("policy_0", "policy_1")}
    arguments = {"game": "rock_paper_scissors", "episodes": 20}
    saved = remuda.tournament(entrants, **arguments, directory=tmp_path / "played")
    assert set(remuda.analyse(saved).analyses[0].ranking.names) == set(entrants)
    with refuses(UsageError, "not saved", "directory"):
        remuda.analyse(remuda.tournament(entrants, **arguments))


@pytest.mark.parametrize("source", [3, None, {"a": 1}, [], [PAYOFFS]], ids=repr)
def test_other_sources_are_refused(source):
    with refuses(UsageError, "analyse"):
        remuda.analyse(source)


@pytest.mark.parametrize(
    ("key", "value"),
    [("only", "policy_0"), ("samples", 10), ("seed", -1), ("seconds", "x")],
)
def test_invalid_arguments_are_refused(key, value):
    with refuses(UsageError, key):
        remuda.analyse(PAYOFFS, **{key: value})


def test_a_missing_directory_is_refused(tmp_path):
    with refuses(RemudaError, "absent"):
        remuda.analyse(tmp_path / "absent")
