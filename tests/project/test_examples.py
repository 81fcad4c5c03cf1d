"""The examples run as they are, only shorter, and show what their pages say."""

import functools
import importlib
import re
import subprocess
import sys
import types
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import remuda
from remuda.config import load_config, overlay, read_config
from remuda.population.ledger.ledger import BIRTH, MATCH, read_records
from remuda.training.run import train
from remuda.ui.reports.report import write_report
from remuda.ui.terminal.live import PlainView

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, directory, **tree):
    """Train an example; returns the result, the names of the policies, and who sat where.

    Short as they are, they would be over on a busy machine before everybody has trained, if the
    game did not wait for the learners: in lockstep it does, and nothing depends on the machine.
    """
    shorter = {"directory": directory, "evaluate_episodes": 20}
    tree = overlay(tree, {"run": shorter, "checkpoint": {"evaluate_episodes": 0}})
    tree = overlay({"schedule": "lockstep"}, tree)
    config = load_config(overlay(read_config(EXAMPLES / f"{name}.yaml"), tree))
    result = train(config, PlainView())
    names, records = read_records(directory / "ledger.bin")
    return result, names, records[records["kind"] == MATCH], records


def test_every_example_has_a_page():
    pages = [page.read_text() for page in (EXAMPLES.parent / "docs").glob("*.md")]
    for path in EXAMPLES.glob("*.yaml"):
        assert any(f"remuda train --config examples/{path.name}" in page for page in pages)


@pytest.mark.process
@pytest.mark.slow  # connect four is played the same way
def test_self_play_of_kuhn_poker(tmp_path):
    result, names, matches, records = run("self_play", tmp_path / "run", run={"turns": 200_000})
    assert names == ("policy",)
    frozen = result.record.members.keys() - {"policy"}
    assert len(frozen) > 1
    # Half the games, once there is a past.
    begun = records["number"][records["kind"] != MATCH].min()
    assert (matches["version"][matches["number"] < begun] == -1).all()
    late = matches["number"] > begun + 1000
    assert (matches["version"][late] == -1).all(1).mean() == pytest.approx(0.5, abs=0.05)
    assert (matches["returns"].sum(1) == 0).all()
    write_report(tmp_path / "run")
    assert "frozen copy" in (tmp_path / "run" / "report.html").read_text()
    assert (tmp_path / "run" / "payoff.png").stat().st_size > 10_000


