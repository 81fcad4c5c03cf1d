"""`remuda tournament`: all against all, on every seat, with standard errors."""

import io
import json
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import remuda
from played_tournaments import play_tournament
from remuda.analysis.payoffs.self_and_cross_play import SelfAndCrossPlay
from remuda.config import load_config
from remuda.envs.registry import GAMES, find_game, make_env
from remuda.evaluation.tournaments.engine import Tournament
from remuda.population.ledger.ledger import read_records
from remuda.population.specs import policy_specs
from remuda.publish.snapshot import Snapshot
from remuda.training.run import train
from remuda.ui.analysis.tournament import MatchProgress, print_tournament
from remuda.ui.cli.main import run
from remuda.ui.terminal.live import PlainView


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


def test_self_play_is_compared_with_cross_play():
    means = np.array([[8.0, 1, 3], [1, 10, 5], [3, 5, 12]])
    compared = SelfAndCrossPlay((10.0, 1.155), (3.0, 2.309), (7.0, 1.155))
    names = ("a", "b", "c")
    found = Tournament(names, means, np.zeros((3, 3)), 50, self_and_cross_play=compared)
    console = Console(width=80, file=io.StringIO())
    print_tournament("treasure_hunt", found, console)
    text = console.file.getvalue()
    assert "self-play 10.0±1.2, cross-play 3.0±2.3, gap 7.0±1.2" in text
    assert found.as_summary()["self_and_cross_play"]["cross_play"][0] == pytest.approx(3.0)
    other = replace(found, self_and_cross_play=None)
    console.file = io.StringIO()
    print_tournament("treasure_hunt", other, console)
    assert "self-play" not in console.file.getvalue()
    assert "self_and_cross_play" not in other.as_summary()


@pytest.mark.slow
def test_shared_policies_of_several_seeds_play_each_other(tmp_path, capsys):
    """One policy of each run plays both seats of Overcooked, with itself and with the others."""
    pytest.importorskip("jax")
    remuda_train = ["train", "jaxmarl:overcooked", "--schedule", "sequential", "--seeds", "3"]
    settings = {
        "env.options.layout": "cramped_room",
        "env.options.max_steps": "20",
        "env.options.shaped_reward": "1",
        "env.num_envs": "8",
        "population.sharing.*": "team",
        "policy.algorithm": "ppo",
        "policy.network.hidden": "8",
        "policy.network.convolutions": "[]",
        "policy.ppo.rollout_length": "16",
        "run.turns": "400",
        "run.evaluate_episodes": "0",
        "run.directory": str(tmp_path / "kitchen"),
        "checkpoint.evaluate_episodes": "0",
    }
    words = [word for key, value in settings.items() for word in (f"--{key}", value)]
    assert run([*remuda_train, *words]) == 0
    capsys.readouterr()
    runs = sorted(map(str, (tmp_path / "kitchen").glob("seed_*")))
    words = ["tournament", *runs, "--episodes", "8", "--sampled", "true", "--format", "json"]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["entrants"] == [f"seed_{seed}:team" for seed in range(3)]
    assert found["matches"] == [[8, 16, 16], [16, 8, 16], [16, 16, 8]]  # others: on both seats
    means = np.array(found["means"])
    compared = found["self_and_cross_play"]
    assert compared["self_play"][0] == pytest.approx(np.diagonal(means).mean())
    gap = compared["self_play"][0] - compared["cross_play"][0]
    assert compared["gap"][0] == pytest.approx(gap)


@pytest.mark.slow
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
    assert "4 episodes per pair and seat" in capsys.readouterr().out
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


@pytest.mark.slow
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
        f"one:agent_1@checkpoint-{number}",
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
            sampled=not greedy,
        ).means.tolist()
        for seed, greedy in ((5, False), (0, False), (5, True))
    }
    assert explored == found[5, False]
    assert found[0, False] != explored != found[5, True]


@pytest.mark.slow
def test_runs_that_learned_in_another_game_are_told(runs, tmp_path, capsys):
    """Red before: all played in the first run's game, without a word."""
    tree = {
        "game": "rock_paper_scissors",
        "schedule": "sequential",
        "policy": {"algorithm": "ppo", "network": {"hidden": (4,)}},
        "env": {"options": {"rounds": 2}, "observe_together": True},
        "run": {"turns": 50, "directory": tmp_path / "third", "evaluate_episodes": 0},
        "checkpoint": {"evaluate_episodes": 0},
    }
    train(load_config(tree), PlainView())
    capsys.readouterr()
    entrants = [f"{runs / 'one'}:agent_0", f"{tmp_path / 'third'}:agent_0"]
    options = ["--episodes", "1", "--format", "json", "--directory"]
    assert run(["tournament", *entrants, *options, str(tmp_path / "a")]) == 0
    said = capsys.readouterr()
    assert f"{tmp_path / 'third'} learned with env.observe_together True; all play" in said.err
    assert json.loads(said.out)["entrants"]
    alike = [entrants[0], f"{runs / 'other'}:agent_0"]
    assert run(["tournament", *alike, *options, str(tmp_path / "b")]) == 0
    assert "learned with" not in capsys.readouterr().err
    named = ["--game", "rock_paper_scissors", *options, str(tmp_path / "c")]
    assert run(["tournament", *entrants, *named]) == 0
    assert "learned with" not in capsys.readouterr().err


