"""What is told of mistakes with several runs, and which run is gone on with."""

import os

import pytest

from remuda.config import load_config
from remuda.errors import ConfigError
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.store import Manifest
from remuda.ui.cli.main import run as command
from remuda.ui.cli.resuming import offer_to_resume
from ui.made_runs import a_run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compare", "name the runs to compare, as in `remuda compare RUN RUN`; `remuda runs` l"),
        (
            "evaluate .",
            ". is no run directory but contains runs: name one of them; `remuda runs .`",
        ),
        ("compare nowhere", "nowhere is not a run directory and contains none"),
        ("compare run --out run", "run is a run; name another directory for the report"),
        ("compare unfinished", "the run has not ended"),
        ("runs nowhere", "there is no directory nowhere; name the directory of the runs"),
        ("train --seeds 0", "--seeds is '0'; it must be a whole number, 1 or more"),
        ("train --seeds many", "--seeds is 'many'; it must be a whole number, 1 or more"),
        ("train --seeds", "--seeds needs the number of seeds to train"),
        ("train --jobs 2", "--jobs needs --seeds: it is the number of seeds to train at a time"),
        ("train --resume run --jobs 2", "--jobs: run is not a directory of several seeds"),
        ("train --resume run --seeds 2", "--seeds is for new runs; --resume continues"),
        ("train --seeds 2 --run.directory run", "run already contains runs; continue with"),
        ("train tresure_hunt --seeds 2", "Did you mean treasure_hunt?"),
        ("train --resume seeds --seed 4", "--seed and --run.directory cannot change when seeds"),
        ("train --resume damaged", "seeds.json is damaged"),
    ],
)
def test_mistakes_are_told_in_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    a_run(tmp_path / "run")
    (a_run(tmp_path / "unfinished") / "summary.json").unlink()
    for name, text in (("seeds", '{"seeds": [0], "config": {}}'), ("damaged", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "seeds.json").write_text(text)
    assert command(words.split()) in (1, 2)
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_no_answer_is_no(tmp_path, monkeypatch):
    """Ctrl-D was a traceback."""
    asked, config = [], load_config({"run": {"directory": tmp_path / "run"}})
    run = RunDirectory.create(config)
    run.checkpoints.begin()
    run.checkpoints.commit(Manifest(1, 5, 1.0, False, {}, {}))
    run.unlock()

    def no_answer(question):
        asked.append(question)
        raise EOFError

    monkeypatch.setattr("builtins.input", no_answer)
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(
            f"remuda.ui.cli.resuming.sys.{stream}.isatty", lambda: True, raising=False
        )
    assert offer_to_resume(load_config({}), tmp_path) is None
    (question,) = asked
    assert "run was started by the same command and has not finished (5 turns)" in question


def test_a_run_may_be_trained_in_a_directory_of_seeds(tmp_path, monkeypatch, capsys):
    """The seeds in the current directory were taken for those to go on with."""
    config = '{"schedule": "sequential"}'
    (tmp_path / "seeds.json").write_text(f'{{"seeds": [0], "config": {config}}}')
    monkeypatch.chdir(tmp_path)
    entered = []
    monkeypatch.setattr("remuda.ui.cli.seeds.train_seeds", lambda *w: entered.append(w) or 1)

    def begins(words):
        raise ConfigError("one run begins")

    monkeypatch.setattr("remuda.ui.cli.commands.train.read_arguments", begins)
    assert command(["train", "tag"]) == 2
    assert "one run begins" in capsys.readouterr().err
    assert entered == []
    assert command(["train", "--resume", "."]) == 1
    assert command(["train", f"--resume={os.curdir}"]) == 1
    monkeypatch.setenv("HOME", str(tmp_path))
    assert command(["train", "--resume=~"]) == 1
    assert len(entered) == 3


def test_a_resumed_run_stays_in_its_directory(tmp_path, capsys):
    run = a_run(tmp_path / "run")
    words = ["train", "--resume", str(run), "--run.directory"]
    assert command([*words, str(tmp_path / "other")]) == 1
    assert "other', but resume continues" in capsys.readouterr().err
