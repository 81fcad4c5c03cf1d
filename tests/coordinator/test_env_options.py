"""Environment options that callbacks change during a run: a curriculum."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import remuda
from callback_runs import FOR_LONG
from equivalence.runs import assert_same, configure, outcome
from refusals import refuses
from remuda.config import load_config
from remuda.coordinator.callback import ActiveRun
from remuda.envs.description import EnvSpec
from remuda.envs.live_options import LiveEnvOptions
from remuda.population.ledger.ledger import (
    LOST,
    option_records,
    options_in,
    read_options,
    record_type,
)
from remuda.population.ledger.lineage import read_matches
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.training.run import train as train_config
from remuda.ui.plots.over_time import read_ratings
from remuda.ui.terminal.live import PlainView

SMALL = {
    "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 20}},
    "run": {"turns": 400, "evaluate_episodes": 4, "log_every": 0.01},
    "env": {"num_envs": 2},
    "checkpoint": {"evaluate_episodes": 0},
}


class Sets:
    """Sets options when the run starts: (name, value) or (name, value, turn)."""

    def __init__(self, *changes):
        self._changes = changes

    def on_start(self, run):
        for change in self._changes:
            run.set_env_option(*change)


def train(directory, *callbacks, game="growing:Growing", schedule="sequential", **settings):
    return remuda.train(
        game,
        config=SMALL,
        schedule=schedule,
        run=settings.pop("run", {}) | {"directory": directory},
        view=PlainView(),
        callbacks=callbacks,
        **settings,
    )


def lines(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def corridors(evaluation):
    return set(evaluation.episode_metrics["corridor"].tolist())


def test_a_change_is_recorded_and_evaluated(tmp_path):
    result = train(tmp_path / "run", Sets(("length", 7, 100)))
    assert corridors(result.evaluation) == {7.0}
    found = lines(tmp_path / "run")
    assert found[-1]["env_options"] == {"length": 7}
    for line in found:
        assert line["env_options"] == ({"length": 7} if line["turns"] >= 100 else {})
    again = remuda.load(result)
    assert corridors(again.evaluate(4)) == {7.0}
    assert again.metrics()["env_options/length"][-1] == 7.0


def test_without_a_change_nothing_differs(tmp_path):
    result = train(tmp_path / "run")
    assert corridors(result.evaluation) == {3.0}
    assert lines(tmp_path / "run")[-1]["env_options"] == {}


def test_a_callback_reads_what_is_in_force(tmp_path):
    found = []

    class Grows:
        def on_metrics(self, run, row):
            found.append((run.turns, run.env_options().get("length", 3), row["game/corridor"]))
            if not run.env_options():
                run.set_env_option("length", 9)
            elif row["game/corridor"] == 9.0:
                run.stop("it has grown")

    train(tmp_path / "run", Grows(), run={"turns": FOR_LONG})
    assert found[0][1] == 3
    assert found[-1][1:] == (9, 9.0)


@pytest.mark.process
def test_lockstep_equals_sequential(tmp_path):
    tree = {"game": "growing:Growing", "env": {"num_envs": 3, "options": {}}}
    tree |= {"policy": SMALL["policy"], "run": {"turns": 300}}
    change = [Sets(("length", 8), ("length", 5, 130), ("pay", 0.5, 200))]
    found = {}
    for name, schedule in (("plain", "sequential"), ("sequential",) * 2, ("lockstep",) * 2):
        config = configure(tmp_path / name, schedule=schedule, **tree)
        callbacks = [] if name == "plain" else change
        train_config(config, PlainView(), user_callbacks=callbacks)
        found[name] = outcome(tmp_path / name)
    assert_same(found["sequential"], found["lockstep"], updates=3)
    weights = [np.concatenate([*found[each][0].values()]) for each in ("lockstep", "plain")]
    assert not np.array_equal(*weights)


@pytest.mark.parametrize("stop", [100, 200])
def test_a_resumed_run_goes_on_exactly_with_the_change(stop, tmp_path):
    """The second change is ahead of the checkpoint, or in force there."""
    change = Sets(("length", 6, 75), ("pay", 0.25, 155))
    whole = train(tmp_path / "whole", change, run={"turns": 300})
    train(tmp_path / "parts", change, run={"turns": stop, "evaluate_episodes": 0})
    parts = remuda.train(
        resume=tmp_path / "parts", run={"turns": 300, "evaluate_episodes": 4}, view=PlainView()
    )
    assert corridors(parts.evaluation) == {6.0}
    weights = [
        remuda.load(each)["agent_0"].weights() for each in (whole.directory, parts.directory)
    ]
    for name, array in weights[0].items():
        np.testing.assert_array_equal(array, weights[1][name])
    assert lines(tmp_path / "parts")[-1]["env_options"] == {"length": 6, "pay": 0.25}


@pytest.mark.process
def test_each_checkpoint_is_evaluated_with_its_own_options(tmp_path):
    class Saves(Sets):
        def on_metrics(self, run, row):
            run.save()

    result = train(
        tmp_path / "run",
        Saves(("length", 5, 100), ("length", 11, 800)),
        run={"turns": 1_600},
        checkpoint={"keep": 100, "evaluate_episodes": 2},
    )
    files = RunDirectory.open(result.directory)
    store, found = files.checkpoints, set()
    for number in store.numbers():
        turns = store.manifest(number).turns
        changed = load_run(files, number)[0].env.changed
        assert changed == ({} if turns < 100 else {"length": 5 if turns < 800 else 11})
        found.add(changed.get("length"))
        length = float(changed.get("length", 3))
        assert corridors(remuda.load(result).evaluate(2, checkpoint=number)) == {length}
    assert 11 in found
    assert store.best()["env_options"] == {"length": 11}


@pytest.mark.process
@pytest.mark.slow_cases("lockstep")
@pytest.mark.parametrize("schedule", ["async", "lockstep"])
def test_worker_processes_get_the_change(schedule, tmp_path):
    env = {"num_envs": 4, "workers": 2}
    result = train(
        tmp_path / "run", Sets(("length", 7)), game="growing:Corridor", schedule=schedule, env=env
        | {"episode_metrics": {"corridor": "last"}},
    )  # fmt: skip
    assert {line["episode_metrics"]["corridor"] for line in lines(tmp_path / "run")} <= {7.0, None}
    assert corridors(result.evaluation) == {7.0}


@pytest.mark.process
@pytest.mark.parametrize("game", ["growing:Growing", "growing:Corridors", "growing:InTurn"])
def test_several_actors_get_the_change(game, tmp_path):
    result = train(
        tmp_path / "run",
        Sets(("length", 7)),
        game=game,
        schedule="async",
        env={"num_envs": 4},
        actor={"processes": 2},
        run={"turns": 400, "evaluate_episodes": 0},
    )
    assert result.record.env_options == {"length": 7}
    if game == "growing:Growing":  # whose steps are not all of one length
        assert result.record.episode_metrics == {"corridor": 7.0}
    else:
        assert {p.episode_length for p in result.record.policies.values()} == {7.0}


@pytest.mark.process
def test_an_actor_that_is_killed_starts_again_with_the_change(tmp_path):
    class Kills:
        """Changes the option, kills the actor, and waits for the successor's first episodes."""

        def __init__(self):
            self.killed, self.after = None, []

        def on_metrics(self, run, row):
            path = run.directory / "status.json"
            if not path.exists():
                return
            status = json.loads(path.read_text())
            actor = next(role for role in status["roles"] if role["name"] == "actor")
            if self.killed is None and actor["pid"]:
                run.set_env_option("length", 9)
                self.killed = actor["pid"]
                os.kill(self.killed, signal.SIGKILL)
            elif actor["pid"] not in (None, self.killed):
                self.after.append(row["game/corridor"])
                if self.after[-1] == 9.0:
                    run.stop("the successor plays with the change")

    kills = Kills()
    result = train(tmp_path / "run", kills, schedule="async", run={"turns": FOR_LONG})
    assert result.restarts == {"actor": 1}
    assert kills.after[-1] == 9.0
    assert corridors(result.evaluation) == {9.0}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("speed", 1), "length, pay"),
        (("length", 0), "at least 1"),
        (("length", 5, -1), "from_turn"),
        (("length", 5, 1.5), "from_turn"),
        (("pay", float("nan")), "plain data"),
    ],
)
def test_what_cannot_be_set_is_refused_and_nothing_is_changed(change, named, tmp_path):
    class Tries:
        def on_start(self, run):
            with refuses(remuda.UsageError, named):
                run.set_env_option(*change)
            assert run.env_options() == {}
            self.tried = True

        def on_end(self, run, result):
            with pytest.raises(remuda.UsageError, match="ended"):
                run.set_env_option("length", 5)

    tries = Tries()
    train(tmp_path / "run", tries, run={"turns": 10, "evaluate_episodes": 0})
    assert tries.tried


