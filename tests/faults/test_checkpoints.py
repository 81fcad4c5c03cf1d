"""Checkpoints that cannot be written, or must not be read: told in a line, and nothing is lost."""

import hashlib
import json
import os
import pickle
import shutil
import signal
import subprocess

import numpy as np
import pytest

from faults.runs import QUICK, Terminal
from remuda.config import write_config
from remuda.runs.metrics import read_metrics
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.state import pack
from remuda.system.checkpoint.store import Checkpoints
from remuda.ui.cli.main import run


@pytest.fixture
def small_disk(tmp_path):
    """A disk of its own with 12 MiB; only root may make one."""
    path = tmp_path / "disk"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(path)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("mounting a small disk needs root")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def fill(path):
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


@pytest.mark.process
@pytest.mark.slow_cases("sequential")
@pytest.mark.parametrize("schedule", ["sequential", pytest.param("async", marks=pytest.mark.slow)])
def test_a_full_disk_costs_a_checkpoint_and_nothing_else(schedule, small_disk, tmp_path):
    directory = small_disk / "run"
    store = Checkpoints(directory / "checkpoints")
    words = ("--run.directory", str(directory), *QUICK, "--schedule", schedule)
    with Terminal(tmp_path / "said", "train", *words) as terminal:
        terminal.until(store.numbers)
        fill(small_disk / "filler")
        told = "no checkpoint was written: No space left on device; checkpoint"
        terminal.until(lambda: told in terminal.said)
        kept = store.numbers()[-1]
        store.verify(kept)
        assert "is kept, and the run continues" in terminal.said
        (small_disk / "filler").unlink()
        terminal.until(lambda: store.numbers()[-1] > kept)
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.wait() == 143, terminal.said
        assert "Traceback" not in terminal.said
    assert not list((directory / "checkpoints").glob(".*"))


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run with two checkpoints; `spoil` a copy of it."""
    directory = tmp_path_factory.mktemp("finished") / "run"
    words = ["--schedule", "sequential", "--run.turns", "1500", "--run.live", "false"]
    words += ["--checkpoint.every", "3600"]  # one at each end, however slow the machine is
    assert run(["train", "--run.directory", str(directory), *QUICK, *words]) == 0
    words = ["--resume", str(directory), "--run.turns", "2000"]
    assert run(["train", *words]) == 0
    return directory


@pytest.fixture
def spoiled(finished, tmp_path):
    subprocess.run(["cp", "-r", str(finished), str(tmp_path / "run")], check=True)
    return tmp_path / "run"


def replace_part(directory, part, data):
    """Put other data in the place of a part of the newest checkpoint, with a checksum that fits."""
    store = Checkpoints(directory / "checkpoints")
    folder = store.path / f"{store.numbers()[-1]:06d}"
    (folder / f"{part}.safetensors").write_bytes(data)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][f"{part}.safetensors"] = hashlib.sha256(data).hexdigest()
    path.write_text(json.dumps(manifest))


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def refused(capsys, *words):
    """What is said when a command is refused: one line."""
    assert run(["train", *words]) in (1, 2)
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    return said


@pytest.mark.slow
def test_a_malicious_pickle_is_refused(spoiled, tmp_path, capsys):
    replace_part(spoiled, "agent_0", pickle.dumps(Malicious(str(tmp_path / "pwned"))))
    said = refused(capsys, "--resume", str(spoiled), "--run.turns", "3000")
    assert "agent_0.safetensors is not a Remuda state, or is damaged" in said
    assert not (tmp_path / "pwned").exists()


@pytest.mark.slow
def test_a_wrong_shape_is_refused(spoiled, capsys):
    store = Checkpoints(spoiled / "checkpoints")
    state = store.read(store.numbers()[-1], "agent_0")
    state["algorithm"]["online"] = np.zeros(7, np.float32)
    replace_part(spoiled, "agent_0", pack(state))
    said = refused(capsys, "--resume", str(spoiled), "--run.turns", "3000")
    assert "online should be (" in said
    assert "is (7,) float32" in said


@pytest.mark.slow
def test_another_configuration_is_refused(spoiled, capsys):
    said = refused(capsys, "--resume", str(spoiled), "--policy.network.hidden", "32")
    assert "policy.network.hidden was [16] and is [32]" in said
    said = refused(capsys, "--resume", str(spoiled), "--seed", "7")
    assert "seed was 0 and is 7" in said
    assert "seed: 0" in (spoiled / "config.yaml").read_text()


def change_manifest(directory, change):
    """Change what the manifest of the newest checkpoint tells."""
    path = sorted((directory / "checkpoints").glob("0*/manifest.json"))[-1]
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


@pytest.mark.slow
def test_a_checkpoint_of_another_format_is_refused_as_such(spoiled, capsys):
    """What is in a checkpoint had changed and its format had not: an older one was refused for
    settings that its version did not have."""

    def older(manifest):
        manifest["format"] = 1
        del manifest["config"]["population"]["births"]["confidence"]

    change_manifest(spoiled, older)
    said = refused(capsys, "--resume", str(spoiled), "--run.turns", "2500")
    assert "is of format 1, and this version of Remuda reads format " in said


@pytest.mark.slow
def test_a_setting_that_a_checkpoint_does_not_know_has_its_default(spoiled, capsys):
    def without(manifest):
        del manifest["config"]["policy"]["experience"]["segment_length"]

    change_manifest(spoiled, without)
    words = ("--resume", str(spoiled), "--run.turns", "2500")
    said = refused(capsys, *words, "--policy.experience.segment_length", "9")
    assert "policy.experience.segment_length was" in said
    assert run(["train", *words]) == 0


@pytest.mark.slow
def test_what_changes_no_results_may_change_in_a_resume(spoiled, capsys):
    """`--env.check false` was refused, although the error of a broken game advises it.

    A setting without effect is named at the start, and in the notes at the end.
    """
    words = ("--env.check", "false", "--learners.nice", "3")
    assert run(["train", "--resume", str(spoiled), "--run.turns", "2500", *words]) == 0
    said = capsys.readouterr().out
    assert said.count("learners.nice has no effect") == said.count("has no effect") == 2
    assert run(["train", "--resume", str(spoiled), "--run.turns", "3000"]) == 0
    assert "has no effect" not in capsys.readouterr().out, "of what the program wrote"


@pytest.mark.slow
def test_a_damaged_newest_checkpoint_falls_back(spoiled, capsys):
    store = Checkpoints(spoiled / "checkpoints")
    newest = store.path / f"{store.numbers()[-1]:06d}" / "agent_1.safetensors"
    os.truncate(newest, 100)
    assert run(["train", "--resume", str(spoiled), "--run.turns", "2500"]) == 0
    said = capsys.readouterr().out
    assert "is damaged" in said
    assert "falling back to the previous checkpoint" in said
    assert f"resumes from checkpoint {store.numbers()[0]}" in said


def test_a_run_that_is_there_is_offered(spoiled, capsys):
    said = refused(capsys, "--run.directory", str(spoiled))
    assert f"continue with: remuda train --resume {spoiled};" in said
    said = refused(capsys, "--resume", str(spoiled / "nothing"))
    assert "is no run directory" in said


@pytest.mark.slow
def test_the_same_command_again_offers_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["train", *QUICK, "--schedule", "sequential", "--run.live", "false"]
    with Terminal(tmp_path / "said", *words) as terminal:
        terminal.until(lambda: list(tmp_path.glob("runs/*/checkpoints/00*")))
    (unfinished,) = tmp_path.glob("runs/*")
    monkeypatch.setattr("remuda.ui.cli.resuming.sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("remuda.ui.cli.resuming.sys.stdout.isatty", lambda: True, raising=False)
    asked = []

    def answer(question):
        asked.append(question)
        return "y"

    monkeypatch.setattr("builtins.input", answer)
    from remuda.ui.cli.commands.train import read_arguments
    from remuda.ui.cli.resuming import offer_to_resume

    config = read_arguments(words[1:])
    assert offer_to_resume(config) == unfinished.relative_to(tmp_path)
    assert "was started by the same command and has not finished" in asked[0]
    monkeypatch.setattr("builtins.input", lambda _: "n")
    assert offer_to_resume(config) is None
    assert offer_to_resume(read_arguments([*words[1:], "--seed", "9"])) is None


@pytest.mark.slow
def test_a_run_of_a_configuration_file_that_is_offered_can_be_gone_on_with(
    spoiled, tmp_path, monkeypatch
):
    """`--config` was refused as no key of the configuration once the offer was accepted."""
    saved = RunDirectory.open(spoiled).read_config()
    run_ = saved.run.model_copy(update={"directory": None})
    write_config(saved.model_copy(update={"run": run_}), tmp_path / "mine.yaml")
    monkeypatch.setattr("remuda.ui.cli.resuming.offer_to_resume", lambda _: spoiled)
    assert run(["train", "--config", str(tmp_path / "mine.yaml"), "--run.turns", "2500"]) == 0
    assert [r.turns for r in read_metrics(spoiled / "metrics.jsonl")][-1] == 2500


def digests(directory):
    """By path, the checksum of every file under a directory."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(directory)): hashlib.md5(path.read_bytes()).hexdigest()
        for path in files
    }


