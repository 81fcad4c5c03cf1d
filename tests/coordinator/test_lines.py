"""How often a line of metrics is written."""

from itertools import pairwise

import pytest

from remuda.config import RunConfig, load_config
from remuda.coordinator.coordinator import TICK, line_interval
from remuda.runs.metrics import read_metrics
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView


def lines(seconds, **config):
    """When there is one in a run of so many seconds, looked at in every tick."""
    found, last = [], 0.0
    for tick in range(1, int(seconds / TICK) + 1):
        now = tick * TICK
        if now - last >= line_interval(RunConfig(**config), now):
            found.append(now)
            last = now
    return found


@pytest.mark.parametrize(("seconds", "least", "most"), [(2, 8, 8), (10, 15, 40), (60, 30, 50)])
def test_a_short_run_has_curves(seconds, least, most):
    """One of 20,000 turns, which takes some seconds, had two points."""
    assert least <= len(lines(seconds)) <= most


def test_a_long_run_has_a_line_every_five_seconds():
    late = [now for now in lines(600) if now >= 60]
    assert all(b - a == 5.0 for a, b in pairwise(late))
    assert lines(60, log_every=20) == [20, 40, 60]


@pytest.mark.slow
def test_a_run_of_seconds_writes_lines(tmp_path):
    tree = {
        "game": "support:Tape",
        "schedule": "sequential",
        "policy": {"network": {"hidden": (8,)}, "iqn": {"quantiles": 4}},
        "run": {
            "turns": None,
            "seconds": 3.0,
            "evaluate_episodes": 0,
            "directory": tmp_path / "run",
        },
        "checkpoint": {"evaluate_episodes": 0},
    }
    train(load_config(tree), PlainView())
    records = list(read_metrics(tmp_path / "run" / "metrics.jsonl"))
    assert len(records) > 2, "one every five seconds is one for all of it"
