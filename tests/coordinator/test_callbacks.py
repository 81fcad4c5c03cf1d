"""Callbacks: what they are told, what they may do, and what happens if they fail."""

import copy
import pickle
import time
from types import SimpleNamespace

import numpy as np
import pytest

import remuda
from callback_runs import FOR_LONG, SMALL, StopsAtOnce, train
from refusals import refuses
from remuda.assembly.assembly import Assembly
from remuda.coordinator.callback import MetricsRow
from remuda.errors import CallbackError, UsageError, UserCodeError
from remuda.runs.run_directory import RunDirectory
from remuda.training import callback_dispatch
from remuda.training import run as training
from remuda.training.callback_dispatch import NAMES, Events, check_callback
from remuda.ui.terminal.live import PlainView


class Notes(remuda.Callback):
    """Notes all that it is told."""

    def __init__(self):
        self.told = []

    def on_start(self, run):
        self.told.append(("start", run.turns))

    def on_episodes(self, run, episodes):
        self.told.append(("episodes", episodes))

    def on_metrics(self, run, row):
        self.told.append(("metrics", row))

    def on_checkpoint(self, run, number, path):
        self.told.append(("checkpoint", (number, (path / "manifest.json").is_file())))

    def on_end(self, run, result):
        self.told.append(("end", result))

    def of(self, event):
        return [what for name, what in self.told if name == event]


def test_settings_without_effect_are_in_the_result(tmp_path):
    """Red before: they were only said at the start, and `quiet` says nothing."""
    own = {"agent_1": {"algorithm": "dqn", "batch_size": 16, "ppo": {"clip": 0.3}}}
    settings = SMALL | {"run": {"turns": 60, "evaluate_episodes": 0, "directory": tmp_path / "run"}}
    result = remuda.train("support:Tape", config=settings, policies=own, view="quiet")
    assert [note for note in result.notes if note.startswith("policies.agent_1.ppo.clip ")]
    assert remuda.load(result).summary()["notes"] == list(result.notes)


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.__setitem__("edge", 1.0),
        lambda row: row.update(edge=1.0),
        lambda row: row.setdefault("edge", 1.0),
        lambda row: row.pop("turns"),
    ],
)
def test_a_row_of_metrics_is_not_changed(tmp_path, change):
    """Red before: a new column was dropped without a word."""

    class Writes(remuda.Callback):
        def on_metrics(self, run, row):
            change(row)

    with refuses(CallbackError, "run.log(name, value)", "dict(row)"):
        train(tmp_path / "run", Writes())


def test_a_copy_of_a_row_of_metrics_may_be_changed():
    row = MetricsRow(turns=3.0)
    for copied in (
        dict(row),
        row.copy(),
        row | {},
        copy.copy(row),
        pickle.loads(pickle.dumps(row)),
    ):
        copied["edge"] = 1.0
        assert copied == {"turns": 3.0, "edge": 1.0}


def test_a_run_tells_its_beginning_episodes_metrics_checkpoints_and_end(tmp_path):
    notes = Notes()
    result = train(tmp_path / "run", notes)
    assert notes.told[0] == ("start", 0)
    assert notes.told[-1] == ("end", result)
    assert result.evaluation is not None  # it is told after greedy play
    metrics = remuda.load(result).metrics()
    rows = notes.of("metrics")
    assert len(rows) == metrics.num_rows
    assert set(rows[-1]) == set(metrics)
    for name, column in metrics.items():
        assert np.array([row[name] for row in rows]) == pytest.approx(column, nan_ok=True)
    assert notes.of("checkpoint") == [(remuda.load(result).checkpoints[-1], True)]
    played = result.record.policies["agent_0"].episodes
    told = [e["agent_0"] for e in notes.of("episodes")]
    assert sum(each.episodes for each in told) == played > 0
    total = sum(each.episodes * each.mean_return for each in told)
    lines = metrics["agent_0/mean_return"], np.diff(metrics["agent_0/episodes"], prepend=0)
    assert total == pytest.approx(np.nansum(lines[0] * lines[1]))


@pytest.mark.slow
def test_a_resumed_run_tells_only_its_own_episodes(tmp_path):
    first = train(tmp_path / "run")
    notes = Notes()
    result = remuda.train(
        resume=first, run={"turns": 400}, view=PlainView(), callbacks=[notes], policy={}
    )
    both = [each.record.policies["agent_0"].episodes for each in (first, result)]
    told = sum(e["agent_0"].episodes for e in notes.of("episodes"))
    assert told == both[1] - both[0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["sequential", "async"])
def test_a_callback_ends_the_run_in_order(tmp_path, schedule):
    result = train(tmp_path / "run", StopsAtOnce(), run={"turns": FOR_LONG}, schedule=schedule)
    assert result.ended == "stopped by a callback: enough was seen"
    assert result.finished
    assert result.evaluation is not None
    run = remuda.load(result)
    assert run.checkpoints
    assert run.summary()["turns"] == run.metrics()["turns"][-1] > 0
    assert run["agent_0"].version > 0