def test_a_run_that_is_called_as_a_scripted_policy_is_not_taken_for_it(
    runs, tmp_path, monkeypatch, capsys
):
    """Red before: the run was, where `remuda play` refuses to choose."""
    monkeypatch.chdir(tmp_path)
    tree = {
        "game": "rock_paper_scissors",
        "schedule": "sequential",
        "policy": {"algorithm": "ppo", "network": {"hidden": (4,)}},
        "population": {"policies": 1, "matchmaker": "self_play"},
        "run": {"turns": 50, "directory": tmp_path / "rocks", "evaluate_episodes": 0},
        "checkpoint": {"evaluate_episodes": 0},
    }
    train(load_config(tree), PlainView())
    game = find_game("rock_paper_scissors")
    scripted = {"rocks": "nowhere:rocks"}
    monkeypatch.setitem(GAMES, game.name, replace(game, scripted=scripted))
    for named in (["rocks"], ["rocks", "random", "--game", game.name]):
        assert run(["tournament", *named, f"{runs / 'other'}:agent_0", "--episodes", "1"]) == 2
        said = "rocks is a run, and a scripted policy of rock_paper_scissors: write ./rocks for"
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_game_may_be_named_and_a_policy_may_meet_itself(runs, capsys):
    words = ["tournament", f"{runs / 'one'}:agent_0", "--game", "rock_paper_scissors"]
    assert run([*words, "--episodes", "2"]) == 0
    assert "2 episodes per pair and seat" in capsys.readouterr().out
    words = ["tournament", "random", "tactician", "--game", "connect_four", "--episodes", "2"]
    assert run(words) == 0
    assert "connect_four: mean return" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("{one} {one}:agent_0", "has several policies; name one of agent_0, agent_1, as in"),
        ("{one} --until rank of the top 3", 'until: this is "rank"; it may be "rank of the top'),
        ("{one}:agent_7 random", "there is no policy 'agent_7'; there are agent_0, agent_1"),
        ("{one}:agent_0@99999 random", "has no version 99999 of agent_0; it has"),
        ("nowhere/x:agent_0 random", "nowhere/x is no run directory: it does not exist"),
        ("random random", "no entrant is a policy of a run, so --game must name the game"),
        ("{one}:agent_0 tacticia", "rock_paper_scissors has no scripted policy 'tacticia'; it"),
        ("{one}:agent_0 random --game kuhn_poker", "play agent_0 of kuhn_poker: it observes"),
        (
            "{one}:agent_0 random --checkpoints 1",
            "--checkpoints works with a single run only",
        ),
        ("{one} --game tag", "--game works with several entrants only; the checkpoints of"),
        ("{one} --env.options.rounds 3", "--env.options works with several entrants only"),
        ("", "name the entrants: a run, or several RUN:policy; or use --resume DIR"),
        ("--resume {one}", "is not a tournament directory: it has no tournament.json"),
        (
            "--resume {one} --seed 3",
            "--resume continues a tournament with its own options; leave out",
        ),
        ("{one}:all@best random", "all@frozen their frozen copies"),
        ("{one}:all@frozen random", "has saved no frozen copy yet"),
    ],
)
def test_mistakes_are_told_in_one_line(words, said, runs, capsys):
    assert run(["tournament", *words.format(one=runs / "one").split()]) in (1, 2)
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1


def matches_in(directory):
    return read_records(directory / "ledger.bin")[1]


def told_json(capsys):
    return json.loads(capsys.readouterr().out)


