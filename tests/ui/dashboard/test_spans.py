"""Spans of traces on the dashboard."""

import json

import pytest

import remuda
from dashboard_runs import QUICK
from refusals import refuses
from remuda.errors import RunDirectoryError
from remuda.ui.dashboard.curves import MOST_SPANS as MOST
from remuda.ui.dashboard.curves import read_spans


@pytest.mark.slow
def test_the_trace_of_a_run(tmp_path):
    path = tmp_path / "trace.json"
    run = {**QUICK["run"], "directory": str(tmp_path / "run")}
    remuda.train("treasure_hunt", **{**QUICK, "run": run}, trace=str(path))
    trace = read_spans(path)
    whole = trace.window(None, None)
    assert whole["roles"]
    assert "play" in whole["kinds"]
    assert whole["seconds"] > 0
    assert len(whole["spans"]) <= MOST
    half = trace.window(0.0, whole["seconds"] / 2)
    assert all(begin <= whole["seconds"] / 2 for _, _, begin, _ in half["spans"])
    known = len(json.loads(path.read_text())["traceEvents"]) - len(whole["roles"])
    assert len(whole["spans"]) + whole["left_out"] == known


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"traceEvents": [{"ph": "X"}]}', '{"traceEvents": 3}']
)
def test_what_is_no_trace(tmp_path, text):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with refuses(RunDirectoryError, "trace.json"):
        read_spans(path)


def test_a_trace_of_nothing(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": []}')
    assert read_spans(path).window(None, None)["spans"] == []