class Fails(remuda.Callback):
    def __init__(self, event):
        self.told = []
        setattr(self, event, self.fail)

    def fail(self, run, *details):
        self.told.append(details)
        raise ZeroDivisionError("by\nzero")  # here

    def on_end(self, run, result):
        self.told.append(result)


LINE = 1 + next(i for i, line in enumerate(open(__file__)) if line.endswith("# here\n"))  # noqa: SIM115


@pytest.mark.slow
@pytest.mark.parametrize("event", ["on_metrics", "on_episodes", "on_checkpoint"])
def test_one_that_fails_ends_the_run_in_order_and_is_told_with_its_line(tmp_path, event):
    fails, notes = Fails(event), Notes()
    run = {"turns": FOR_LONG}
    checkpoint = {"every": 0.1, "evaluate_episodes": 0}
    with pytest.raises(CallbackError) as failed:
        train(tmp_path / "run", fails, notes, run=run, checkpoint=checkpoint)
    said = str(failed.value)
    assert said.startswith(f"callback Fails.{event} failed: ZeroDivisionError in your code (")
    assert f"test_callbacks.py, line {LINE}, in fail): by zero. The run ended cleanly" in said
    assert said.endswith(f"remuda train --resume {tmp_path / 'run'}")
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    result = notes.told[-1][1]
    assert [len(fails.told), fails.told[-1]] == [2, result]  # not called again but for its end
    assert not result.finished
    assert result.evaluation is None
    run = remuda.load(tmp_path / "run")
    assert run.summary()["ended"].startswith(f"callback Fails.{event} failed")
    assert run["agent_0"].version > 0
    last = notes.of("checkpoint")[-1][0]
    assert run.checkpoints[-1] == last
    assert notes.of("metrics")[-1]["turns"] == run.metrics()["turns"][-1] == result.record.turns
    assert "ZeroDivisionError: by\nzero" in (tmp_path / "run/logs/coordinator.log").read_text()
    assert remuda.train(
        resume=run, run={"turns": result.record.turns + 100}, view=PlainView()
    ).finished


def test_one_that_fails_before_the_run_begins_stops_it_there(tmp_path):
    notes = Notes()
    with refuses(CallbackError) as e:
        train(tmp_path / "run", Fails("on_start"), notes)
    assert "resume" not in str(e.value)
    assert [name for name, _ in notes.told] == ["start", "end"]
    assert notes.told[-1] == ("end", None)


@pytest.mark.slow
def test_one_that_fails_at_the_end_costs_nothing(tmp_path):
    with refuses(CallbackError) as failed:
        train(tmp_path / "run", Fails("on_end"))
    assert "resume" not in str(failed.value)  # there is nothing left to go on with
    run = remuda.load(tmp_path / "run")
    assert run.summary()["finished"]
    assert run.summary()["evaluation"]


@pytest.mark.slow
def test_the_end_is_told_once_whatever_comes_after_it(tmp_path, monkeypatch):
    notes = Notes()

    class Breaks(Events):
        def end(self, result):
            super().end(result)
            raise OSError("after the end")

    monkeypatch.setattr(training, "Events", Breaks)
    with refuses(UserCodeError):
        train(tmp_path / "run", notes)
    assert len(notes.of("end")) == 1
    assert notes.of("end")[0].finished


@pytest.mark.process
@pytest.mark.slow
def test_a_role_that_dies_for_good_is_told_as_an_end_without_result(tmp_path):
    notes = Notes()
    with pytest.raises(remuda.RemudaError):
        remuda.train(
            "support:BreaksInTurnThree",
            config=SMALL,
            schedule="async",
            supervision={"restarts": 0},
            run={"directory": tmp_path / "run"},
            view=PlainView(),
            callbacks=[notes],
        )
    assert notes.told[-1] == ("end", None)
    assert [name for name, _ in notes.told].count("end") == 1


class Says(PlainView):
    def __init__(self):
        super().__init__()
        self.said = []

    def say(self, message):
        self.said.append(message)


@pytest.mark.slow
def test_the_run_goes_on_without_one_that_is_not_essential(tmp_path):
    fails, view = Fails("on_metrics"), Says()
    fails.essential = False
    result = remuda.train(
        "support:Tape",
        config=SMALL,
        run={"directory": tmp_path / "run"},
        view=view,
        callbacks=[fails],
    )
    assert result.finished
    assert len(fails.told) == 2  # it was called once, and told the end
    (said,) = [each for each in view.said if "Fails" in each]
    assert "by zero; the run continues without it" in said