def test_an_environment_without_options_is_named(tmp_path):
    with refuses(remuda.RemudaError, "none"):
        train(tmp_path / "run", Sets(("length", 5)), game="support:Tape")


def test_a_turn_that_has_passed_means_now(tmp_path):
    """Red before: the change was forgotten, and reported as made."""
    train(tmp_path / "run", Sets(("length", 5, 60)), run={"turns": 100, "evaluate_episodes": 0})

    class Late:
        def on_start(self, run):
            assert run.env_options() == {"length": 5}
            run.set_env_option("length", 7, from_turn=20)
            assert run.env_options() == {"length": 7}
            run.set_env_option("length", 8, from_turn=100)

    settings = {"turns": 140, "evaluate_episodes": 2}
    again = remuda.train(
        resume=tmp_path / "run", run=settings, view=PlainView(), callbacks=[Late()]
    )
    assert corridors(again.evaluation) == {8.0}


def test_the_newest_change_holds_though_the_last_poll_was_long_ago():
    """Red before: it was put before a change that was in force already."""
    spec = EnvSpec.of("growing:Growing", {})
    options, played = LiveEnvOptions(spec), [0]
    run = ActiveRun(Path("run"), load_config({"game": "growing:Growing"}), ("agent_0",))
    run.attach(None, None, options, lambda: played[0])
    run.set_env_option("length", 5, from_turn=50)
    played[0] = 60
    run.set_env_option("length", 7)
    assert run.env_options() == {"length": 7}
    assert options.changes() == [(60, "length", 7)]


