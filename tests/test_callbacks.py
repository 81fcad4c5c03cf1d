"""Callbacks: what they are told, what they may do, and what happens if they fail."""

import math
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import remuda
from remuda import events, live_hyperparameters, training
from remuda.algorithms import find_algorithm
from remuda.assembly import Assembly
from remuda.config import PolicyConfig
from remuda.coordinator.run_directory import RunDirectory
from remuda.errors import CallbackError, UsageError, UserCodeError
from remuda.events import NAMES, Events, check_callback
from remuda.hyperparameters import HYPERPARAMETERS, values_of, with_values
from remuda.learner.group import LearnerGroup
from remuda.live_hyperparameters import LiveHyperparameters, checked_values
from remuda.ui.cli import run as command
from remuda.ui.live import PlainView

SMALL = {
    "schedule": "sequential",
    "policy": {"algorithm": "ppo", "network": {"hidden": (16,)}, "ppo": {"rollout_length": 20}},
    "run": {"turns": 300, "evaluate_episodes": 2, "log_every": 0.05},
    "checkpoint": {"evaluate_episodes": 0},
}
FOR_LONG = 10**9
"""Turns that no test plays."""


def train(directory, *callbacks, **settings):
    run = settings.pop("run", {}) | {"directory": directory}
    return remuda.train(
        "support:Tape",
        config=SMALL,
        run=run,
        view=PlainView(),
        callbacks=callbacks,
        **settings,
    )


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


def test_a_resumed_run_tells_only_its_own_episodes(tmp_path):
    first = train(tmp_path / "run")
    notes = Notes()
    result = remuda.train(
        resume=first, run={"turns": 400}, view=PlainView(), callbacks=[notes], policy={}
    )
    both = [each.record.policies["agent_0"].episodes for each in (first, result)]
    told = sum(e["agent_0"].episodes for e in notes.of("episodes"))
    assert told == both[1] - both[0] > 0


class StopsAtOnce:
    """Of no base class."""

    def on_metrics(self, run, row):
        run.stop("enough was seen")
        run.stop("a second reason")


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


class SetsAtFirst(remuda.Callback):
    def __init__(self, values):
        self.values = values

    def on_start(self, run):
        run.set_hyperparameters(self.values)
        assert run.hyperparameters("agent_1").items() >= self.values.items()


CHANGES = {
    "ppo": {
        "learning_rate": 3e-3,
        "discount": 0.7,
        "reward_scale": 0.3,
        "ppo.clip": 0.05,
        "ppo.entropy_cost": 0.2,
        "ppo.gae_lambda": 0.5,
        "ppo.value_cost": 2.0,
    },
    "dqn": {"learning_rate": 3e-3, "discount": 0.7, "reward_scale": 0.3},
}
DQN = {
    "algorithm": "dqn",
    "batch_size": 8,
    "n_frames": 1,
    "experience": {"learning_starts": 50, "segment_length": 10},
}


def weights(result):
    run = remuda.load(result)
    return {(n, k): w for n in run for k, w in run[n].weights().items()}


