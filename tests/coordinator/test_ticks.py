"""Ticks: what one of them encodes is bounded, however many policies and frozen copies there are."""

import gc
import json
import warnings
from collections import Counter
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from crowds import Slots, counted_crowd, crowd
from metric_lines import plain_of, scalars
from remuda.actor.seats import EpisodeCounter
from remuda.config import RunConfig
from remuda.coordinator import coordinator as coordinator_module
from remuda.coordinator import metrics_log
from remuda.coordinator import status as status_module
from remuda.coordinator.bounded_work import AT_ONCE, RECORD, ROWS, VALUES, FrozenTexts
from remuda.coordinator.coordinator import Coordinator, Signals
from remuda.coordinator.metrics_log import MetricsLog, encode_event
from remuda.coordinator.status import StatusFile, read_status
from remuda.errors import RoleDiedError
from remuda.population.ledger.records import GAMES
from remuda.publish.snapshot import Snapshot
from remuda.runs.metrics import Record, read_metrics
from remuda.system.scoreboard import Learn, Play

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

MANY = 128
"""Policies, more than are encoded in a tick."""
WIDEST = 50
"""More values than a record of one policy or member has."""


class View:
    """Keeps what it was shown."""

    def __init__(self):
        self.logged = []

    def show(self, record):
        pass

    def log(self, record):
        self.logged.append(record)

    def say(self, message):
        raise AssertionError(message)


class Game:
    """Roles that count on between two ticks, so many times; keeps what each tick encoded."""

    def __init__(self, table, scoreboard, ticks, work, died=None):
        self.table, self.left, self.died = table, ticks, died
        self.work, self.ticks = work, []
        self.rng = np.random.default_rng(0)
        self.turns = scoreboard.play()
        self.learn = [scoreboard.learn(name) for name in scoreboard.policies]
        self.counter = EpisodeCounter(scoreboard.policies_of(), scoreboard.mark)

    def run_for(self, seconds):
        self.frozen_objects = gc.get_freeze_count()
        self.ticks.append(self.work.copy())
        self.work.clear()
        self.turns[Play.TURNS] += 10
        for row in self.learn:
            row += self.rng.random(row.shape)
            row[[Learn.NONFINITE, Learn.HALTED, Learn.RESTORED]] = 0
        self.table.numbers[:] += self.rng.random(self.table.numbers.shape)
        self.table.numbers[:, GAMES] += 1
        first = np.zeros(1, np.int64)
        self.counter.count(first, np.array([float(self.left)]), first + 7)
        self.left -= 1
        if self.left == 0 and self.died:
            raise self.died
        return self.left == 0

    def start(self, stopped, ready): ...

    def traffic(self):
        return None

    def news(self):
        return []

    def status(self):
        return []

    def stop(self): ...


@pytest.fixture
def work(monkeypatch):
    """Counts what is encoded: `values` in JSON, `numbers` of TensorBoard, `texts` of copies."""
    counted, dumps = Counter(), json.dumps

    def leaves(data):
        return sum(map(leaves, data.values())) if isinstance(data, dict) else 1

    def counting(data, **how):
        counted["values"] += leaves(data)
        counted["texts"] += len(data) == 1 and "@" in next(iter(data))
        return dumps(data, **how)

    add_values = metrics_log.add_values

    def numbers(values, part):
        counted["numbers"] += sum(len(named) for _, named in part)
        return add_values(values, part)

    monkeypatch.setattr(json, "dumps", counting)
    monkeypatch.setattr(metrics_log, "add_values", numbers)
    return counted


def play(directory, work, monkeypatch, *, policies=MANY, copies=10, ticks=48, died=None):
    """A run of so many ticks, each of which asks for everything that ticks do now and then."""
    for module, name in ((coordinator_module, "WHOLE"), (status_module, "INTERVAL")):
        monkeypatch.setattr(module, name, 0.0)
    table, board, scoreboard = counted_crowd(policies, copies)
    game = Game(table, scoreboard, ticks, work, died)
    run = run_in(directory)
    frozen, view, between = FrozenTexts(table), View(), board.between

    def counting(*readings, **how):
        work["records"] += 1
        return between(*readings, **how)

    monkeypatch.setattr(board, "between", counting)
    coordinator = Coordinator(
        game,
        lambda: board,
        dict,
        run,
        view,
        StatusFile(directory / "status.json", Slots, "async", frozen),
        SimpleNamespace(take=lambda *_: None, failed=""),
        None,
        frozen=frozen,
    )
    with pytest.raises(type(died)) if died else nullcontext():
        coordinator.run(RunConfig(log_every=1e-9), 1e9, Signals())
    return game, view, run