def test_a_page_sees_all_options_with_their_values():
    spec = EnvSpec.of("growing:Growing", {"pay": 0.5})
    run = ActiveRun(Path("run"), load_config({"game": "growing:Growing"}), ("agent_0",))
    run.attach(None, None, LiveEnvOptions(spec), lambda: 0)
    run.set_env_option("length", 4)
    assert run.changeable_env_options() == {"length": 4, "pay": 0.5}
    single = EnvSpec.of("growing:Corridors", {})  # reports no options: the default is known
    run = ActiveRun(Path("run"), load_config({"game": "growing:Corridors"}), ("a",))
    run.attach(None, None, LiveEnvOptions(single), lambda: 0)
    assert run.changeable_env_options() == {"length": 3, "note": None}


def test_defaults_that_are_no_plain_data_are_not_known(monkeypatch):
    """They could not be sent to the page, and the request ended the run."""
    defaults = {"length": {1, 2}, "note": float("nan")}
    monkeypatch.setattr("remuda.envs.live_options.default_options", lambda _: defaults)
    options = LiveEnvOptions(EnvSpec.of("growing:Corridors", {}))
    assert options.values(0) == {"length": None, "note": None}


TWO = {
    "population": {"matchmaker": "self_play"},
    "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 20}},
    "env": {"num_envs": 2},
    "checkpoint": {"evaluate_episodes": 0, "keep": 100},
}


def population_run(directory, turns, *changes, game="growing:Corridors", schedule="sequential"):
    return remuda.train(
        game,
        config=TWO,
        schedule=schedule,
        run={"directory": directory, "turns": turns, "evaluate_episodes": 0},
        view=PlainView(),
        callbacks=[Sets(*changes)],
    )


def test_the_ledger_records_the_changes(tmp_path):
    long = "x" * 300
    changes = [("length", 5), ("length", 9, 60), ("note", long, 90)]
    population_run(tmp_path / "whole", 120, *changes)
    found = read_options(tmp_path / "whole" / "ledger.bin")
    assert [each for _, each in found] == [
        {"length": 5},
        {"length": 9},
        {"length": 9, "note": long},
    ]
    matches = [number for number, _ in found]
    assert matches[0] == 0 < matches[1] <= matches[2]
    run = remuda.load(tmp_path / "whole")
    ledger = run.ledger()
    assert len(ledger["match"]) == read_matches(tmp_path / "whole" / "ledger.bin")
    assert (ledger["match"] >= 0).all()
    assert run.payoffs().counts.sum() > 0
    report = read_ratings(tmp_path / "whole" / "ledger.bin")
    assert report.changes == {matches[1]: "length 9", matches[2]: f"length 9, note {long}"} or (
        matches[1] == matches[2]
    )


def test_a_resumed_ledger_is_that_of_a_whole_run(tmp_path):
    """The run stops before a change, and after it before a copy was reset."""
    changes, game = [("length", 6), ("length", 20, 60)], "growing:Growing"
    population_run(tmp_path / "whole", 160, *changes, game=game)
    whole = (tmp_path / "whole" / "ledger.bin").read_bytes()
    assert len(read_options(tmp_path / "whole" / "ledger.bin")) == 2
    for stop in (40, 62):
        population_run(tmp_path / f"{stop}", stop, *changes, game=game)
        settings = {"turns": 160, "evaluate_episodes": 0}
        remuda.train(resume=tmp_path / f"{stop}", run=settings, view=PlainView())
        assert (tmp_path / f"{stop}" / "ledger.bin").read_bytes() == whole


@pytest.mark.process
def test_the_ledger_of_lockstep_is_that_of_sequential(tmp_path):
    changes = [("length", 5), ("length", 9, 60)]
    for schedule in ("sequential", "lockstep"):
        population_run(tmp_path / schedule, 120, *changes, schedule=schedule)
    found = [(tmp_path / each / "ledger.bin").read_bytes() for each in ("sequential", "lockstep")]
    assert found[0] == found[1]


def test_recorded_options_that_repeat_or_are_cut_are_skipped():
    empty = np.zeros(1, record_type(2))
    one, two = (option_records({"length": n, "note": "x" * 50}, n, empty) for n in (1, 2))
    lost = empty.copy()
    lost["kind"] = LOST
    records = np.concatenate((one, one, two[:1], lost, two, one[:2]))
    assert [found["length"] for _, found in options_in(records)] == [1, 2]


def test_damaged_records_of_options_are_skipped():
    empty = np.zeros(3, record_type(2))
    empty["kind"][1] = 6  # one byte of a match
    whole = option_records({"length": 3}, 1, empty[:1])
    broken = whole.copy()
    broken["oldest"][0, 0] ^= 0xFF
    records = np.concatenate((empty, broken, whole))
    assert [found["length"] for _, found in options_in(records)] == [3]