def damage_all(directory):
    for path in (directory / "checkpoints").glob("*/*.safetensors"):
        os.truncate(path, 10)


def lose_all(directory):
    shutil.rmtree(directory / "checkpoints")


@pytest.mark.slow_cases("lose_all-none was written, or they were removed")
@pytest.mark.parametrize(
    ("harm", "words"),
    [(damage_all, "all 2 are damaged"), (lose_all, "none was written, or they were removed")],
)
def test_a_resume_without_a_checkpoint_is_refused_and_changes_nothing(harm, words, spoiled, capsys):
    harm(spoiled)
    before = digests(spoiled)
    said = refused(capsys, "--resume", str(spoiled), "--run.turns", "3000")
    assert f"{spoiled} has no checkpoint to resume from" in said
    assert words in said
    assert f"remuda train --config {spoiled / 'config.yaml'} --run.directory" in said
    assert digests(spoiled) == before


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 1])
def test_a_damaged_line_of_metrics_does_not_stop_a_resume(at, spoiled, capsys):
    path = spoiled / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) >= 2
    path.write_text("".join([*lines[:at], "\0\0nonsense\n", *lines[at:]]))
    before = path.read_bytes()
    assert run(["train", "--resume", str(spoiled), "--run.turns", "2500"]) == 0
    said = capsys.readouterr()
    assert "1 line of metrics.jsonl is damaged and skipped" in said.out
    assert path.read_bytes().startswith(before), "what was measured before is as it was"
    assert [r.turns for r in read_metrics(path)][-1] == 2500


@pytest.mark.slow
def test_what_a_resume_supersedes_is_kept(spoiled):
    """It goes on from the first of two checkpoints, so what came after that is superseded."""
    store = Checkpoints(spoiled / "checkpoints")
    os.truncate(store.path / f"{store.numbers()[-1]:06d}" / "agent_1.safetensors", 100)
    turns = [record.turns for record in read_metrics(spoiled / "metrics.jsonl")]
    begun = len(list((spoiled / "earlier").iterdir()))
    for number in (begun + 1, begun + 2):
        before = digests(spoiled)
        assert run(["train", "--resume", str(spoiled), "--run.turns", f"{number}500"]) == 0
        kept = digests(spoiled / "earlier" / str(number))
        assert {"config.yaml", "summary.json", "weights/agent_0.safetensors"} <= set(kept)
        assert kept == {name: before[name] for name in kept}
        assert ("metrics.jsonl" in kept) == (number == begun + 1), "the second lost nothing"
    left = [record.turns for record in read_metrics(spoiled / "metrics.jsonl")]
    assert left == sorted(left)
    assert max(turns) not in left