def run_in(path):
    """As much of a run directory as is written in here."""
    (path / "tensorboard").mkdir(parents=True)
    return SimpleNamespace(
        path=path, metrics=path / "metrics.jsonl", tensorboard=path / "tensorboard"
    )


def events(run):
    found = EventAccumulator(str(run.tensorboard), size_guidance={"scalars": 0})
    found.Reload()
    tags = found.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in tags}


@pytest.mark.slow_cases("died1")
@pytest.mark.parametrize(
    "died", [pytest.param(None, marks=pytest.mark.slow), RoleDiedError("the process actor died")]
)
def test_a_tick_encodes_a_bounded_number_of_values_and_the_last_one_the_rest(
    died, tmp_path, monkeypatch, work
):
    """At 256 policies with ten copies each, one tick in twenty took over 100 ms."""
    game, view, run = play(tmp_path, work, monkeypatch, died=died)
    for tick in game.ticks:
        encoded = tick["values"] - 8 * tick["texts"] + tick["numbers"] / 4
        assert encoded + MANY * RECORD * tick["records"] <= VALUES + 2 * ROWS * WIDEST
        assert tick["texts"] <= AT_ONCE
        assert tick["records"] <= 1
    assert all(a["records"] or b["records"] for a, b in pairwise(game.ticks[1:]))
    assert sum(tick["texts"] for tick in game.ticks) > 10 * AT_ONCE

    lines = list(read_metrics(run.metrics))
    assert len(lines) == len(view.logged) > 3
    assert [line.policies for line in lines] == [record.policies for record in view.logged]
    assert [line.turns for line in lines] == [record.turns for record in view.logged]
    assert lines[-1] == view.logged[-1]
    assert any(line.is_whole for line in lines[:-1])
    assert all(line.num_frozen == 10 * MANY for line in lines)
    assert lines[-1].is_whole
    assert lines[-1].turns == 480
    told = [line.policies["p0"] for line in lines]
    assert all(p.return_min <= p.mean_return <= p.return_max for p in told)
    assert [p.return_max - p.return_min + 1 for p in told] == [
        b.episodes - a.episodes for a, b in pairwise([SimpleNamespace(episodes=0), *told])
    ]

    shown = events(run)
    assert shown["run/turns_per_second"] == [
        (line.turns, pytest.approx(line.turns_per_second)) for line in lines
    ]
    for record in (lines[0], lines[-1]):
        for tag, value in scalars(record):
            assert dict(shown[tag])[record.turns] == pytest.approx(value, rel=1e-6)

    status = read_status(tmp_path / "status.json")
    assert status["ended"] == ("the process actor died" if died else "all turns were played")
    assert status["turns"] == 480
    assert len(status["members"]) == 11 * MANY


@pytest.mark.slow
def test_what_was_begun_is_written_though_the_coordinator_itself_breaks(
    tmp_path, monkeypatch, work
):
    _, view, run = play(
        tmp_path, work, monkeypatch, policies=256, ticks=6, died=ValueError("a fault")
    )
    assert len(view.logged) == 1  # which takes longer than six ticks
    lines = list(read_metrics(run.metrics))
    assert [line.policies for line in lines] == [record.policies for record in view.logged]
    assert [step for step, _ in events(run)["p0/updates"]] == [line.turns for line in lines]


@pytest.mark.slow_cases("died1")
@pytest.mark.parametrize("died", [None, ValueError("a fault")])
def test_no_collection_of_garbage_looks_at_the_libraries_while_a_run_goes_on(
    died, tmp_path, monkeypatch, work, nothing_is_frozen
):
    """With all that torch and Numba hold a full one takes a tenth of a second, in some tick."""
    before, there = gc.get_freeze_count(), len(gc.get_objects())
    game, _, _ = play(tmp_path, work, monkeypatch, policies=2, copies=1, ticks=2, died=died)
    assert game.frozen_objects > 0.9 * there
    assert gc.get_freeze_count() == before == 0


@pytest.mark.slow
def test_a_few_policies_are_written_in_the_tick_itself(tmp_path, monkeypatch, work):
    _, view, run = play(tmp_path, work, monkeypatch, policies=4, copies=3, ticks=10)
    assert len(view.logged) == 10
    assert len(list(read_metrics(run.metrics))) == 10
    assert [step for step, _ in events(run)["p0/updates"]] == list(range(10, 101, 10))
    told = [record.policies["p0"] for record in view.logged]
    assert [(p.return_min, p.return_max) for p in told] == [(x, x) for x in range(10, 0, -1)]
    assert {p.episode_length for p in told} == {7.0}