def test_the_same_command_goes_on_and_so_does_resume(runs, tmp_path, capsys):
    words = ["tournament", f"{runs / 'one'}:agent_0", "random", "--format", "json"]
    assert run([*words, "--episodes", "4", "--seed", "2"]) == 0
    first = told_json(capsys)
    directory = Path(first["directory"])
    assert directory.parent == Path("runs/tournaments")
    assert directory.name.startswith("rock_paper_scissors-")
    assert len(matches_in(directory)) == 16
    assert run([*words, "--episodes", "4", "--seed", "2"]) == 0
    assert told_json(capsys) == first
    assert len(matches_in(directory)) == 16
    assert run(["tournament", "--resume", str(directory), "--episodes", "7", "--json"]) == 0
    more = told_json(capsys)
    assert more["matches"] == [[7, 14], [14, 7]]
    assert len(matches_in(directory)) == 28
    assert run(["tournament", "--resume", str(directory)]) == 0
    assert "7 episodes per pair and seat" in capsys.readouterr().out
    # Another seed, another tournament.
    assert run([*words, "--episodes", "4", "--seed", "3"]) == 0
    assert told_json(capsys)["directory"] != first["directory"]
    named = [*words, "--episodes", "7", "--seed", "2", "--directory", str(tmp_path / "named")]
    assert run(named) == 0
    assert told_json(capsys) == more | {"directory": str(tmp_path / "named")}


