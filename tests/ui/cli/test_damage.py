"""Whatever stands in a run's files, each command ends with one clear line, or does without it."""

import json
import re
import shutil

import pytest

from remuda.population.ledger.ledger import LOST, read_records
from remuda.ui.cli.main import run

TRAIN = (
    *("rock_paper_scissors", "--schedule", "sequential", "--env.num_envs", "4"),
    *("--policy.algorithm", "ppo", "--policy.ppo.rollout_length", "8"),
    *("--population.matchmaker", "round_robin", "--population.policies", "2"),
    *("--run.turns", "400", "--run.live", "false", "--run.evaluate_episodes", "2"),
    *("--checkpoint.every", "3600", "--checkpoint.evaluate_episodes", "2"),
)
COMMANDS = (
    ("status", "RUN"),
    ("status", "RUN", "--json"),
    ("evaluate", "RUN", "--episodes", "2"),
    ("evaluate", "RUN", "--episodes", "2", "--checkpoint", "best"),
    ("tournament", "RUN", "--episodes", "2"),
    ("watch", "RUN", "--turns", "2"),
    ("report", "RUN"),
    ("train", "--resume", "RUN"),
)
FILES = (
    "config.yaml",
    "metrics.jsonl",
    "status.json",
    "summary.json",
    "ledger.bin",
    "checkpoints/best.json",
    "checkpoints/000001/manifest.json",
    "checkpoints/000001/policy_0.safetensors",
    "weights/policy_0.safetensors",
)


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    """Where a tournament is kept if no directory is named."""
    monkeypatch.chdir(tmp_path)


def half(data):
    return data[: len(data) // 2]


def in_place_of(content):
    return lambda _: content


DAMAGES = {
    "empty": in_place_of(b""),
    "cut in half": half,
    "[]": in_place_of(b"[]\n"),
    "{}": in_place_of(b"{}\n"),
    "null": in_place_of(b"null\n"),
    "3": in_place_of(b"3\n"),
    "binary": in_place_of(bytes(range(256)) * 4),
    "null in place of numbers": lambda data: re.sub(rb'": -?[\d.]+', b'": null', data),
}


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("finished") / "run"
    assert run(["train", *TRAIN, "--run.directory", str(directory)]) == 0
    return directory


def told(capsys, *words):
    """The exit code and what is said; a fault that has no message of its own is raised here."""
    capsys.readouterr()
    code = run(words)
    said = capsys.readouterr()
    everything = said.out + said.err
    assert not re.search(r"Traceback|\b(Attribute|Type|Key|Index|Value|Decode)Error", everything)
    if code:
        assert said.err.startswith("remuda: "), everything
        assert said.err.count("\n") == 1, everything
    return code, everything


def harmed(finished, directory, name, harm):
    """A copy of the run with a file of it damaged."""
    shutil.copytree(finished, directory)
    path = directory / name
    path.write_bytes(DAMAGES[harm](path.read_bytes()))
    return str(directory)


@pytest.mark.slow
@pytest.mark.parametrize("harm", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_no_damage_ends_in_a_traceback(name, harm, finished, tmp_path, capsys):
    for number, words in enumerate(COMMANDS):
        directory = harmed(finished, tmp_path / str(number), name, harm)
        told(capsys, *(directory if word == "RUN" else word for word in words))


@pytest.mark.slow_cases(
    "evaluate-config.yaml-binary-config.yaml is not YAML",
    "evaluate-config.yaml-empty-config.yaml is damaged: it is empty",
    "evaluate-weights/policy_0.safetensors-cut in half-policy_0.safetensors is dam",
    "tournament-checkpoints/000001/manifest.json-[]-manifest.json is damaged: it ",
)
@pytest.mark.parametrize(
    ("command", "name", "harm", "said"),
    [
        ("evaluate", "config.yaml", "empty", "config.yaml is damaged: it is empty"),
        ("evaluate", "config.yaml", "binary", "config.yaml is not YAML"),
        ("evaluate", "weights/policy_0.safetensors", "cut in half", "policy_0.safetensors is dam"),
        ("tournament", "checkpoints/000001/manifest.json", "[]", "manifest.json is damaged: it "),
        ("status", "status.json", "[]", "status.json is damaged: it is not a JSON object"),
        ("status", "status.json", "null in place of numbers", "status.json is damaged: "),
        ("report", "summary.json", "3", "summary.json is damaged: it is not a JSON object"),
        ("report", "summary.json", "null in place of numbers", "summary.json is damaged: "),
    ],
)
def test_damage_is_told_as_such(command, name, harm, said, finished, tmp_path, capsys):
    code, everything = told(capsys, command, harmed(finished, tmp_path / "run", name, harm))
    assert code in (1, 2)
    assert said in everything


@pytest.mark.parametrize(
    "processors", ["null", "[]", '{"learner-policy_0": null}', '{"actor": "1"}']
)
def test_processors_that_are_none_are_told_as_damage(processors, finished, tmp_path, capsys):
    """They ended the report in an AttributeError where a replay ratio was missed."""
    directory = tmp_path / "run"
    shutil.copytree(finished, directory)
    path = directory / "summary.json"
    path.write_text(re.sub(r'"processors": \{\}', f'"processors": {processors}', path.read_text()))
    code, everything = told(capsys, "report", str(directory))
    assert code == 1
    assert "summary.json is damaged: " in everything


@pytest.mark.slow_cases("weights/policy_0.safetensors-missing1")
@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("config.yaml", ["no table", "no picture", "no report"]),
        ("weights/policy_0.safetensors", ["no picture"]),
        ("metrics.jsonl", ["no table", "no report"]),
    ],
)
def test_a_report_that_could_not_be_made_whole_is_a_failure(
    name, missing, finished, tmp_path, capsys
):
    """It was told in a note, with exit code 0."""
    directory = tmp_path / "run"
    shutil.copytree(finished, directory)
    path = directory / name
    damaged = {"metrics.jsonl": b"[]\n{}\n", "config.yaml": b"game: ["}
    path.write_bytes(damaged.get(name) or half(path.read_bytes()))
    for made in ("report.html", "play.gif"):
        (directory / made).unlink(missing_ok=True)
    code, everything = told(capsys, "report", str(directory))
    assert code == 1
    words = "no table", "no picture", "no report"
    assert [each for each in words if each in everything] == missing
    assert (directory / "report.html").exists() == ("no report" not in missing)


@pytest.mark.slow
def test_a_ledger_that_is_none_is_put_aside_and_begun_anew(finished, tmp_path, capsys):
    directory = harmed(finished, tmp_path / "run", "ledger.bin", "binary")
    whole = read_records(finished / "ledger.bin")
    assert told(capsys, "train", "--resume", directory, "--run.turns", "800")[0] == 0
    aside = tmp_path / "run" / "earlier" / "1" / "ledger.bin"
    assert aside.read_bytes() == DAMAGES["binary"](b"")
    names, records = read_records(tmp_path / "run" / "ledger.bin")
    assert names == whole[0]
    assert len(records) > len(whole[1])
    assert set(records["kind"][: len(whole[1])]) == {LOST}
    before, now = (
        json.loads((path / "summary.json").read_text()) for path in (finished, tmp_path / "run")
    )
    assert before["earlier"] == 0.0
    assert 0.0 < now["earlier"] < now["seconds"], "what it says of its session is of that only"
