"""Directories of `remuda psro` and of seeds as sources, and policies that a tournament lacks."""

import json

import pytest

from refusals import refuses
from remuda.errors import RunDirectoryError
from remuda.runs.run_directory import RunDirectory
from remuda.ui.analysis.sources import open_sources
from remuda.ui.cli.main import run
from short_runs import trained


def test_the_payoffs_of_a_double_oracle_are_analysed(tmp_path, capsys):
    words = ["psro", "kuhn_poker", "--iterations", "3", "--out", str(tmp_path / "psro")]
    assert run([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert run(["analyse", str(tmp_path / "psro"), "--json"]) == 0
    shown = capsys.readouterr()
    assert not shown.err
    (source,) = open_sources([tmp_path / "psro"])
    sizes = [len(role.strategies) for role in source.known_game.roles]
    assert sizes == found["iterations"][-1]["policies"]


def test_a_double_oracle_without_payoffs_is_refused(tmp_path):
    out = tmp_path / "psro"
    assert run(["psro", "kuhn_poker", "--iterations", "1", "--out", str(out), "--json"]) == 0
    lines = (out / "psro.jsonl").read_text().splitlines(True)
    (out / "psro.jsonl").write_text(lines[0])
    with refuses(RunDirectoryError, "remuda psro --resume"):
        open_sources([out])


def test_newborns_that_a_tournament_leaves_out_are_named(tmp_path, capsys):
    """Red before: they were left out without a word."""
    population = {"policies": 3, "matchmaker": "random"}
    path = trained(tmp_path / "run", "rock_paper_scissors", population=population).path
    files = RunDirectory.open(path)
    words = ["tournament", f"{path}:all", "--episodes", "2"]
    assert run([*words, "--directory", str(tmp_path / "all")]) == 0
    assert "leaves out" not in capsys.readouterr().err
    names = "policy_0", "policy_2"
    for name in names:  # as at the end of a run in which the third is newborn
        tensors, about = files.load_weights(name)
        files.save_weights(name, tensors, about | {"policies": "\n".join(names)})
    files.keep_weights(names)
    assert run([*words, "--directory", str(tmp_path / "two")]) == 0
    assert f"{path}:all leaves out policy_1: newborn" in capsys.readouterr().err


def test_evaluate_plays_every_seed_of_a_directory(tmp_path, capsys):
    for seed in range(2):
        trained(tmp_path / "seeds" / f"seed_{seed}", "rock_paper_scissors", seed=seed)
    (tmp_path / "seeds" / "seeds.json").write_text("{}")
    words = ["evaluate", str(tmp_path / "seeds"), "--episodes", "2"]
    capsys.readouterr()
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert shown.index("seed_0:") < shown.index("seed_1:")
    assert shown.count("agent_1  ") == 2
    assert run([*words, "--json"]) == 0
    assert len([json.loads(line) for line in capsys.readouterr().out.splitlines()]) == 2


@pytest.mark.parametrize("name", ["histories", "out"])
def test_one_file_for_all_seeds_is_refused(tmp_path, capsys, name):
    trained(tmp_path / "seeds" / "seed_0", "rock_paper_scissors")
    (tmp_path / "seeds" / "seeds.json").write_text("{}")
    assert run(["evaluate", str(tmp_path / "seeds"), f"--{name}", "x"]) != 0
    assert f"--{name} writes one file" in capsys.readouterr().err