@pytest.mark.slow
def test_checkpoints_are_resumed_too(tmp_path, capsys):
    tree = {
        "game": "rock_paper_scissors",
        "schedule": "sequential",
        "policy": {"algorithm": "ppo", "network": {"hidden": (4,)}},
        "run": {"turns": 100, "directory": tmp_path / "run", "evaluate_episodes": 0},
        "checkpoint": {"evaluate_episodes": 0},
    }
    train(load_config(tree), PlainView())
    where = ["--directory", str(tmp_path / "t")]
    assert run(["tournament", str(tmp_path / "run"), "--episodes", "2", *where]) == 0
    before = len(matches_in(tmp_path / "t"))
    assert run(["tournament", "--resume", str(tmp_path / "t"), "--episodes", "4"]) == 0
    assert len(matches_in(tmp_path / "t")) == 2 * before
    capsys.readouterr()
    # Weights that neither the tournament nor the run has any more are gone.
    (tmp_path / "t" / "weights.npz").unlink()
    for file in (tmp_path / "run" / "weights").iterdir():
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert run(["tournament", "--resume", str(tmp_path / "t"), "--episodes", "6"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot be continued: " in said
    assert "which " + str(tmp_path / "run") + " no longer has" in said


def trained_further(directory, turns):
    """A run of rock-paper-scissors, gone on with to so many turns."""
    tree = {
        "game": "rock_paper_scissors",
        "schedule": "sequential",
        "policy": {
            "algorithm": "ppo",
            "network": {"hidden": (4,)},
            "ppo": {"rollout_length": 8},
        },
        "env": {"num_envs": 4},
        "run": {"turns": turns, "directory": directory, "evaluate_episodes": 0},
        "checkpoint": {"every": 0.2, "keep": 500, "evaluate_episodes": 0},
    }
    train(load_config(tree), PlainView(), resume=(directory / "config.yaml").exists())


@pytest.mark.slow
@pytest.mark.parametrize("words", [["{}"], ["{}:agent_0", "random"]])
def test_resume_plays_the_versions_of_before_though_the_run_went_on(words, tmp_path, capsys):
    """The newest weights are meant; a run that goes on has newer ones."""
    place = tmp_path / "run"
    trained_further(place, 300)
    capsys.readouterr()
    named = [word.format(place) for word in words]
    where = ["--directory", str(tmp_path / "t"), "--json"]
    assert run(["tournament", *named, "--episodes", "2", *where]) == 0
    before = told_json(capsys)
    entrants = json.loads((tmp_path / "t" / "tournament.json").read_text())["entrants"]
    trained_further(place, 700)
    capsys.readouterr()
    # The same words name other policies now.
    assert run(["tournament", *named, "--episodes", "2", *where]) == 1
    assert "differ" in capsys.readouterr().err
    assert run(["tournament", "--resume", str(tmp_path / "t"), "--episodes", "3", "--json"]) == 0
    after = told_json(capsys)
    assert after["entrants"] == before["entrants"]
    assert after["matches"][0][0] == before["matches"][0][0] * 3 // 2
    assert json.loads((tmp_path / "t" / "tournament.json").read_text())["entrants"] == entrants


def test_ctrl_c_ends_with_what_there_is(runs, tmp_path, capsys, monkeypatch):
    interrupted = []

    def interrupting(progress, done, wanted):
        progress.done, progress.wanted = done, wanted
        if done and not interrupted:
            interrupted.append(done)
            signal.raise_signal(signal.SIGINT)

    words = ["tournament", f"{runs / 'one'}:agent_0", "random", "--episodes", "2000"]
    where = ["--directory", str(tmp_path / "t"), "--env.options.rounds", "3"]
    with monkeypatch.context() as patched:
        patched.setattr(MatchProgress, "__call__", interrupting)
        assert run([*words, *where]) == 130
    said = capsys.readouterr()
    # Each copy had begun its second match when the first were told of.
    assert "interrupted after 2,048 of 8,000 matches; `remuda tournament --resume" in said.err
    assert said.err.count("\n") == 1
    assert "interrupted: 512 to 1,024 matches per cell" in said.out
    assert sorted(matches_in(tmp_path / "t")["number"].tolist()) == list(range(2048))
    assert run(["tournament", "--resume", str(tmp_path / "t")]) == 0
    assert "2,000 episodes per pair and seat" in capsys.readouterr().out


@pytest.mark.slow
def test_all_policies_of_a_run_and_their_frozen_copies(tmp_path, capsys):
    tree = {
        "game": "rock_paper_scissors",
        "schedule": "sequential",
        "env": {"num_envs": 4},
        "policy": {
            "algorithm": "ppo",
            "network": {"hidden": (4,)},
            "ppo": {"rollout_length": 8},
        },
        "population": {
            "matchmaker": "round_robin",
            "policies": 3,
            "snapshots": {"every": 2, "share": 0.3, "keep": 2},
        },
        "run": {"turns": 200, "directory": tmp_path / "run", "evaluate_episodes": 0},
        "checkpoint": {"evaluate_episodes": 0},
    }
    train(load_config(tree), PlainView())
    capsys.readouterr()
    run_of = tmp_path / "run"
    words = ["tournament", f"{run_of}:all", f"{run_of}:all@frozen", "--episodes", "2", "--json"]
    assert run(words) == 0
    found = told_json(capsys)
    frozen = list(remuda.load(run_of).frozen)
    assert frozen
    assert found["entrants"] == ["policy_0", "policy_1", "policy_2", *frozen]
    assert run(["tournament", f"{run_of}:all@best"]) == 1
    assert "all@frozen their frozen copies" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_shown(terminal, capsys, monkeypatch):
    monkeypatch.setattr("remuda.ui.terminal.live.PATIENCE", 0.0)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=90)
    with MatchProgress("tag", lambda: False, console) as progress:
        progress(3, 1000)
        progress(250, 1000)
    assert (progress.done, progress.wanted) == (250, 1000)
    shown = console.file.getvalue() if terminal else capsys.readouterr().err
    assert ("250/1000" if terminal else "tournament of tag: 3 of 1,000") in shown


def test_cells_that_were_not_played_are_left_open():
    means = np.array([[np.nan, 1.0], [2.0, 3.0]])
    found = Tournament(("a", "b"), means, means, 9, np.array([[0, 1], [2, 2]]), cut="interrupted")
    console = Console(width=80, file=io.StringIO())
    print_tournament("tag", found, console)
    text = console.file.getvalue()
    assert "nan" not in text
    assert "interrupted: 0 to 2 matches per cell" in text
    assert found.as_summary()["means"] == [[None, 1.0], [2.0, 3.0]]


@pytest.mark.parametrize(
    ("count", "width", "errors"),
    [(3, 60, True), (8, 80, False), (8, 120, True), (16, 160, False), (16, 80, False)],
)
def test_a_table_fits_into_the_terminal(count, width, errors):
    means = np.linspace(-1.0, 1.0, count * count).reshape(count, count)
    names = tuple(f"policy_{place}" for place in range(count))
    found = Tournament(names, means, np.full((count, count), 0.05), 100)
    console = Console(width=width, file=io.StringIO())
    print_tournament("connect_four", found, console)
    shown = console.file.getvalue()
    assert "…" not in shown
    assert all(name in shown for name in names)
    assert ("±0.05" in shown) == errors
    assert all(len(line) <= width for line in shown.splitlines())
    # Every mean stands there whole, each row in as many tables as there are.
    table = shown.partition("self-play")[0]
    told = sorted(float(word.partition("±")[0]) for word in re.findall(r"-?\d+\.\d\d\S*", table))
    assert told == sorted(float(f"{mean:.2f}") for mean in means.flat)


def test_names_that_are_too_long_are_shortened_and_no_number_is():
    names = ("a" * 100, "b" * 90)
    found = Tournament(names, np.array([[0.0, -12.5], [12.5, 0.0]]), np.zeros((2, 2)), 100)
    console = Console(width=60, file=io.StringIO())
    print_tournament("tag", found, console)
    shown = console.file.getvalue()
    assert all(len(line) <= 60 for line in shown.splitlines() if not line.startswith("tag:"))
    assert "-12.5" in shown
