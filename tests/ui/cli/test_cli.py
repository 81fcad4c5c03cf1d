"""The command line, as a user would try it."""

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import yaml
from PIL import Image

from refusals import refuses
from remuda.config import Config, fields_of
from remuda.errors import ConfigError
from remuda.runs.metrics import read_metrics
from remuda.ui.cli.commands.train import read_arguments
from remuda.ui.cli.main import COMMANDS, run

QUICK = [
    *("--run.turns", "3000", "--run.log-every", "0.3", "--run.evaluate_episodes", "4"),
    *("--policy.network.hidden", "16", "--policy.batch_size=16", "--policy.n_frames", "2"),
    *("--policy.experience.learning_starts", "200", "--learners.processes", "2"),
]


def test_flags_go_over_the_file_over_the_defaults(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"seed": 3, "policy": {"batch_size": 32, "n_steps": 2}}))
    config = read_arguments(
        [
            *("treasure_hunt", "--config", str(path), "--policy.batch-size", "16"),
            *("--policy.network.hidden", "8", "4", "--policies.agent_1.learning_rate", "1e-3"),
            *("--env.options.num_agents", "3", "--policy.experience.replay_ratio", "None"),
            "--run.live=false",
        ]
    )
    assert (config.seed, config.policy.batch_size, config.policy.n_steps) == (3, 16, 2)
    assert config.policy.network.hidden == (8, 4)
    assert config.policy_of("agent_1").learning_rate == 1e-3
    assert config.env.options == {"num_agents": 3}
    assert config.policy.experience.replay_ratio is None
    assert not config.run.live


def test_of_several_files_each_goes_over_those_before_it(tmp_path):
    trees = {
        "game": {"game": "connect_four", "seed": 3, "population": {"shares": {"self_play": 1.0}}},
        "mixed": {"seed": 4, "policy": {"network": {"hidden": [8]}}},
        "more": {"population": {"matchmaker": "mixed"}, "policy": {"n_steps": 2}},
    }
    words = []
    for name, tree in trees.items():
        (tmp_path / name).write_text(yaml.safe_dump(tree))
        words += ["--config", str(tmp_path / name)]
    config = read_arguments([*words[:4], f"--config={words[5]}", "--policy.n_steps", "3"])
    assert (config.game, config.seed, config.policy.n_steps) == ("connect_four", 4, 3)
    assert config.policy.network.hidden == (8,)
    assert config.population.matchmaker == "mixed"
    (tmp_path / "mixed").write_text("policy: {n_stepps: 1}")
    with refuses(ConfigError, "policy.n_stepps"):
        read_arguments(words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train --seeds 2 --seeds 3", "--seeds is set 2 times; set it once"),
        ("train --config", "--config needs the path of a YAML file"),
        ("trian", "no command 'trian'; did you mean train? Commands: train, status, evaluate"),
        ("train tresure_hunt", "Did you mean treasure_hunt?"),
        ("train nowhere:Game", "cannot load the game nowhere:Game: No module named 'nowhere'"),
        ("train --sed 1", "--sed is no key of the configuration; did you mean --seed?"),
        ("train --policy 1", "--policy is a section; name one of its keys"),
        ("train --seed", "--seed needs a value"),
        ("train treasure_hunt 5", "unexpected '5'"),
        ("train --policy.learning-rate -1", "policy.learning_rate is -1: input should be"),
        ("train --config nope.yaml", "cannot read the configuration nope.yaml: No such file"),
        ("train --env.options.nonsense 3", "env.options.nonsense: treasure_hunt has no such"),
        ("train --env.options.height 2", "env.options: treasure_hunt refuses them"),
        ("train --policies.bob.n_steps 2", "policies.bob: treasure_hunt has no such policy; it"),
        ("train --learners.devices cuda:99", "learners.devices 'cuda:99' does not exist: this"),
        (
            "train --policies.agent_1.device cuda:99",
            "policy.device 'cuda:99' does not exist: this machine",
        ),
        ("train --run.directory /proc/nothing", "cannot write the run directory /proc/nothing"),
        ("evaluate", "name the run to evaluate, as in `remuda evaluate RUN`; `remuda runs`"),
        ("watch", "name the run to watch, as in `remuda watch RUN`; `remuda runs` lists runs"),
        ("status", "name the run to show, as in `remuda status RUN`; `remuda runs` lists"),
        ("report", "name the run to report on, as in `remuda report RUN`; `remuda runs` lists"),
        ("analyse", "name what to analyse: a run, a tournament's directory or a .csv; `remuda ru"),
        ("evaluate nowhere", "nowhere is no run directory"),
        ("watch nowhere", "nowhere is no run directory"),
        ("record nowhere", "name the file to write, as in `remuda record RUN --to data.npz`"),
        ("record --to data.npz", "name the run to record, as in `remuda record RUN --to data."),
        ("record nowhere --to data.npz", "nowhere is no run directory"),
        ("games 3 4", "unexpected '4'"),
    ],
)
def test_mistakes_are_told_in_one_line(words, said, capsys):
    assert run(words.split()) in (1, 2)
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err