@pytest.mark.slow
def test_a_slow_callback_is_no_hang_and_play_goes_on(tmp_path, monkeypatch):
    made = []

    class Seen(Assembly):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            made.append(self)

    class Slow(remuda.Callback):
        def on_metrics(self, run, row):
            board, begun = made[-1].scoreboard, time.monotonic()
            before = board.turns(), board.learn("agent_0")[0]

            def is_alive():
                return board.turns() > before[0] + 100 and board.learn("agent_0")[0] > before[1]

            while time.monotonic() - begun < 4.0 or not is_alive():
                assert time.monotonic() - begun < 120.0, "nothing was played meanwhile"
                time.sleep(0.05)
            run.stop("it was slow")

    monkeypatch.setattr(training, "Assembly", Seen)
    view = Says()
    result = remuda.train(
        "support:Tape",
        config=SMALL,
        schedule="async",
        supervision={"silence_limit": 2.0},
        run={"directory": tmp_path / "run", "turns": FOR_LONG},
        view=view,
        callbacks=[Slow()],
    )
    assert result.restarts == {}
    assert result.ended == "stopped by a callback: it was slow"
    (said,) = [each for each in view.said if each.startswith("callback Slow.on_metrics took")]
    assert said.endswith("s, in which nothing could be logged, saved or restarted")


@pytest.mark.slow
def test_how_long_a_callback_takes_is_told_once_from_a_second_on(tmp_path, monkeypatch):
    """By a clock that only this callback moves."""
    clock, calls = [0.0], []

    class Slow:
        def on_start(self, run):
            clock[0] += 60.0  # nothing waits for it yet

        def on_metrics(self, run, row):
            calls.append("metrics")
            clock[0] += 0.9 if len(calls) < 3 else 2.5
            if calls.count("metrics") >= 6 and "checkpoint" in calls:
                run.stop("it is enough")

        def on_checkpoint(self, run, number, directory):
            calls.append("checkpoint")
            clock[0] += 1.5

        def on_end(self, run, result):
            clock[0] += 60.0

    monkeypatch.setattr(callback_dispatch, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    view = Says()
    remuda.train(
        "support:Tape",
        config=SMALL,
        run={"directory": tmp_path / "run", "turns": FOR_LONG},
        checkpoint={"every": 0.05},
        view=view,
        callbacks=[Slow(), Notes()],
    )
    stopped = "in which nothing could be logged, saved, restarted or played"
    assert sorted(each for each in view.said if " took " in each) == [
        f"callback Slow.on_checkpoint took 1.5 s, {stopped}",
        f"callback Slow.on_metrics took 2.5 s, {stopped}",
    ]


class Typo:
    def on_metric(self, run, row): ...


class FewArguments:
    def on_metrics(self, row): ...


@pytest.mark.parametrize(
    "callback",
    [
        Typo(),
        FewArguments(),
        Notes,
        print,
    ],
)
def test_what_is_no_callback_is_refused(tmp_path, callback):
    with refuses(remuda.UsageError):
        train(tmp_path / "run", callback)
    assert not (tmp_path / "run").exists()


def test_a_callback_alone_is_refused_before_anything_is_made(tmp_path):
    with refuses(UsageError):
        remuda.train(
            "support:Tape",
            config=SMALL,
            run={"directory": tmp_path / "run"},
            view=PlainView(),
            callbacks=Notes(),
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_callbacks_may_come_from_an_iterator_or_be_none(tmp_path):
    """They were checked, and then there were none left."""
    notes, settings = Notes(), {"config": SMALL, "view": PlainView()}
    settings["run"] = {"directory": tmp_path / "run", "turns": 40, "evaluate_episodes": 0}
    result = remuda.train("support:Tape", callbacks=iter([notes]), **settings)
    assert notes.told[-1] == ("end", result)
    settings["run"]["directory"] = tmp_path / "other"
    assert remuda.train("support:Tape", callbacks=None, **settings).finished


@pytest.mark.slow
def test_a_resumed_run_begins_with_the_turns_and_seconds_of_its_checkpoint(tmp_path):
    first, begun = train(tmp_path / "run"), []

    class Looks(remuda.Callback):
        def on_start(self, run):
            begun.append((run.turns, run.seconds))

    settings = {"resume": first, "view": PlainView(), "run": {"turns": 400}}
    remuda.train(callbacks=[Looks()], **settings)
    kept = RunDirectory.open(first.directory).checkpoints
    manifest = kept.manifest(remuda.load(first).checkpoints[0])
    assert begun == [(300, manifest.seconds)]
    assert manifest.seconds > 0.0


def test_the_base_is_a_callback_that_does_nothing():
    check_callback(remuda.Callback())
    assert NAMES == ("on_start", "on_episodes", "on_metrics", "on_checkpoint", "on_end")
    run, details = object(), {"on_start": 0, "on_checkpoint": 2}
    for name in NAMES:
        assert getattr(remuda.Callback(), name)(run, *[None] * details.get(name, 1)) is None
