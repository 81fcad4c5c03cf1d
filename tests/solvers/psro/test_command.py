"""`remuda psro` and `remuda.psro`: what they show, go on with, and refuse."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

import remuda
from refusals import refuses
from remuda.errors import UsageError
from remuda.solvers.psro.iterations import DoubleOracle, Iteration
from remuda.solvers.psro.meta_strategy import MetaStrategy
from remuda.ui.analysis.psro import lines_of, print_double_oracle
from remuda.ui.cli import main

SCRIPTED = ["kuhn_poker", "--oracle", "scripted", "--scripted", "random"]
DILEMMA = ["prisoners_dilemma", "--env.options.rounds", "1"]


@pytest.fixture(autouse=True)
def _in_a_place_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_iteration_is_a_line_and_a_table_closes(capsys, tmp_path):
    assert main.run(["psro", "kuhn_poker", "--out", "x"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:3] == [
        "iteration   0: NashConv 0.916667, welfare 0.0000",
        "  player 0: gain 0.375000, plays 1 of 1 (0: 1.000)",
        "  player 1: gain 0.541667, plays 1 of 1 (0: 1.000)",
    ]
    lines = [line for line in said if line.startswith("iteration")]
    assert len(lines) >= 7
    assert "NashConv 0.000000" in lines[-1]
    assert f"after {len(lines) - 1} iterations: no best response gains more" in "\n".join(said)
    assert "wrote x/psro.jsonl" in said[-1]
    assert any(line.split()[:3] == ["player", "policies", "support"] for line in said)
    assert (tmp_path / "x" / "psro.jsonl").exists()


def test_json_is_all_that_stands_on_standard_output(capsys):
    assert main.run(["psro", "kuhn_poker", "--iterations", "3", "--json"]) == 0
    caught = capsys.readouterr()
    found = json.loads(caught.out)
    assert len(found["iterations"]) == 4
    assert found["nash_conv"] == found["iterations"][-1]["nash_conv"]
    assert found["ended"] == "the iterations were spent"
    assert found["directory"].startswith("runs/psro/kuhn_poker-")
    assert caught.err.count("iteration ") == 4


def test_a_directory_is_gone_on_with(capsys):
    assert main.run(["psro", "kuhn_poker", "--out", "x", "--iterations", "2"]) == 0
    assert main.run(["psro", "--resume", "x", "--iterations", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    whole = remuda.psro("kuhn_poker", iterations=4)
    assert [each["mixtures"] for each in found["iterations"]] == [
        [mixture.tolist() for mixture in each.mixtures] for each in whole.iterations
    ]
    assert main.run(["psro", "--resume", "x"]) == 0
    assert "after 4 iterations" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["kuhn_pokr"], "kuhn_poker"),
        (["connect_four"], "connect_four cannot be traversed completely"),
        (["kuhn_poker", "--meta-solver", "nahs"], 'no meta-solver "nahs"; did you mean "nash"?'),
        (["kuhn_poker", "--seconds", "3"], "--seconds is for trained oracles; add --oracle ppo"),
        (["kuhn_poker", "--oracle", "ppq"], "ppq"),
        (["kuhn_poker", "--symmetric", "true"], "as player 1 than as player 0"),
        (["kuhn_poker", "--oracle", "scripted"], "name the policies with scripted"),
        ([*SCRIPTED, "--turns", "9"], "--turns is for trained oracles"),
        (["kuhn_poker", "--scripted", "random"], "add --oracle scripted"),
        (["kuhn_poker", "--oracle", "scripted", "--scripted", "x"], "has no scripted policy 'x'"),
        (["kuhn_poker", "--oracle", "ppo", "--policy.algorithm", "dqn"], "set oracle to dqn"),
        (["tic_tac_toe", "--oracle", "ppo"], "tic_tac_toe has only rules for exact oracles"),
        (["tic_tac_toe", "--oracle", "ppo"], "pettingzoo:classic/tictactoe-v3"),
        (["nowhere:Game"], "among those installed"),
        ([*DILEMMA, "--meta-solver", "max-entropy-nash"], "do not add up to a constant"),
        ([*DILEMMA, "--meta-solver", "max-entropy-nash", "--oracle", "ppo"], "use nash"),
        (["open_spiel:kuhn_pokr"], "kuhn_poker"),
        ([], "name the game to play, as in `remuda psro kuhn_poker`"),
        (["--resume", "nowhere"], "nowhere holds no double oracle"),
        (["--resume", "nowhere", "--meta-solver", "nash"], "--meta-solver is fixed by nowhere"),
        (["kuhn_poker", "--out", "full"], "full is not empty"),
    ],
)
def test_an_error_of_the_users_is_one_line(words, told, capsys, tmp_path):
    if words == ["open_spiel:kuhn_pokr"]:
        pytest.importorskip("pyspiel")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    assert main.run(["psro", *words]) in (1, 2)
    caught = capsys.readouterr()
    assert told in caught.err
    assert not caught.out
    assert len(caught.err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_lower_bound_says_at_least():
    half = np.array([0.5, 0.5, 0.0])
    gains, payoffs = np.array([0.25, 0.0]), np.ones((2, 3, 3))
    strategy, margins = MetaStrategy.independent((half, half), 2), np.array([0.1, 0.0])
    found = Iteration(7, (3, 3), strategy, gains, payoffs, False, margins, 0.125)
    assert lines_of(found).splitlines() == [
        "iteration   7: NashConv at least 0.1250 (0.2500 ± 0.1250, 95%), welfare 2.0000",
        "  player 0: gain 0.2500 ± 0.1000 (95%), plays 2 of 3 (0: 0.500, 1: 0.500)",
        "  player 1: gain 0.0000 ± 0.0000 (95%), plays 2 of 3 (0: 0.500, 1: 0.500)",
    ]


@pytest.mark.parametrize("is_exact", [True, False])
def test_many_policies_fit_into_80_columns(is_exact):
    shares = np.arange(1.0, 102.0) / np.arange(1.0, 102.0).sum()
    gains, payoffs = np.array([1.25, 2.0]), np.zeros((2, 101, 101))
    strategy = MetaStrategy.independent((shares, shares), 2)
    margins = None if is_exact else gains
    last = Iteration(100, (101, 101), strategy, gains, payoffs, is_exact, margins, 0.125)
    assert all(len(line) <= 120 for line in lines_of(last).splitlines())
    console = Console(width=80, record=True, file=io.StringIO())
    whole = DoubleOracle("kuhn_poker", "nash", "ppo", (last,), "the iterations were spent", "x")
    print_double_oracle(whole, console)
    said = console.export_text()
    assert len(said.splitlines()) < 20
    assert all(words in said for words in ("99: 0.019", "93", "others:", "0.849"))
    assert ("gain, at least" in said) != is_exact


def test_what_was_interrupted_says_how_to_go_on():
    console = Console(width=80, record=True, file=io.StringIO())
    print_double_oracle(DoubleOracle("kuhn_poker", "nash", "ppo", (), "interrupted", "x"), console)
    said = console.export_text()
    assert "interrupted: nothing is known yet" in said
    assert "`remuda psro --resume x` continues" in said


def test_from_python():
    found = remuda.psro("kuhn_poker", meta_solver="max-entropy-nash", iterations=12)
    assert found.nash_conv < 0.005
    assert not found.directory
    assert found.play[0].shape == (6, 2)
    with refuses(UsageError):
        remuda.psro()
    with refuses(UsageError):
        remuda.psro("kuhn_poker", resume="x")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"enough": float("nan")}, "enough is nan"),
        ({"enough": -1.0, "oracle": "ppo"}, "enough is -1.0"),
        ({"sed": 3}, "sed is no argument of psro; did you mean seed?"),
        ({"speed_of_light": 3}, "there are game, options, directory"),
        ({"seconds": None, "oracle": "ppo"}, "seconds and turns are None"),
        ({"oracle": "ppq"}, "oracle: algorithm 'ppq' does not exist"),
        ({"oracle": "ppo", "policy": {"algorithm": "dqn"}}, "set oracle to dqn"),
        ({"seed": 3}, 'seed is for trained oracles; add oracle="ppo"'),
        ({"seconds": None}, "seconds is for trained oracles"),
        ({"policy": {"learning_rate": 1e-3}}, "policy is for trained oracles"),
        ({"options": 3}, "options is 3"),
        ({"directory": 5}, "directory is 5"),
        ({"resume": ""}, "resume is ''"),
        ({"on_iteration": 3}, "on_iteration is 3"),
    ],
)
def test_a_bad_argument_is_one_clear_line(asked, words, tmp_path):
    with pytest.raises(UsageError) as raised:
        remuda.psro("kuhn_poker", **asked)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_settings_that_a_directory_cannot_keep_are_told_before_it_is_made(tmp_path):
    options = {"rounds": np.int64(1)}
    with refuses(UsageError):
        remuda.psro("rock_paper_scissors", options=options, directory="x")
    assert not list(tmp_path.iterdir())
    assert remuda.psro("rock_paper_scissors", options=options).nash_conv < 1e-8


def test_what_is_gone_on_with_is_as_it_was(tmp_path):
    remuda.psro("kuhn_poker", directory="x", iterations=1)
    for name, value in {"meta_solver": "uniform", "seed": 4, "options": {"a": 1}}.items():
        with refuses(UsageError):
            remuda.psro(resume="x", **{name: value})
    told = []
    found = remuda.psro(resume="x", iterations=3, enough=0.5, on_iteration=told.append)
    assert [each.number for each in told] == [0, 1, 2]
    assert found.ended == "the gains are as small as requested"


def test_the_front_door_stays_a_function_whatever_was_imported_before():
    from remuda.solvers.psro import iterations

    assert callable(remuda.psro)
    assert iterations.EXACT == "exact"


@pytest.mark.slow
def test_trained_oracles_and_how_they_are_gone_on_with(capsys):
    words = ["psro", "rock_paper_scissors", "--oracle", "ppo"]
    words += ["--env.options.rounds", "1", "--env.options.biased", "true"]
    words += ["--schedule", "sequential", "--seconds", "null", "--turns", "640"]
    words += ["--num-envs", "32", "--policy.network.hidden", "8", "--matches", "50"]
    words += ["--trials", "50", "--out", "x", "--iterations", "0", "--json"]
    assert main.run(words) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["oracle"], first["ended"]) == ("ppo", "the iterations were spent")
    assert main.run(["psro", "--resume", "x", "--iterations", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["iteration"] for each in found["iterations"]] == [0, 1]
    assert found["iterations"][0] == first["iterations"][0]
    assert found["settings"]["turns"] == 640
