"""Environment options with which saved policies play after the run changed them."""

import json
import shutil

import numpy as np
import pytest

import remuda
from remuda.evaluation.trajectories import Trajectories
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.solvers.exploit.game import AgainstTargets
from remuda.solvers.exploit.parse_target import find_target
from remuda.solvers.exploit.target import Target
from remuda.training.saved.games import find_saved_game
from remuda.ui.analysis.tournament_setup import recorded_setup, set_up
from remuda.ui.cli.main import run
from remuda.ui.play.playing import game_of
from remuda.ui.reports.summary import summarise
from remuda.ui.terminal.live import PlainView


class Sets:
    """Changes the length of corridors from turns on."""

    def __init__(self, *changes):
        self.changes = changes

    def on_start(self, run):
        for change in self.changes:
            run.set_env_option("length", *change)


def train(directory, turns, *changes):
    return remuda.train(
        "growing:Corridors",
        schedule="sequential",
        policy={"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 20}},
        env={"num_envs": 2},
        run={"directory": directory, "turns": turns, "evaluate_episodes": 0},
        checkpoint={"evaluate_episodes": 0, "keep": 100},
        view=PlainView(),
        callbacks=[Sets(*changes)],
    ).directory


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A run whose corridors had 3 squares, then 5, and 9 at the end."""
    directory = tmp_path_factory.mktemp("grown") / "grown"
    train(directory, 60, (5, 30), (9, 90))
    remuda.train(resume=directory, run={"turns": 120}, view=PlainView())
    return directory


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run whose corridors had 3 squares."""
    return train(tmp_path_factory.mktemp("plain") / "plain", 40)


@pytest.fixture(scope="module")
def early(grown):
    """The number of a checkpoint with corridors of 5 squares."""
    files = RunDirectory.open(grown)
    numbers = files.checkpoints.numbers()
    return next(n for n in numbers if load_run(files, n)[0].env.changed == {"length": 5})


def lengths(env):
    env.reset(np.arange(env.num_envs), np.ones(env.num_envs, np.bool_))
    env.begin_turn()
    out = np.zeros((env.num_envs, 2), np.float32)
    env.observe(0, out)
    env.close()
    return out[:, 1].tolist()


def test_final_weights_carry_the_options(grown, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(grown, copy)
    shutil.rmtree(copy / "checkpoints")
    files = RunDirectory.open(copy)
    assert load_run(files)[0].env.changed == {"length": 9}
    assert remuda.load(copy).evaluate(2).returns.tolist() == [[9.0, 9.0]] * 2


def test_exploiters_meet_a_run_in_its_own_environment(grown, early, tmp_path):
    for target, length in ((str(grown), 9), (f"{grown}:a@checkpoint-{early}", 5)):
        found = find_target(target)
        assert found.env.changed == {"length": length}
        found.save(tmp_path / "target")
        assert Target.load(tmp_path / "target").env.changed == {"length": length}
        game = AgainstTargets(2, targets=[str(tmp_path / "target")], seats=[0])
        assert lengths(game) == [length, length]
    several = find_target(str(grown), [f"a@checkpoint-{early}", "b"])
    assert several.env.changed == {"length": 5}
    (note,) = several.notes
    assert "length 9" in note
    assert find_target(f"{grown}:a", options={"length": 4}).env.options == {"length": 4}


def test_a_tournament_plays_with_the_options_of_the_first_entrant(grown, plain, early, tmp_path):
    crossplay = set_up([f"{grown}:a", f"{plain}:a", f"{grown}:b@checkpoint-{early}"], "", {})
    of_plain, of_early = crossplay.notes
    assert str(plain) in of_plain
    assert "length at its default" in of_plain
    assert f"checkpoint-{early}" in of_early
    assert "length 5" in of_early
    setup = crossplay.setup(0, False)
    assert lengths(setup.env.make(1)) == [9]
    assert set_up([f"{plain}:a", f"{grown}:a"], "", {}).options == {}
    assert set_up([f"{grown}:a"], "", {"length": 4}).options == {"length": 4}


def test_a_tournament_on_disk_keeps_the_options(grown, plain, tmp_path, capsys):
    command = ["tournament", f"{grown}:a", f"{plain}:a", "--episodes", "2", "--processes", "1"]
    assert run([*command, "--directory", str(tmp_path / "t"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert np.unique(np.array(found["means"])).tolist() == [9.0]
    assert recorded_setup(tmp_path / "t")[0].env.changed == {"length": 9}
    assert run(["tournament", "--resume", str(tmp_path / "t"), "--episodes", "4"]) == 0


def test_checkpoints_of_one_run_meet_with_the_options_of_its_end(grown, early, tmp_path, capsys):
    command = ["tournament", str(grown), "--checkpoints", f"[{early}]", "--episodes", "2"]
    command += ["--processes", "1", "--directory", str(tmp_path / "t")]
    assert run([*command, "--format", "json"]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["means"] == [[9.0]]
    assert "length 9" in found.err
    assert recorded_setup(tmp_path / "t")[0].env.changed == {"length": 9}


def test_a_watched_run_plays_with_its_options(grown, early):
    for seat, length in ((f"{grown}:a", 9), (f"{grown}:a@checkpoint-{early}", 5)):
        played = game_of(None, {}, {"a": seat})
        assert lengths(played.game.make(1, **played.options)) == [length]
        assert f"length {length}" in played.notes[0]
    assert find_saved_game("growing:Corridors", {}, [f"{grown}:a"]).options == {}


def test_recorded_episodes_and_their_clones_keep_the_options(grown, tmp_path):
    remuda.load(grown).record(4, to=tmp_path / "data.npz")
    data = Trajectories.load(tmp_path / "data.npz")
    assert data.env.changed == {"length": 9}
    assert data["a"].lengths.tolist() == [9] * 4
    clone = remuda.imitate(data, directory=tmp_path / "clone", epochs=1)
    assert clone.evaluate(2).returns.tolist() == [[9.0, 9.0]] * 2
    assert summarise(clone.path).state == "cloned"  # red before: did not start
