"""`remuda tournament`: all against all, on every seat, with standard errors."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from remuda.config import load_config
from remuda.crossplay import Tournament, play_tournament
from remuda.envs.registry import make_env
from remuda.policies.spec import policy_specs
from remuda.publish.snapshot import Snapshot
from remuda.training import train
from remuda.ui.cli import run
from remuda.ui.live import PlainView
from remuda.ui.tournament import print_tournament

CONFIG = {
    "game": "rock_paper_scissors",
    "policy": {"algorithm": "ppo", "network": {"hidden": (4,)}},
}


def always(action, config):
    """Policies of both agents that know one action: all weights 0 but for the bias of its logit."""
    specs = policy_specs(config, make_env(config.game, 1).agents)
    snapshots = {}
    for spec in specs:
        shapes = spec.network().shapes
        parts = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        parts["policy.bias"][0, action] = 30.0
        weights = np.concatenate([part.ravel() for part in parts.values()])
        snapshots[spec.name] = Snapshot(weights, 1, 0, 0.0)
    return snapshots


@pytest.mark.parametrize("sampled", [False, True])
def test_who_beats_whom_by_hand(sampled):
    config = load_config(CONFIG)
    entrants = {name: always(i, config) for i, name in enumerate(("rock", "paper", "scissors"))}
    found = play_tournament(config, entrants, 10, sampled=sampled)
    assert found.entrants == ("rock", "paper", "scissors")
    assert found.means.tolist() == [[0, -1, 1], [1, 0, -1], [-1, 1, 0]]
    assert (found.errors == 0).all()


def test_the_matrix_is_read_within_80_columns():
    names = ("1", "2", "3", "4", "5", "final")
    random = np.random.default_rng(0)
    found = Tournament(names, 150 + 50 * random.random((6, 6)), 5 * random.random((6, 6)), 50)
    console = Console(width=80, file=io.StringIO())
    print_tournament("treasure_hunt", found, console)
    text = console.file.getvalue()
    assert all(len(line) <= 80 for line in text.splitlines())
    assert f"{found.means[2, 3]:.1f}±{found.errors[2, 3]:.1f}" in text
    assert "…" not in text


def test_checkpoints_of_a_run_play_each_other(tmp_path, capsys):
    tree = {
        "schedule": "sequential",
        "env": {"num_envs": 8},
        "policy": {"algorithm": "ppo", "ppo": {"rollout_length": 8}},
        "run": {"turns": 2000, "directory": tmp_path / "run", "evaluate_episodes": 0},
        "checkpoint": {"every": 0.1, "keep": 3, "evaluate_episodes": 0},
    }
    train(load_config(tree), PlainView())
    capsys.readouterr()
    words = ["tournament", str(tmp_path / "run"), "--episodes", "4", "--format", "json"]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["entrants"][-1] == "final"
    assert np.shape(found["means"]) == (len(found["entrants"]),) * 2
    assert run([*words, "--sampled", "true"]) == 0
    sampled = json.loads(capsys.readouterr().out)
    assert sampled["means"] != found["means"]
    number = found["entrants"][0]
    assert (
        run(["tournament", str(tmp_path / "run"), "--checkpoints", number, "--episodes", "4"]) == 0
    )
    assert "4 episodes for each pair and seat" in capsys.readouterr().out
    assert run(["tournament", str(tmp_path / "run"), "--checkpoints", "99999"]) == 1
    assert "has no checkpoint 99999" in capsys.readouterr().err