def same(one, other):
    return all(np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("algorithm", [pytest.param("ppo", marks=pytest.mark.slow), "dqn"])
def test_what_is_set_trains_exactly_as_what_is_configured(tmp_path, algorithm):
    base = DQN if algorithm == "dqn" else {}
    values = CHANGES[algorithm]
    tree = {name: value for name, value in values.items() if "." not in name}
    tree |= {"ppo": {n[4:]: v for n, v in values.items() if n.startswith("ppo.")}}
    plain = train(tmp_path / "plain", policy=base)
    configured = train(tmp_path / "configured", policy={**base, **tree})
    for name in values:  # each of them shows by itself
        one = train(tmp_path / name, SetsAtFirst({name: values[name]}), policy=base)
        assert not same(weights(plain), weights(one)), name
    found = train(tmp_path / "set", SetsAtFirst(values), policy=base)
    assert same(weights(configured), weights(found))


class Freezes(remuda.Callback):
    """Sets a learning rate that moves no weight, at one checkpoint; stops some checkpoints on."""

    def __init__(self):
        self.row, self.rows, self.numbers = {}, [], []

    def on_metrics(self, run, row):
        self.row = row

    def on_checkpoint(self, run, number, path):
        if "agent_0/updates" in self.row and self.row["agent_0/updates"] > 0:
            self.numbers.append(number)
            self.rows.append(self.row)
        if len(self.numbers) == 1:
            run.set_hyperparameters({"learning_rate": 1e-30}, "agent_0")
        if len(self.numbers) == 4:
            run.stop("all was seen")


@pytest.mark.parametrize("schedule", ["sequential", "async", "lockstep"])
def test_a_learner_takes_a_change_while_it_trains(tmp_path, schedule):
    freezes = Freezes()
    result = train(
        tmp_path / "run",
        freezes,
        schedule=schedule,
        run={"turns": FOR_LONG},
        checkpoint={"every": 0.5, "evaluate_episodes": 0, "keep": 10},
    )
    run = remuda.load(result)
    then = {n: run.policy(n, checkpoint=freezes.numbers[1]) for n in run}
    assert freezes.rows[-1]["agent_0/updates"] > freezes.rows[1]["agent_0/updates"]
    changed = {
        name: any((w != run[name].weights()[key]).any() for key, w in then[name].weights().items())
        for name in run
    }
    assert changed == {"agent_0": False, "agent_1": True}  # it was set of one only


def test_a_change_is_kept_by_checkpoints_and_gone_on_with(tmp_path):
    first = train(tmp_path / "run", SetsAtFirst({"learning_rate": 1e-30}))
    before = weights(first)
    seen = []

    class Looks:
        def on_start(self, run):
            seen.append(run.hyperparameters("agent_0")["learning_rate"])

    result = remuda.train(resume=first, run={"turns": 600}, view=PlainView(), callbacks=[Looks()])
    assert seen == [1e-30]
    assert result.record.policies["agent_0"].updates > first.record.policies["agent_0"].updates
    for key, weight in weights(result).items():
        assert weight == pytest.approx(before[key], rel=0, abs=1e-20)


def test_what_is_configured_anew_replaces_what_was_set():
    config = PolicyConfig.model_validate({"algorithm": "ppo"})
    changes = LiveHyperparameters({"a": config, "b": config})
    changes.change("a", {"learning_rate": 1e-5, "discount": 0.5})
    state = changes.state()
    anew = config.model_copy(update={"learning_rate": 0.25})
    resumed = LiveHyperparameters({"a": anew, "b": anew})
    resumed.restore(state)
    assert resumed.changes("a") == {"discount": 0.5}
    assert resumed.changes("b") == {}


class Learner:
    """Notes what changes, and trains for as long as it is asked."""

    priority, unfinished = 1.0, False

    def __init__(self, *policies):
        self.policies, self.told = policies, []

    def ready(self):
        return True

    def update(self):
        self.told.append("update")

    def change(self, policy, values):
        self.told.append((policy, values))


def test_a_successor_takes_what_was_set_before_its_first_update():
    config = PolicyConfig()
    changes = LiveHyperparameters({"a": config, "b": config})
    changes.change("a", {"learning_rate": 1e-5})
    first = Learner("a", "b")
    group = LearnerGroup([first], SimpleNamespace(), changes=changes)
    group.work()
    group.work()
    changes.change("b", {"discount": 0.5})
    changes.change("a", {"discount": 0.25})
    group.work()
    took = [("a", {"learning_rate": 1e-5}), "update", "update"]
    now = [("a", {"learning_rate": 1e-5, "discount": 0.25}), ("b", {"discount": 0.5}), "update"]
    assert first.told == took + now
    successor = Learner("a", "b")
    LearnerGroup([successor], SimpleNamespace(), changes=changes).work()
    assert successor.told == now


def test_a_change_that_is_being_written_is_not_seen_by_half(monkeypatch):
    changes = LiveHyperparameters({"a": PolicyConfig()})
    changes.change("a", {"discount": 0.5})
    store, seen = live_hyperparameters.store, []

    def watched(*word):
        """Look right before and after every word that frames a change."""
        for write in (lambda: None, lambda: store(*word)):
            write()
            seen.append(changes.read(0))

    monkeypatch.setattr(live_hyperparameters, "store", watched)
    changes.change("a", {"learning_rate": 1.0})
    before = (2, {"a": {"discount": 0.5}})
    after = (4, {"a": {"learning_rate": 1.0, "discount": 0.5}})
    assert seen == [before, None, None, after]
    assert changes.read(4) is None


@pytest.mark.parametrize(
    ("values", "policy", "said"),
    [
        ({"n_steps": 3}, None, r"policies.agent_0.n_steps cannot change while a run goes on; of a "
         r"policy of ppo these can: learning_rate, discount, reward_scale, ppo.clip"),
        ({"learning_rate": -1.0}, None, "policies.agent_0.learning_rate is -1.0: input should be"),
        ({"discount": 1.5}, "agent_1", "policies.agent_1.discount is 1.5: input should be"),
        ({"ppo.clip": "much"}, None, "policies.agent_0.ppo.clip is a number; this is 'much'"),
        ({"ppo.clip": math.nan}, None, "policies.agent_0.ppo.clip is a finite number"),
        ({"discount": 0.5}, "agent_7", "there is no policy 'agent_7' in this run; there are agent"),
    ],
)  # fmt: skip
def test_what_learners_cannot_take_is_refused_and_nothing_is_changed(
    tmp_path, values, policy, said
):
    class Tries:
        def on_start(self, run):
            before = run.hyperparameters("agent_0")
            with pytest.raises(remuda.UsageError, match=said):
                run.set_hyperparameters({"learning_rate": 0.5, **values}, policy)
            assert run.hyperparameters("agent_0") == before
            self.tried = True

    tries = Tries()
    train(tmp_path / "run", tries, run={"turns": 10})
    assert tries.tried


def test_hyperparameters_of_policies_that_are_born_are_left_alone(tmp_path):
    class Tries:
        def on_start(self, run):
            run.set_hyperparameters({"discount": 0.5})

    births = {"matchmaker": "random", "policies": 2, "births": {"places": 1, "every": 100}}
    with pytest.raises(remuda.RemudaError, match="where policies are born"):
        train(tmp_path / "run", Tries(), population=births)


OWN = {
    "policies.own_algorithms:Vanilla": ("settings.push", {"ppo": {"rollout_length": 20}}),
    "policies.own_algorithms:Soft": (
        "settings.tau",
        {"batch_size": 16, "experience": {"learning_starts": 64, "capacity": 500}},
    ),
}
"""Algorithms of one's own, each with a setting of its own, and what else it is trained with."""


@pytest.mark.parametrize("algorithm", OWN)
def test_settings_of_an_own_algorithm_are_set_while_it_goes_on(tmp_path, algorithm):
    name, tree = OWN[algorithm]
    seen, weights = {}, {}

    class Sets:
        def on_start(self, run):
            seen["before"] = run.hyperparameters("agent_0")[name]
            run.set_hyperparameters({name: 0.75}, "agent_0")
            seen["after"] = [run.hyperparameters(f"agent_{i}")[name] for i in range(2)]

    whole = {"algorithm": algorithm, "network": {"hidden": (8,), "dueling": False}} | tree
    quick = {"turns": 120, "evaluate_episodes": 0}
    for which, callbacks, own in (
        ("set", [Sets()], {}),
        ("configured", [], {"agent_0": {"settings": {name.split(".")[1]: 0.75}}}),
        ("plain", [], {}),
    ):
        result = remuda.train(
            "support:Tape",
            schedule="sequential",
            policy=whole,
            policies=own,
            run=quick | {"directory": tmp_path / which},
            checkpoint={"evaluate_episodes": 0},
            view=PlainView(),
            callbacks=callbacks,
        )
        assert result.record.policies["agent_0"].updates > 2
        run = remuda.load(tmp_path / which)
        weights[which] = [
            {n: p.detach().numpy() for n, p in run[f"agent_{i}"].module().named_parameters()}
            for i in range(2)
        ]
    default = find_algorithm(algorithm).settings[name.split(".")[1]]
    assert seen == {"before": default, "after": [0.75, default]}
    for i in range(2):
        for key, value in weights["set"][i].items():
            np.testing.assert_array_equal(value, weights["configured"][i][key])
    for i, equal in enumerate([False, True]):
        plain = weights["plain"][i]
        assert equal == all((plain[k] == v).all() for k, v in weights["set"][i].items())


def test_settings_that_are_no_numbers_stay_as_they_are():
    kind = {"algorithm": f"{__name__}:Wordy", "settings": {"rate": 0.5, "way": "b"}}
    config = PolicyConfig.model_validate(kind)
    found = {name: x for name, x in values_of(config).items() if name.startswith("settings.")}
    assert found == {"settings.rate": 0.5, "settings.scale": 3.0}  # one that counts may shape it
    with pytest.raises(remuda.UsageError, match=r"a.settings.way cannot change while a run goes"):
        checked_values(config, {"settings.way": 1.0}, "a.")
    changed = with_values(config, {"settings.rate": 0.25, "learning_rate": 0.5})
    assert changed.settings == {"rate": 0.25, "way": "b"}
    assert config.settings["rate"] == 0.5
    assert with_values(PolicyConfig(), {"settings.rate": 0.25}) == PolicyConfig()
    both = LiveHyperparameters({"a": config, "b": PolicyConfig()})
    both.change("a", {"settings.scale": 4.0})
    both.change("b", {"discount": 0.5})
    assert both.read(0) == (4, {"a": {"settings.scale": 4.0}, "b": {"discount": 0.5}})


class Wordy(remuda.TransitionAlgorithm):
    """Has settings of several kinds."""

    heads = ("q",)
    settings = {"rate": 0.1, "tries": 3, "scale": 3.0, "way": "a", "firm": True}  # noqa: RUF012

    def loss(self, batch, part):
        raise NotImplementedError


def test_a_change_shows_in_the_population(tmp_path):
    seen = []

    class Sets(StopsAtOnce):
        def on_start(self, run):
            run.set_hyperparameters({"discount": 0.5}, "policy")

        def on_end(self, run, result):
            seen.append(result.record.members["policy"].hyperparameters["discount"])

    train(tmp_path / "run", Sets(), population={"matchmaker": "self_play"})
    assert seen == [0.5]


def test_every_hyperparameter_is_one_that_can_be_checked():
    config = PolicyConfig.model_validate({"algorithm": "ppo"})
    values = values_of(config)
    assert set(values) == set(HYPERPARAMETERS)
    assert checked_values(config, values, "") == values


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


@pytest.mark.parametrize("event", ["on_metrics", "on_episodes", "on_checkpoint"])
def test_one_that_fails_ends_the_run_in_order_and_is_told_with_its_line(tmp_path, event):
    fails, notes = Fails(event), Notes()
    run = {"turns": FOR_LONG}
    checkpoint = {"every": 0.1, "evaluate_episodes": 0}
    with pytest.raises(CallbackError) as failed:
        train(tmp_path / "run", fails, notes, run=run, checkpoint=checkpoint)
    said = str(failed.value)
    assert said.startswith(f"callback Fails.{event} failed: ZeroDivisionError in your code (")
    assert f"test_callbacks.py, line {LINE}, in fail): by zero. The run ended in order" in said
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
    with pytest.raises(CallbackError, match=r"Fails.on_start failed: ZeroDivisionError in") as e:
        train(tmp_path / "run", Fails("on_start"), notes)
    assert "resume" not in str(e.value)
    assert [name for name, _ in notes.told] == ["start", "end"]
    assert notes.told[-1] == ("end", None)


def test_one_that_fails_at_the_end_costs_nothing(tmp_path):
    with pytest.raises(CallbackError, match=r"Fails\.on_end failed") as failed:
        train(tmp_path / "run", Fails("on_end"))
    assert "resume" not in str(failed.value)  # there is nothing left to go on with
    run = remuda.load(tmp_path / "run")
    assert run.summary()["finished"]
    assert run.summary()["evaluation"]


def test_the_end_is_told_once_whatever_comes_after_it(tmp_path, monkeypatch):
    notes = Notes()

    class Breaks(Events):
        def end(self, result):
            super().end(result)
            raise OSError("after the end")

    monkeypatch.setattr(training, "Events", Breaks)
    with pytest.raises(UserCodeError, match=r"OSError in your code .*: after the end"):
        train(tmp_path / "run", notes)
    assert len(notes.of("end")) == 1
    assert notes.of("end")[0].finished


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
    assert "by zero; the run goes on without it" in said


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
    assert said.endswith("s; meanwhile nothing is logged, saved or restarted")


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

    monkeypatch.setattr(events, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    view = Says()
    remuda.train(
        "support:Tape",
        config=SMALL,
        run={"directory": tmp_path / "run", "turns": FOR_LONG},
        checkpoint={"every": 0.05},
        view=view,
        callbacks=[Slow(), Notes()],
    )
    meanwhile = "meanwhile nothing is logged, saved or restarted, nor played"
    assert sorted(each for each in view.said if " took " in each) == [
        f"callback Slow.on_checkpoint took 1.5 s; {meanwhile}",
        f"callback Slow.on_metrics took 2.5 s; {meanwhile}",
    ]


class Typo:
    def on_metric(self, run, row): ...


class FewArguments:
    def on_metrics(self, row): ...


@pytest.mark.parametrize(
    ("callback", "said"),
    [
        (Typo(), "callback Typo: on_metric is no event; did you mean on_metrics?"),
        (FewArguments(), r"FewArguments: on_metrics is called with \(run, row\): too many pos"),
        (Notes, r"Notes is a class; give an object, as in Notes\(\)"),
        (print, "has no method that is an event; there are on_start, on_episodes, on_metrics"),
    ],
)
def test_what_is_no_callback_is_refused(tmp_path, callback, said):
    with pytest.raises(remuda.UsageError, match=said):
        train(tmp_path / "run", callback)
    assert not (tmp_path / "run").exists()


def test_a_callback_alone_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(
        UsageError, match=r"callbacks is Notes; give a list of them, as in callbacks=\[Notes"
    ):
        remuda.train(
            "support:Tape",
            config=SMALL,
            run={"directory": tmp_path / "run"},
            view=PlainView(),
            callbacks=Notes(),
        )
    assert not (tmp_path / "run").exists()


def test_callbacks_may_come_from_an_iterator_or_be_none(tmp_path):
    """They were checked, and then there were none left."""
    notes, settings = Notes(), {"config": SMALL, "view": PlainView()}
    settings["run"] = {"directory": tmp_path / "run", "turns": 40, "evaluate_episodes": 0}
    result = remuda.train("support:Tape", callbacks=iter([notes]), **settings)
    assert notes.told[-1] == ("end", result)
    settings["run"]["directory"] = tmp_path / "other"
    assert remuda.train("support:Tape", callbacks=None, **settings).finished


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


MINE = """
import remuda

class Stops(remuda.Callback):
    def on_metrics(self, run, row):
        run.stop("of the file")

class Needs:
    def __init__(self, what): ...

class Breaks(remuda.Callback):
    def on_metrics(self, run, row):
        row["nothing"]
"""
FLAGS = [
    *("--schedule", "sequential", "--policy.algorithm", "ppo", "--run.turns", str(FOR_LONG)),
    *("--run.evaluate_episodes", "2", "--policy.network.hidden", "16", "--run.log_every", "0.05"),
    *("--checkpoint.evaluate_episodes", "0"),
]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of the user's own."""
    (tmp_path / "my_callbacks.py").write_text(MINE)
    (tmp_path / "broken_callbacks.py").write_text("import remuda\n\n1 / 0\n")
    (tmp_path / "torn_callbacks.py").write_text("import math\n\nmath.nothing\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("my_callbacks", "broken_callbacks", "torn_callbacks"):
        sys.modules.pop(name, None)


def test_a_callback_is_named_on_the_command_line(mine, capsys):
    words = ["train", "support:Tape", *FLAGS, "--run.callbacks", "my_callbacks:Stops"]
    assert command([*words, "--run.directory", "run"]) == 0
    assert "stopped by a callback: of the file" in capsys.readouterr().out
    assert remuda.load("run").config.run.callbacks == ("my_callbacks:Stops",)


def test_one_that_fails_is_told_in_one_line_on_the_command_line(mine, capsys):
    words = ["train", "support:Tape", *FLAGS, "--run.callbacks", "my_callbacks:Breaks"]
    assert command([*words, "--run.directory", "run"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Breaks.on_metrics failed: KeyError in your code (my_callbacks.py, line 13, in" in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "run.callbacks: 'nothing' is none; name it as module:Class"),
        ("nowhere:A", "run.callbacks: cannot load nowhere:A: No module named 'nowhere'"),
        ("my_callbacks:A", "run.callbacks: my_callbacks has no A"),
        (
            "my_callbacks:Needs",
            "my_callbacks:Needs is called with nothing, and failed: TypeError: Needs.__init",
        ),
        ("torn_callbacks:A", "AttributeError in your code (torn_callbacks.py, line 3): module"),
        (
            "broken_callbacks:A",
            "ZeroDivisionError in your code (broken_callbacks.py, line 3): division by zero",
        ),
    ],
)
def test_one_that_cannot_be_had_is_refused_before_anything_is_made(mine, capsys, name, said):
    words = ["train", "support:Tape", *FLAGS, "--run.callbacks", name, "--run.directory", "run"]
    assert command(words) == 2
    assert said in capsys.readouterr().err
    assert not (mine / "run").exists()
