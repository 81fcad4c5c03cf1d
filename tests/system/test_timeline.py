"""The timeline: spans of every role, kept in a ring, written as Chrome trace events."""

import json

import pytest

from remuda.system.timeline import CAPACITY, Span, Timeline, write_trace
from remuda.ui.cli.main import run


def test_the_newest_spans_are_kept(tmp_path):
    timeline = Timeline()
    for i in range(CAPACITY + 10):
        timeline.add(Span.INFER, i, i + 0.5)
    spans = list(timeline.spans())
    assert len(spans) == CAPACITY
    assert spans[0] == (Span.INFER, 10.0, 10.5)
    assert spans[-1][1] == CAPACITY + 9


def test_a_trace_is_chrome_trace_events(tmp_path):
    timeline = Timeline()
    timeline.add(Span.UPDATE, 100.0, 100.25)
    path = tmp_path / "trace.json"
    assert write_trace(path, {"learner": list(timeline.spans()), "actor": []}) == 1
    events = json.loads(path.read_text())["traceEvents"]
    assert {"ph": "X", "name": "update", "pid": 1, "tid": 0, "ts": 0.0, "dur": 250000.0} in events
    assert [e["args"]["name"] for e in events if e["ph"] == "M"] == ["learner", "actor"]


@pytest.mark.slow_cases("async")
@pytest.mark.parametrize("schedule", ["async", pytest.param("sequential", marks=pytest.mark.slow)])
def test_a_run_writes_what_everybody_did(schedule, tmp_path, capsys):
    path = tmp_path / "trace.json"
    words = [
        *("--run.turns", "2000", "--run.directory", str(tmp_path / "run"), "--run.live", "false"),
        *("--policy.network.hidden", "16", "--policy.batch_size", "16", "--policy.n_frames", "1"),
        *("--policy.experience.learning_starts", "200", "--policy.experience.on_full", "wait"),
        *("--run.evaluate_episodes", "0", "--trace", str(path), "--schedule", schedule),
        *("--policy.experience.capacity", "300", "--learners.processes", "2"),
    ]
    assert run(["train", *words]) == 0
    assert f"into {path}" in capsys.readouterr().out
    events = json.loads(path.read_text())["traceEvents"]
    rows = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    done = {(rows[e["tid"]], e["name"]) for e in events if e["ph"] == "X"}
    actor = "actor" if schedule == "async" else "main"
    learner = "learner-agent_0" if schedule == "async" else "main"
    expected = {(actor, name) for name in ("play", "infer", "write", "weights")}
    expected |= {(learner, name) for name in ("sample", "update", "publish", "checkpoint")}
    if schedule == "async":
        expected.add((learner, "wait"))
    assert expected <= done
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in events if e["ph"] == "X")
