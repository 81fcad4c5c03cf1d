"""`remuda tournament`: all against all, on every seat, with standard errors."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

import remuda
from remuda.config import load_config
from remuda.crossplay import Tournament, play_tournament
from remuda.envs.registry import make_env
from remuda.policies.spec import policy_specs
from remuda.publish.snapshot import Snapshot
from remuda.training import train
from remuda.ui.cli import run
from remuda.ui.live import PlainView
from remuda.ui.tournament import print_tournament


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    """Where a tournament is kept if no directory is named."""
    monkeypatch.chdir(tmp_path)


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


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of rock-paper-scissors, with different networks and seeds."""
    base = tmp_path_factory.mktemp("runs")
    for name, algorithm in (("one", "ppo"), ("other", "dqn")):
        tree = {
            "game": "rock_paper_scissors",
            "schedule": "sequential",
            "policy": {"algorithm": algorithm, "network": {"hidden": (4,)}},
            "env": {"options": {"rounds": 2}},
            "run": {"turns": 200, "directory": base / name, "evaluate_episodes": 0},
            "checkpoint": {"evaluate_episodes": 0},
        }
        train(load_config(tree), PlainView())
    return base


def test_policies_of_several_runs_play_each_other(runs, capsys):
    one, other = runs / "one", runs / "other"
    number = remuda.load(one).checkpoints[-1]
    entrants = [f"{one}:agent_0", f"{other}:agent_0", f"{one}:agent_1@checkpoint-{number}"]
    words = ["tournament", *entrants, "random", "--episodes", "3", "--format", "json"]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["entrants"] == [
        "one:agent_0",
        "other:agent_0",
        f"agent_1@checkpoint-{number}",
        "random",
    ]
    policies = [
        remuda.load(one)["agent_0"],
        remuda.load(other)["agent_0"],
        remuda.load(one).policy("agent_1", checkpoint=number),
        "random",
    ]
    same = remuda.tournament(
        policies, game="rock_paper_scissors", options={"rounds": 2}, episodes=3
    )
    assert found["means"] == same.means.tolist()
    assert run([*words, "--env.options.rounds", "30", "--seed", "5"]) == 0
    longer = json.loads(capsys.readouterr().out)
    assert np.abs(longer["means"]).max() > 2
    # The seed and the exploration that are asked for are those that are played.
    assert run([*words, "--seed", "5", "--sampled", "true"]) == 0
    explored = json.loads(capsys.readouterr().out)["means"]
    found = {
        (seed, greedy): remuda.tournament(
            policies,
            game="rock_paper_scissors",
            options={"rounds": 2},
            episodes=3,
            seed=seed,
            deterministic=greedy,
        ).means.tolist()
        for seed, greedy in ((5, False), (0, False), (5, True))
    }
    assert explored == found[5, False]
    assert found[0, False] != explored != found[5, True]


def test_a_game_may_be_named_and_a_policy_may_meet_itself(runs, capsys):
    words = ["tournament", f"{runs / 'one'}:agent_0", "--game", "rock_paper_scissors"]
    assert run([*words, "--episodes", "2"]) == 0
    assert "2 episodes for each pair and seat" in capsys.readouterr().out
    words = ["tournament", "random", "tactician", "--game", "connect_four", "--episodes", "2"]
    assert run(words) == 0
    assert "connect_four: return" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("{one} {one}:agent_0", "has several policies; name one of agent_0, agent_1, as in"),
        ("{one}:agent_7 random", "there is no policy 'agent_7'; there are agent_0, agent_1"),
        ("{one}:agent_0@99999 random", "keeps no version 99999 of agent_0; it keeps"),
        ("nowhere/x:agent_0 random", "nowhere/x is no run directory"),
        ("random random", "no entrant is of a run, so --game must tell what they play"),
        ("{one}:agent_0 tacticia", "rock_paper_scissors has no scripted policy 'tacticia'; it"),
        ("{one}:agent_0 random --game kuhn_poker", "cannot play agent_0 of kuhn_poker: it sees"),
        (
            "{one}:agent_0 random --checkpoints 1",
            "--checkpoints is for the checkpoints of a single",
        ),
        ("{one} --game tag", "--game is for several that play; the checkpoints of"),
        ("{one} --env.options.rounds 3", "--env.options is for several that play"),
        ("", "run is missing"),
    ],
)
def test_mistakes_are_told_in_one_line(words, said, runs, capsys):
    assert run(["tournament", *words.format(one=runs / "one").split()]) in (1, 2)
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
