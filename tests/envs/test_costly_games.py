"""Environments that cost to make, refuse to be reset early, or do not close: a run bears them."""

import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import remuda
from assembled import spec_of
from remuda.config import load_config
from remuda.coordinator import best_checkpoint
from remuda.envs import closing
from remuda.envs.registry import make_env, name_game
from remuda.evaluation import evaluate as evaluation
from remuda.evaluation.evaluate import evaluate
from remuda.evaluation.results import Limits
from remuda.policies.stack import layout_size
from remuda.population.specs import policy_specs
from remuda.publish.snapshot import Snapshot
from remuda.runs.run_directory import RunDirectory
from system.test_rng import QUICK

ALIVE: set[int] = set()
MOST = [0]
CALLS: list[str] = []


class Plain(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == 5, False, {}


class Together(ParallelEnv):
    metadata: ClassVar = {"name": "together"}
    possible_agents: ClassVar = ["a", "b"]

    def observation_space(self, agent):
        return Plain.observation_space

    def action_space(self, agent):
        return Plain.action_space

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        return dict.fromkeys(self.agents, np.zeros(1, np.float32)), {a: {} for a in self.agents}

    def step(self, actions):
        self.t += 1
        both, over = self.agents, self.t == 5
        self.agents = [] if over else both
        return (
            dict.fromkeys(both, np.zeros(1, np.float32)),
            dict.fromkeys(both, 1.0),
            dict.fromkeys(both, over),
            dict.fromkeys(both, False),
            {a: {} for a in both},
        )


def trained(game, tmp_path, *, turns=60, episodes=4, envs=2, name="run", **more):
    return remuda.train(
        game,
        env={"num_envs": envs, **more.pop("env", {})},
        policy=QUICK,
        schedule=more.pop("schedule", "sequential"),
        run={"turns": turns, "directory": tmp_path / name, "evaluate_episodes": episodes},
        checkpoint={"evaluate_episodes": 0},
        **more,
    )


class Monitored(Plain):
    """Refuses a reset before the episode is over."""

    on = False

    def reset(self, seed=None, options=None):
        assert not self.on, "reset before the episode was over"
        self.on = True
        return super().reset(seed=seed)

    def step(self, action):
        found = super().step(action)
        self.on = not found[2]
        return found


class MonitoredTogether(Together):
    on = False

    def reset(self, seed=None, options=None):
        assert not self.on, "reset before the episode was over"
        self.on = True
        return super().reset(seed)

    def step(self, actions):
        found = super().step(actions)
        self.on = bool(self.agents)
        return found


@pytest.mark.slow_cases("MonitoredTogether")
@pytest.mark.parametrize("game", [Monitored, MonitoredTogether])
def test_an_environment_that_refuses_an_early_reset_is_played(tmp_path, game):
    """Red before: the turn that compiles ended in a reset in mid-episode."""
    result = trained(game, tmp_path)
    assert (result.evaluation.returns == 5.0).all()
    assert all("no update was made" in note for note in result.notes)


class Counted(Plain):
    """Counts what is done to it."""

    def __init__(self):
        CALLS.append("made")

    def reset(self, seed=None, options=None):
        CALLS.append("reset")
        return super().reset(seed=seed)

    def step(self, action):
        CALLS.append("step")
        return super().step(action)


def test_no_step_is_played_that_does_not_count(tmp_path):
    """Red before: a turn was played to compile, and its steps were in no count."""
    CALLS.clear()
    result = trained(Counted, tmp_path, turns=60, episodes=0)
    assert CALLS.count("step") == result.record.agent_steps


class Raises(Plain):
    """Raises as it is closed."""

    def close(self):
        raise RuntimeError("cannot close")


class RaisesTogether(Together):
    def close(self):
        raise RuntimeError("cannot close")


class RaisesLater(Plain):
    """Raises as it is closed once it was played."""

    played = False

    def step(self, action):
        self.played = True
        return super().step(action)

    def close(self):
        if self.played:
            raise RuntimeError("cannot close")


class Exits(Plain):
    """Ends the program as it is closed, as games with a window do."""

    def close(self):
        sys.exit("cannot close")


@pytest.mark.slow_cases("Exits", "Raises", "RaisesTogether")
@pytest.mark.parametrize("game", [Raises, RaisesTogether, RaisesLater, Exits])
def test_a_close_that_raises_is_a_note(tmp_path, game):
    """Red before: it ended the run before it began."""
    result = trained(game, tmp_path)
    assert (result.evaluation.returns == 5.0).all()
    [note] = [note for note in result.notes if "cannot close" in note]
    assert game.__name__ in note


class Hangs(Plain):
    """Hangs as it is closed."""

    def close(self):
        time.sleep(3600.0)


def test_a_close_that_hangs_is_given_up(tmp_path, monkeypatch):
    """Red before: it hung in silence."""
    monkeypatch.setattr(closing, "LIMIT", 0.05)
    result = trained(Hangs, tmp_path)
    assert (result.evaluation.returns == 5.0).all()
    assert any("Hangs did not end within" in note for note in result.notes)


class Moves(Plain):
    """Changes the current directory, as some simulators do."""

    def __init__(self, to=""):
        os.chdir(to)


def test_a_run_stays_where_it_was_begun(tmp_path, monkeypatch):
    """Red before: the run's relative directory followed the environment's."""
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path)
    result = trained(
        Moves, Path("runs"), env={"options": {"to": str(tmp_path / "away")}}, trace="trace.json"
    )
    assert result.directory.resolve() == (tmp_path / "runs" / "run").resolve()
    assert (tmp_path / "trace.json").exists()
    assert not list((tmp_path / "away").iterdir())


