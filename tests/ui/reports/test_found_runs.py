"""Runs that are found in a directory and listed."""

import hashlib
import json
import os
import pickle

import pytest
import yaml

import remuda
from refusals import refuses
from remuda.config import load_config
from remuda.system.loading import PYTHON, file_name
from remuda.system.trust import ALLOW
from remuda.ui.cli.main import run as command
from remuda.ui.cli.resuming import find_unfinished
from remuda.ui.reports.summary import find_runs, list_runs, summarise
from remuda.ui.terminal.numbers import NOTHING
from ui.made_runs import a_run


def test_runs_are_found_and_what_is_damaged_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    base = tmp_path / "runs"
    best = a_run(base / "group" / "seed_0")
    (best / "checkpoints" / "000001").mkdir(parents=True)
    (best / "checkpoints" / "best.json").write_text('{"checkpoint": 1, "mean_return": 77.5}')
    (best / "earlier" / "1").mkdir(parents=True)
    (best / "earlier" / "1" / "config.yaml").write_text("game: tag")  # superseded by a resume
    (a_run(base / "empty") / "config.yaml").write_text("")
    (a_run(base / "half") / "summary.json").write_text('{"game"')
    (a_run(base / "bare") / "config.yaml").unlink()
    (a_run(base / "begun") / "summary.json").unlink()
    (base / "notes").mkdir()
    assert {path.name for path in find_runs(base)} == {"seed_0", "empty", "half", "bare", "begun"}
    assert command(["runs", str(base), "--json"]) == 0
    found = {os.path.basename(run["path"]): run for run in json.loads(capsys.readouterr().out)}
    assert found["seed_0"]["best"] == 77.5
    assert found["seed_0"]["state"] == "all turns were played"
    assert (found["seed_0"]["turns"], found["seed_0"]["game"]) == (40000, "treasure_hunt")
    assert found["seed_0"]["damaged"] == ""
    assert found["empty"]["damaged"] == "config.yaml is damaged: it is empty"
    assert found["half"]["damaged"].startswith("summary.json is damaged")
    assert found["bare"]["damaged"] == "it has no config.yaml"
    assert found["begun"]["state"] == "did not start"
    assert found["half"]["game"] == "treasure_hunt"  # the rest is told
    assert command(["runs", str(base)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "all turns were played" in said
    assert "half is damaged: summary.json is damaged" in said
    assert command(["runs", str(base / "notes")]) == 0
    assert "there is no run in" in capsys.readouterr().out


@pytest.mark.parametrize("mark", ["target.safetensors", "psro.jsonl"])
def test_runs_of_exploiters_are_listed_only_in_their_own_directory(tmp_path, mark):
    mine, exploit = a_run(tmp_path / "mine"), tmp_path / "exploits" / "rps"
    exploiters = a_run(exploit / "agent_0")
    assert find_runs(tmp_path) == [exploiters, mine]
    (exploit / mark).touch()
    assert find_runs(tmp_path) == [mine]
    assert find_runs(exploit) == [exploiters]


def test_a_terminal_of_80_columns_shows_paths_whole(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    a_run(tmp_path / "treasure_hunt-20261126-101655")
    assert command(["runs", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "treasure_hunt-20261126-101655 " in said
    assert "all turns were played" not in said
    lines = said.splitlines()
    row = next(
        i for i, line in enumerate(lines) if line.startswith("treasure_hunt-20261126-101655")
    )
    assert lines[row + 1].strip() == "were played"
    assert " treasure_hunt " not in said  # the path says it
    a_run(tmp_path / "short" / "first")
    assert command(["runs", str(tmp_path / "short")]) == 0
    assert " treasure_hunt " in capsys.readouterr().out


class Evil:
    """Leaves a file behind when it is read."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (self.marker.write_text, ("was run",))


def test_nothing_that_a_listed_run_names_is_run(tmp_path, monkeypatch, capsys):
    """The pickle of an algorithm was read, and did whatever it held."""
    path, marker = a_run(tmp_path / "runs" / "theirs"), tmp_path / "marker"
    code = pickle.dumps((PYTHON, pickle.dumps(Evil(marker))))
    name = f"pickled:Evil-{hashlib.sha256(code).hexdigest()[:8]}"
    (path / file_name(name)).write_bytes(code)
    tree = yaml.safe_load((path / "config.yaml").read_text())
    tree["policy"]["algorithm"] = name
    (path / "config.yaml").write_text(yaml.safe_dump(tree))
    assert command(["runs", str(tmp_path), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["game"], found["turns"], found["damaged"]) == ("treasure_hunt", 40000, "")
    assert not marker.exists()
    with pytest.raises(remuda.RemudaError, match=ALLOW):
        remuda.load(path)
    assert not marker.exists()
    monkeypatch.setenv(ALLOW, "1")
    with pytest.raises(remuda.RemudaError):
        remuda.load(path)
    assert marker.read_text() == "was run"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("game: [1]", "config.yaml is damaged: its game is [1], not a name"),
        ("game: [", "is not YAML"),
        ("- 1", "must hold keys and values"),
    ],
)
def test_a_configuration_that_tells_no_game_is_damaged(text, said, tmp_path):
    (a_run(tmp_path / "run") / "config.yaml").write_text(text)
    (found,) = list_runs(tmp_path)
    assert said in found.damaged
    assert (found.game, found.turns) == (NOTHING, 40000)


def test_a_configuration_that_leaves_the_game_out_has_the_usual_one(tmp_path):
    (a_run(tmp_path / "run") / "config.yaml").write_text("seed: 3")
    (found,) = list_runs(tmp_path)
    assert (found.game, found.damaged) == ("treasure_hunt", "")


def test_a_run_whose_module_is_broken_does_not_stop_others(tmp_path, monkeypatch, capsys):
    """Its exception ended `remuda train` and `remuda runs` with a traceback."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_algorithm.py").write_text("class Mine(Base):\n    pass\n")
    (tmp_path / "broken_syntax.py").write_text("class Mine(:\n")
    for name in ("broken_algorithm", "broken_syntax"):
        config = a_run(tmp_path / "runs" / name) / "config.yaml"
        tree = yaml.safe_load(config.read_text())
        tree["policy"]["algorithm"] = f"{name}:Mine"
        config.write_text(yaml.safe_dump(tree))
    a_run(tmp_path / "runs" / "whole")
    assert find_unfinished(load_config({}), tmp_path / "runs") is None
    assert command(["runs", "--json"]) == 0
    found = {os.path.basename(r["path"]): r["damaged"] for r in json.loads(capsys.readouterr().out)}
    assert found == {"whole": "", "broken_algorithm": "", "broken_syntax": ""}
    with refuses(remuda.RemudaError):
        load_config({"policy": {"algorithm": "broken_algorithm:Mine"}})


@pytest.mark.slow
def test_a_run_is_looked_at_while_it_goes_on_and_after(tmp_path):
    directory, seen = tmp_path / "run", []

    class Looks:
        def on_checkpoint(self, run, number, path):
            seen.append(summarise(run.directory))

    result = remuda.train(
        "support:Tape",
        schedule="sequential",
        policy={"algorithm": "ppo"},
        checkpoint={"every": 0.3, "evaluate_episodes": 0},
        run={"seconds": 1.5, "turns": None, "evaluate_episodes": 4, "directory": directory},
        callbacks=[Looks()],
    )
    assert {run.state for run in seen} == {"is running"}
    (found,) = list_runs(directory)
    assert found.state == "the time was up"
    assert found.turns == result.record.turns
    means = [result.evaluation.mean(i) for i in range(2)]
    assert found.best == pytest.approx(sum(means) / 2)
    assert not found.damaged