@pytest.mark.process
@pytest.mark.slow
def test_train_evaluate_watch(tmp_path, capsys):
    directory = tmp_path / "run"
    assert run(["train", "treasure_hunt", "--run.directory", str(directory), *QUICK]) == 0
    said = capsys.readouterr().out
    assert "agent_0" in said
    records = list(read_metrics(directory / "metrics.jsonl"))
    assert records[-1].turns == 3000
    assert records[-1].waits == 0
    assert all(policy.updates > 0 for policy in records[-1].policies.values())
    names = {path.name for path in directory.iterdir()}
    assert names >= {"config.yaml", "summary.json", "report.html", "play.gif", "tensorboard"}
    assert {p.name for p in (directory / "logs").iterdir()} >= {"actor.log", "learner-agent_0.log"}
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["ended"] == "all turns were played"

    assert run(["evaluate", str(directory), "--episodes", "6", "--format", "json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert run(["evaluate", str(directory), "--episodes", "6", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert np.isfinite(first["agents"]["agent_1"]["standard_error"])
    sampled = ["evaluate", str(directory), "--episodes", "6", "--sampled"]
    assert run([*sampled, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["agents"] != first["agents"]  # it explores
    assert run(sampled) == 0
    assert "treasure_hunt: 6 sampled episodes of" in capsys.readouterr().out
    assert run(["evaluate", str(directory), "--episodes", "1", "--format", "json"]) == 0
    single = capsys.readouterr().out
    assert "NaN" not in single
    assert json.loads(single)["agents"]["agent_1"]["standard_error"] is None

    picture = tmp_path / "out.gif"
    assert run(["watch", str(directory), "--out", str(picture), "--turns", "99"]) == 0
    with Image.open(picture) as image:
        assert image.n_frames > 1
    other = tmp_path / "sampled.gif"
    assert run(["watch", str(directory), "--out", str(other), "--turns", "99", "--sampled"]) == 0
    assert other.read_bytes() != picture.read_bytes()

    # A second run does not go over the first.
    assert run(["train", "--run.directory", str(directory), *QUICK]) == 2 - 1
    assert "holds a run already" in capsys.readouterr().err

    weights = directory / "weights" / "agent_0.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert run(["evaluate", str(directory)]) == 1
    assert "agent_0.safetensors is damaged" in capsys.readouterr().err
    weights.unlink()
    assert run(["evaluate", str(directory), "--episodes", "2"]) == 0  # of the last checkpoint
    shutil.rmtree(directory / "checkpoints")
    assert run(["evaluate", str(directory)]) == 1
    assert "agent_0.safetensors is missing" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.slow_cases("words0-holds a run already", "words1---policy.learning_rat")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--run.directory", "{run}"], "holds a run already"),
        (["--policy.learning_rat", "1"], "--policy.learning_rat"),
        (["--policy.algorithm", "nothing"], "nothing"),
    ],
)
def test_what_needs_no_environment_is_refused_before_anything_slow_is_imported(
    words, said, tmp_path
):
    (tmp_path / "config.yaml").write_text("game: treasure_hunt\n")
    words = ["train", "treasure_hunt", *(word.format(run=tmp_path) for word in words)]
    program = "import sys; from remuda.ui.cli.main import run"
    script = f"{program}; code = run({words!r}); print(code, 'torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said in out.stderr
    assert out.stdout.split()[-2:] in (["1", "False"], ["2", "False"])


@pytest.mark.process
def test_a_run_is_announced_before_anything_slow_is_imported(tmp_path):
    script = f"""
import sys
from remuda.system import output
from remuda.ui.cli.main import run
write = output.write_at_once
def announced(descriptor, data):
    print([name for name in ("torch", "numba", "numpy") if name in sys.modules], flush=True)
    write(descriptor, data)
output.write_at_once = announced
run(["train", "treasure_hunt", "--run.directory", {str(tmp_path)!r}])
"""
    (tmp_path / "config.yaml").write_text("game: treasure_hunt\n")  # so the run is refused
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\ntreasure_hunt, async, seed 0: loading libraries\n"


@pytest.mark.process
def test_help_names_every_flag_and_imports_no_torch(capsys):
    program = "remuda.ui.cli.main import run"
    script = f"import sys; from {program}; run(['--help']); print(sorted(sys.modules))"
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    for heavy in ("torch", "numba", "matplotlib", "gymnasium"):
        assert f"'{heavy}'" not in out
    assert run(["train", "--help"]) == 0
    short = capsys.readouterr().out
    assert run(["train", "--help-all"]) == 0
    whole = capsys.readouterr().out
    keys = [key for key, section in fields_of(Config).items() if section is None]
    assert all(f"  --{key}\n" in whole for key in keys)
    assert sum(f"  --{key}\n" in short for key in keys) == 20


@pytest.mark.parametrize(
    ("topic", "shows", "hides"),
    [
        ("policy.ppo", "--policy.ppo.clip", "--policy.sac.tau"),
        ("--run.turns", "--run.turns", "--run.seconds"),
        ("entropy", "--policy.sac.target_entropy", "--policy.ppo.clip"),
    ],
)
def test_help_of_a_topic_shows_its_options(topic, shows, hides, capsys):
    assert run(["train", "--help", topic]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert shows in lines
    assert hides not in lines


def test_help_of_an_unknown_topic_names_the_sections(capsys):
    assert run(["train", "--help", "clippy"]) == 2
    assert "policy.ppo" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_the_terminal_and_shows_the_words_that_come_first(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*command.split(), "--help"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if len(line) > 80 and "remuda train" not in line] == []
    if command:
        first = COMMANDS[command].positional.upper()
        assert re.fullmatch(
            rf"usage: remuda {command} \[?{first}( \.\.\.)?\]? \[OPTIONS\]", lines[0]
        )


@pytest.mark.parametrize("command", ["train", "evaluate", "analyse"])
def test_help_breaks_lines_only_where_they_are_full(command, monkeypatch, capsys):
    """Red before: lines ended where those of the source do, and a second time at the edge."""
    monkeypatch.setenv("COLUMNS", "90")
    assert run([command, "--help"]) == 0
    plain = capsys.readouterr().out.replace("│", " ")  # of the boxes that some versions draw
    lines = [line.rstrip() for line in plain.splitlines()]
    indented = [len(line) - len(line.lstrip()) for line in lines]
    pairs = [
        (line, after)
        for i, (line, after) in enumerate(pairwise(lines))
        if indented[i] == indented[i + 1] >= 8 and line and after
    ]
    assert len(pairs) >= 2
    short = [line for line, after in pairs if len(f"{line} {after.split()[0]}") <= 84]
    assert not short


@pytest.mark.process
@pytest.mark.slow  # as in tests/faults/test_stopping.py
def test_ctrl_c_stops_softly(tmp_path):
    directory = tmp_path / "run"
    command = [sys.executable, "-m", "remuda", "train", "--run.directory", str(directory), *QUICK]
    command += ["--run.turns", "None", "--run.seconds", "600"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    while "turns" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(2)
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "stopped by SIGINT" in rest
    assert rest.index("stopping: writing a last checkpoint") < rest.index("stopped by SIGINT")
    assert (directory / "weights" / "agent_1.safetensors").exists()
    assert (directory / "report.html").exists()