class Costly(Plain):
    """Counts how many there are."""

    def __init__(self, folder=""):
        ALIVE.add(id(self))
        MOST[0] = max(MOST[0], len(ALIVE))
        self.folder = folder
        with Path(folder, str(os.getpid())).open("a") as file:
            file.write(f"{len(ALIVE)}\n")

    def close(self):
        ALIVE.discard(id(self))


def most_alive(folder):
    return max(int(line) for file in folder.iterdir() for line in file.read_text().split())


@pytest.mark.process
@pytest.mark.slow_cases("async-1", "async-3", "sequential-3")
@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("schedule", ["sequential", "async"])
def test_no_more_copies_live_than_are_played(tmp_path, schedule, envs):
    """Red before: evaluation made up to 100 copies, whatever `num_envs` said."""
    ALIVE.clear()
    MOST[0] = 0
    (tmp_path / "most").mkdir()
    result = remuda.train(
        Costly,
        env={"num_envs": envs, "options": {"folder": str(tmp_path / "most")}},
        policy=QUICK,
        schedule=schedule,
        run={"turns": 300, "directory": tmp_path / "run", "evaluate_episodes": 12},
        checkpoint={"every": 0.05, "evaluate_episodes": 5},
    )
    assert len(result.evaluation.returns) == 12
    # A sequential run that measures a checkpoint has one copy more.
    assert most_alive(tmp_path / "most") <= max(2, envs + (schedule == "sequential"))


class Slow(Plain):
    """Takes long to make."""

    def __init__(self):
        time.sleep(0.3)


@pytest.mark.slow
def test_what_is_slow_to_make_is_measured_within_the_time():
    """Red before: nothing was measured, long after the time was up."""
    config = load_config(
        {
            "game": name_game(Slow),
            "env": {"num_envs": 50},
            "policy": QUICK,
            "run": {"evaluate_seconds": 4.0},
        }
    )
    spec = policy_specs(config, make_env(config.game, 1).agents)[0]
    weights = np.zeros(layout_size(spec.network().shapes), np.float32)
    snapshot = Snapshot(weights, 1, 0, 0.0)
    found = evaluate(spec_of(config), {spec.name: snapshot}, 50, limits=Limits(4.0))
    assert len(found.returns) == 50
    assert not found.cut