def test_who_dies_between_two_ticks_leaves_whole_lines_events_and_status(tmp_path):
    """The last piece writes; whatever was encoded before is gone with the process."""
    table, board = crowd(64, 1)
    record, frozen = board.between(board.start, board.read()), FrozenTexts(table)
    seen, busy, pieces = [], True, 0
    while busy:
        run = run_in(tmp_path / str(pieces))
        metrics = MetricsLog(run, print, None)
        metrics.begin(record)
        metrics.work.finish()
        status = StatusFile(run.path / "status.json", Slots, "async", frozen)
        status.write(record, [], "before")
        metrics.begin(record)
        status.begin(record, [], "after")
        for _ in range(pieces):
            metrics.work.go_on(1)
            status.work.go_on(1)
        busy, pieces = metrics.work.busy or status.work.busy, pieces + 1
        # Here it dies: it has told nobody, and has nothing open.
        data = run.metrics.read_bytes()
        assert data.endswith(b"\n")
        lines = [Record.from_json(line) for line in data.splitlines()]
        assert all(line == record for line in lines)
        steps = events(run)["run/overtaken"]
        seen.append((len(lines), len(steps), read_status(run.path / "status.json")["ended"]))
    assert seen[0] == (1, 1, "before")
    assert seen[-1] == (2, 2, "after")
    assert seen == sorted(seen, key=lambda each: (each[0], each[1]))  # the line is first
    assert (2, 1, "after") in seen


def test_the_text_of_a_frozen_copy_is_made_anew_only_where_it_changed(work):
    table, board = crowd(20, 10)
    texts = FrozenTexts(table)
    texts.poll(10**4)
    assert work["texts"] == len(texts) == 200
    work.clear()
    for _ in range(3):
        texts.poll()
    assert not work
    table.numbers[[25, 30]] += 1.0  # copies of p0 and p1
    table.numbers[3] += 1.0  # who learns is no matter of this
    table.occupants.remove(40)
    texts.poll()
    assert work["texts"] == 2
    assert len(texts) == 199
    assert texts.complete
    whole = plain_of(board.between(board.start, board.read(), whole=True))["members"]
    expected = {name: member for name, member in whole.items() if not member["learns"]}
    assert json.loads(f"{{{texts.text()}}}") == expected


def test_everybody_has_a_turn_and_who_is_new_is_first(work):
    table, _ = crowd(20, 10)
    texts = FrozenTexts(table)
    texts.poll(150)
    assert not texts.complete
    texts.poll(150)
    assert texts.complete
    work.clear()
    for _ in range(5):  # all change all the time
        table.numbers[:, GAMES] += 1
        texts.poll(50)
    games = [m["games"] for m in json.loads(f"{{{texts.text()}}}").values()]
    assert Counter(games) == {2: 50, 3: 50, 4: 50, 5: 50}
    assert work["texts"] == 250
    slot = table.slots.copies_of("p19")[-1]
    table.occupants.remove(slot)
    table.numbers[:, GAMES] += 1
    texts.poll(1)
    assert len(texts) == 199


def test_a_copy_that_is_being_frozen_is_left_out_until_it_is_whole():
    table, _ = crowd(2, 2)
    texts, slot = FrozenTexts(table), table.slots.copies_of("p1")[0]
    texts.poll()
    assert len(texts) == 4
    member = table.population().members[-2]
    assert member.slot == slot
    table.occupants.sequence[slot] += 1
    table.numbers[slot] += 1.0
    texts.poll()
    assert len(texts) == 3
    assert not texts.complete
    table.freeze(member, Snapshot(np.zeros(2, np.float32), 1, 1, 0.0))
    texts.poll()
    assert len(texts) == 4
    assert texts.complete


def test_events_are_those_of_protobuf_byte_by_byte():
    _, board = crowd(3, 1)
    record = board.between(board.start, board.read())
    record.episode_metrics["chests"], record.episode_metrics["none"] = 2.5, None
    record.shares["much"], record.shares["no number"] = 1e300, float("nan")
    record.policies["p" * 200] = record.policies["p1"]
    for at in (0, 1, 300, 2**40):
        event, found = Event(wall_time=3.5, step=at), []
        assert sum(encode_event(record, event, found)) > 0
        with np.errstate(over="ignore"):
            floats = {tag: float(np.float32(value)) for tag, value in scalars(record)}
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in floats.items()]
        whole = Event(wall_time=3.5, step=at, summary=Summary(value=values))
        assert Event.FromString(found[0]).SerializeToString() == found[0]
        assert found == [whole.SerializeToString()]