@pytest.mark.slow
def test_self_play_of_connect_four(tmp_path):
    short = {"turns": 60_000, "seconds": None}
    result, _, matches, _ = run("connect_four", tmp_path / "run", run=short)
    assert len(result.record.members) > 2
    assert set(matches["returns"].ravel()) == {-1.0, 0.0, 1.0}
    assert (matches["returns"].sum(1) == 0).all()
    # What it was frozen as first is soon beaten, more often than not.
    first = min(records_of_past(matches))
    against = (matches["version"] == -1) & (matches["version"][:, ::-1] == first)
    earned = matches["returns"][against]
    assert earned[len(earned) // 2 :].mean() > 0.0


@pytest.mark.slow  # tests/population/directors/test_league_director.py plays smaller leagues
def test_a_league_of_connect_four(tmp_path):
    short = {"turns": 24_000, "seconds": None}
    often = {"league": {"after": 1, "timeout": 2}}  # an hour of it in a minute
    result, names, matches, records = run(
        "league", tmp_path / "run", run=short, population=often, env={"num_envs": 64}
    )
    assert names == ("main_0", "main_exploiter_0", "league_exploiter_0")
    # Only exploiters begin anew, each after its copy, and copies of all of them play.
    born = {names[policy] for policy in records["policy"][records["kind"] == BIRTH][:, 0]}
    assert "main_exploiter_0" in born
    assert "main_0" not in born
    frozen = matches["version"] >= 0
    assert {names[policy] for policy in matches["policy"][frozen]} == set(names)
    assert not frozen.all(1).any()
    # Once there is a past, the main agent has more seats than both exploiters together.
    late = matches[len(matches) // 2 :]
    seats = Counter(late["policy"][late["version"] < 0].tolist())
    assert seats[0] > seats[1] + seats[2]
    assert set(result.record.members) >= set(names)


def records_of_past(matches):
    """The versions of the frozen copies that played."""
    return {int(version) for version in matches["version"].ravel() if version >= 0}


@pytest.mark.process
@pytest.mark.slow
def test_a_round_robin_of_eight_in_bucket_brigade(tmp_path):
    result, names, matches, _ = run("round_robin", tmp_path / "run", run={"turns": 60_000})
    assert len(names) == 8
    met = Counter(tuple(sorted(seats)) for seats in matches["policy"].tolist())
    cycles = len(matches) / (70 * 4)
    assert cycles > 1
    # Matches end in another order than they begin, and those that last longer are fewer.
    counts = np.array([met[pick] for pick in combinations(range(8), 4)])
    assert counts.min() > 0
    games = [member.games for member in result.record.members.values()]
    assert max(games) < 1.2 * min(games)
    assert all(p.trained > 0 for p in result.record.policies.values())
    assert set(result.evaluation.policies) == set(names)


@pytest.mark.process
@pytest.mark.slow  # as many are dealt above; tests/learner/test_dealt.py has shares that are unlike
def test_two_teams_of_eight_in_tag(tmp_path):
    result, names, matches, _ = run("teams", tmp_path / "run", run={"turns": 60_000})
    red = np.array([name.startswith("red") for name in names])
    sides = red[matches["policy"]]
    assert (sides == [True, True, False, False]).all()
    assert len(set(map(tuple, matches["policy"].tolist()))) > 500
    assert all(member.games > 100 for member in result.record.members.values())
    assert all(p.trained > 0 for p in result.record.policies.values())


@pytest.mark.slow
def test_the_front_door_as_printed(tmp_path):
    """`examples/use_a_policy.py` trains, opens the run, asks, and evaluates."""
    words = [sys.executable, str(EXAMPLES / "use_a_policy.py")]
    found = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert found.returncode == 0, found.stderr
    assert "treasure_hunt: agent_0, agent_1" in found.stdout
    assert "<remuda.Policy agent_0: ppo" in found.stdout
    (run,) = (tmp_path / "runs").iterdir()
    again = subprocess.run([*words, str(run)], capture_output=True, text=True, check=False)
    told = found.stdout[found.stdout.index("treasure_hunt: agent_0") :]
    assert again.stdout == told


@pytest.mark.slow
def test_an_own_network_as_printed(tmp_path):
    words = [sys.executable, str(EXAMPLES / "own_network.py"), "2000"]
    found = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert found.returncode == 0, found.stderr
    assert "hidden_module.0.weight           (64, 4)" in found.stdout
    printed = (EXAMPLES.parent / "docs" / "extend.md").read_text()
    network = "nn.Sequential(nn.Linear(shape[0], 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())"
    assert network in printed
    assert network in (EXAMPLES / "own_network.py").read_text()


def test_a_curriculum_as_printed(tmp_path, monkeypatch, capsys):
    *_, lengths, _ = output_of("growing_corridor", ["4"], tmp_path, monkeypatch, capsys)
    assert lengths == "lengths: 4"
    printed = (EXAMPLES.parent / "docs" / "curriculum.md").read_text()
    text = (EXAMPLES / "growing_corridor.py").read_text()
    for block in re.findall(r"```python\n(.*?)```", printed, re.S):
        assert block.removesuffix("        ...\n") in text


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("name", ["A2C", "SAC"])
def test_an_own_algorithm_as_printed(tmp_path, monkeypatch, name):
    words = [sys.executable, str(EXAMPLES / "own_algorithm.py"), name, "500"]
    found = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert found.returncode == 0, found.stderr
    monkeypatch.syspath_prepend(EXAMPLES)  # where the algorithm lies
    (directory,) = (tmp_path / "runs").iterdir()
    run = remuda.load(directory)
    assert run["agent_0"].algorithm == f"own_algorithm:{name}"
    assert run["agent_0"].version > 0  # it has learned
    assert (
        float(found.stdout.splitlines()[-1])
        == run.summary()["evaluation"]["agents"]["agent_0"]["mean"]
    )
    # What the docs print is what the example runs; `...` leaves out the rest of a method.
    printed = (EXAMPLES.parent / "docs" / "extend.md").read_text()
    (block,) = re.findall(rf"```python\n(class {name}\(.*?)```", printed, re.S)
    text = (EXAMPLES / "own_algorithm.py").read_text()
    assert block.removesuffix("        ...\n") in text


def output_of(name, words, directory, monkeypatch, capsys):
    """Run an example in this process, with the schedule `sequential`; return its lines."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(directory)
    monkeypatch.setattr(sys, "argv", [name, *words])
    train = functools.partial(remuda.train, schedule="sequential", view=PlainView())
    monkeypatch.setattr(remuda, "train", train)
    importlib.import_module(name).main()
    return capsys.readouterr().out.splitlines()


def test_a_search_as_printed():
    printed = (EXAMPLES.parent / "docs" / "search.md").read_text()
    text = (EXAMPLES / "optuna_search.py").read_text()
    blocks = re.findall(r"```python\n(.*?)```", printed, re.S)
    assert len(blocks) == 2
    assert all(block in text for block in blocks)


def test_an_own_matchmaker_deals_the_matches(tmp_path, monkeypatch, capsys):
    *_, last = output_of("own_matchmaker", ["300"], tmp_path, monkeypatch, capsys)
    name, *counts = last.split()
    assert name == "policy_3"
    assert counts[3] == "0"  # never against itself
    assert sum(map(int, counts)) > 0


def test_an_own_director_freezes_copies(tmp_path, monkeypatch, capsys):
    *_, last = output_of("own_director", ["2000"], tmp_path, monkeypatch, capsys)
    assert last.startswith("frozen copies: policy_")


class Trial:
    """A stand-in for a trial of Optuna, which is not installed: it is pruned at the second value.

    With `pruned` false it never is.
    """

    def __init__(self, pruned):
        self.pruned, self.reports = pruned, []

    def suggest_float(self, name, low, high, log=False):
        return (low * high) ** 0.5

    def report(self, value, step):
        assert np.isfinite(value)
        self.reports.append(step)

    def should_prune(self):
        return self.pruned and len(self.reports) == 2


@pytest.fixture
def optuna(monkeypatch, tmp_path):
    """A stand-in for the module; returns the exception that a pruned trial raises."""
    module = types.ModuleType("optuna")
    module.TrialPruned = type("TrialPruned", (Exception,), {})
    monkeypatch.setitem(sys.modules, "optuna", module)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    return module.TrialPruned


SETTINGS = {
    "schedule": "sequential",
    "env": {"num_envs": 8},
    "run": {"log_every": 0.1},
    "checkpoint": {"evaluate_episodes": 0},
}


def test_a_pruned_trial_of_optuna_ends_its_run(optuna):
    objective = importlib.import_module("optuna_search").objective
    trial = Trial(pruned=True)
    with pytest.raises(optuna, match="Optuna prunes the trial at a mean return of"):
        objective(trial, 10**9, **SETTINGS)
    assert len(trial.reports) == 2
    (directory,) = Path("runs").iterdir()
    summary = remuda.load(directory).summary()
    assert summary["finished"]
    assert summary["turns"] < 10**6


def test_a_trial_of_optuna_returns_its_score(optuna):
    objective = importlib.import_module("optuna_search").objective
    trial = Trial(pruned=False)
    score = objective(trial, 2000, **SETTINGS)
    assert trial.reports == sorted(trial.reports)
    assert trial.reports
    (directory,) = Path("runs").iterdir()
    agents = remuda.load(directory).summary()["evaluation"]["agents"].values()
    assert score == pytest.approx(np.mean([agent["mean"] for agent in agents]))


@pytest.mark.process
@pytest.mark.slow
def test_the_program_of_the_readme(tmp_path):
    """As printed, only shorter."""
    (printed,) = re.findall(
        r"```python\n(.*?)```", (EXAMPLES.parent / "README.md").read_text(), re.S
    )
    program = tmp_path / "program.py"
    assert 'run={"seconds": 60}' in printed
    program.write_text(printed.replace('{"seconds": 60}', '{"turns": 2000}'))
    words = [sys.executable, str(program)]
    found = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert found.returncode == 0, found.stderr
    acted, earned = found.stdout.splitlines()[-2:]
    assert int(acted) in range(5)
    assert "[" in earned