class RaisesNowAndThen(Plain):
    """Raises in its 200th step."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 200:
            raise RuntimeError("no fuel left")
        return super().step(action)


@pytest.mark.slow
def test_what_restarts_were_for_is_told_at_the_end(tmp_path):
    """Red before: nothing at the end named the exception."""
    result = trained(
        RaisesNowAndThen,
        tmp_path,
        turns=500,
        envs=1,
        episodes=0,
        schedule="async",
        supervision={"backoff": 0.01, "restarts": 9},
    )
    note = result.notes[0]
    assert "RuntimeError in your code" in note
    assert "no fuel left" in note
    assert "actor was restarted 2 times" in note


class NeedsTheMainThread(Plain):
    """Handles a signal, which only a main thread may."""

    def __init__(self, folder=""):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        Path(folder, str(os.getpid())).touch()


@pytest.mark.slow
@pytest.mark.parametrize("by_value", [False, True])
def test_a_checkpoint_is_measured_in_a_main_thread(tmp_path, by_value):
    """Red before: the evaluation failed, so no best checkpoint was kept."""
    game = type("Own", (NeedsTheMainThread,), {}) if by_value else NeedsTheMainThread
    (tmp_path / "by").mkdir()

    class Stops(remuda.Callback):
        def on_checkpoint(self, run, number, path):
            if (tmp_path / "run" / "checkpoints" / "best.json").exists():
                run.stop("it is measured")

    result = remuda.train(
        game,
        env={"options": {"folder": str(tmp_path / "by")}},
        policy=QUICK,
        schedule="async",
        run={"seconds": 100.0, "directory": tmp_path / "run", "evaluate_episodes": 0},
        checkpoint={"every": 0.3, "keep": 1000, "evaluate_episodes": 3},
        callbacks=[Stops()],
    )
    assert result.record.turns
    [best] = (tmp_path / "run" / "checkpoints").glob("best.json")
    assert '"mean_return": 5.0' in best.read_text()


class IsPlayedForEver(Plain):
    """Episodes that never end where checkpoints are measured; it notes that it was closed."""

    def __init__(self, folder=""):
        self.folder = Path(folder)
        self.is_measured = False

    def step(self, action):
        if "evaluation" in Path("/proc/self/comm").read_text():
            self.is_measured = True
            (self.folder / "begun").touch()
            return np.zeros(1, np.float32), 1.0, False, False, {}
        return super().step(action)

    def close(self):
        if self.is_measured:
            (self.folder / "closed").touch()


@pytest.mark.slow
def test_an_environment_is_closed_where_a_measurement_is_given_up(tmp_path):
    """Red before: its process was killed, and a simulator that it had started was left behind."""

    class Stops(remuda.Callback):
        def on_metrics(self, run, row):
            if (tmp_path / "begun").exists():
                run.stop("it is being measured")

    remuda.train(
        IsPlayedForEver,
        env={"options": {"folder": str(tmp_path)}},
        policy=QUICK,
        schedule="async",
        run={"seconds": 100.0, "directory": tmp_path / "run", "evaluate_episodes": 0}
        | {"log_every": 0.25},
        checkpoint={"every": 0.3, "evaluate_episodes": 1},
        callbacks=[Stops()],
    )
    assert (tmp_path / "closed").exists()


class Silent:
    """A process that measures a checkpoint, and does not answer."""

    def start(self, target, args, **_):
        self.end = os.dup(args[0].fileno())
        return self

    def join(self, timeout):
        return False

    def kill(self):
        self.is_killed = True

    def close(self):
        os.close(self.end)


def test_a_measurement_that_hangs_is_told_and_makes_room(tmp_path, monkeypatch):
    """Red before: no checkpoint was measured from then on, without a word."""
    now, silent = [0.0], Silent()
    monkeypatch.setattr(best_checkpoint.forkserver, "start", silent.start)
    monkeypatch.setattr(best_checkpoint, "time", SimpleNamespace(monotonic=lambda: now[0]))
    config = load_config({"game": "kuhn_poker", "run": {"evaluate_seconds": 5.0}})
    process = best_checkpoint.MeasuringProcess(spec_of(config, ()), RunDirectory(tmp_path))
    process.begin(7, {})
    now[0] = 10.0 + best_checkpoint.SLACK - 0.1
    assert process.outcome(0.0) is None
    now[0] += 0.2
    outcome = process.outcome(0.0)
    assert (outcome.found, outcome.failed) == (None, False)
    assert outcome.message == (
        "checkpoint 7 was not measured: a call of the environment does not return"
    )
    assert silent.is_killed


@pytest.mark.slow
def test_a_tournament_makes_no_more_copies_than_its_runs_play(tmp_path):
    """Red before: it made up to 100 copies."""
    (tmp_path / "most").mkdir()
    options = {"folder": str(tmp_path / "most")}
    run = {"turns": 60, "directory": tmp_path / "run", "evaluate_episodes": 0}
    env = {"num_envs": 2, "options": options}
    schedule = {"schedule": "sequential", "checkpoint": {"evaluate_episodes": 0}}
    result = remuda.train(Costly, env=env, policy=QUICK, run=run, **schedule)
    entrants = [*remuda.load(result).values(), "random"]

    def most(**settings):
        for file in (tmp_path / "most").iterdir():
            file.unlink()
        remuda.tournament(entrants, game=Costly, options=options, episodes=20, **settings)
        return most_alive(tmp_path / "most")

    ALIVE.clear()
    assert most() == 2
    assert most(copies=7) == 7


@pytest.mark.parametrize("seconds", [0.2, 100.0])
def test_the_time_begins_with_the_first_constructor(seconds, monkeypatch):
    """Red before: more copies were made although the first took longer than there was."""
    config = load_config({"game": "kuhn_poker", "env": {"num_envs": 50}})
    spec, clock, made = spec_of(config), [0.0], []

    def make(env, copies, check=True):
        made.append(copies)
        clock[0] += 30.0
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(type(spec.env), "make", make)
    monkeypatch.setattr(evaluation, "GAMES", {})
    monkeypatch.setattr(evaluation, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    copies, limits = evaluation.copies_within(spec, 50, Limits(seconds))
    assert (copies, made) == (1, [1])
    assert limits.seconds == max(seconds - 30.0, 0.0)
    if seconds < 30.0:
        found = evaluate(spec, {}, 50, limits=Limits(seconds))
        assert (len(found.returns), found.asked, found.cut) == (0, 50, "the time was up")
        assert made == [1, 1]
