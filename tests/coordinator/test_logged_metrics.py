"""Metrics that callbacks log are in the files, the result and the curves of a run."""

import json
import math

import numpy as np
import pytest

import remuda
from callback_runs import train
from refusals import refuses
from remuda.errors import CallbackError, UsageError
from remuda.ui.dashboard.curves import Curves


class Counts(remuda.Callback):
    """Logs the number of its calls, and one metric at the start of a new run."""

    def __init__(self):
        self.calls = 0

    def on_start(self, run):
        if not run.turns:
            run.log("bonus/first", np.float32(0.5))

    def on_episodes(self, run, episodes):
        self.calls += 1
        run.log("calls", self.calls)

    def on_end(self, run, result):
        with refuses(UsageError, "ended"):
            run.log("calls", 0)


@pytest.mark.parametrize(
    "schedule",
    [
        "sequential",
        *(pytest.param(each, marks=pytest.mark.process) for each in ("lockstep", "async")),
    ],
)
def test_logged_metrics_are_in_all_that_a_run_writes(tmp_path, schedule):
    counts = Counts()
    result = train(tmp_path / "run", counts, schedule=schedule)
    assert counts.calls
    assert result.record.logged == {"bonus/first": 0.5, "calls": counts.calls}
    metrics = remuda.load(result).metrics()
    assert metrics["logged/calls"][-1] == counts.calls
    assert set(metrics["logged/bonus/first"]) == {0.5}
    file = tmp_path / "run" / "metrics.jsonl"
    assert json.loads(file.read_text().splitlines()[-1])["logged"]["calls"] == counts.calls
    curves = Curves().of(file)
    assert curves.column("logged/calls")[-1] == counts.calls
    assert "logged/calls" in curves.names()


def test_a_resumed_run_keeps_them(tmp_path):
    train(tmp_path / "run", Counts())
    result = remuda.train(
        resume=tmp_path / "run", run={"turns": 600}, callbacks=[Counts()], view="quiet"
    )
    assert result.record.logged["bonus/first"] == 0.5
    assert set(remuda.load(result).metrics()["logged/bonus/first"]) == {0.5}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("turns", 1),
        ("run/waits", 1),
        ("agent_0/mean_return", 1),
        ("", 1),
        ("two words", 1),
        (3, 1),
        ("own", math.nan),
        ("own", -math.inf),
        ("own", "1"),
        ("own", None),
        ("own", [1.0]),
    ],
)
def test_other_names_and_values_are_refused(tmp_path, name, value):
    class Logs(remuda.Callback):
        def on_start(self, run):
            run.log(name, value)

    with refuses(CallbackError, "log", str(name)):
        train(tmp_path / "run", Logs())
