"""The first reading of the counters: no episode is missing in what a run's records tell."""

import time
from contextlib import contextmanager

import pytest

from remuda.config import load_config
from remuda.coordinator import coordinator
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.process


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["sequential", "lockstep", "async"])
def test_records_cover_all_episodes_however_late_the_coordinator_goes_on(
    schedule, tmp_path, monkeypatch
):
    """Red before: what was played before the coordinator's first reading was in no record."""
    gc_frozen = coordinator.gc_frozen

    @contextmanager
    def slow():
        with gc_frozen():
            time.sleep(1.0)  # as a collection of much garbage may take, and longer than the run
            yield

    monkeypatch.setattr(coordinator, "gc_frozen", slow)
    tree = {
        "game": "learner.test_short_episodes:Short",
        "schedule": schedule,
        "policy": {"algorithm": "ppo", "network": {"hidden": (4,)}},
        "run": {"turns": 60, "evaluate_episodes": 0, "directory": str(tmp_path / "run")},
    }
    record = train(load_config(tree), PlainView()).record
    for policy in record.policies.values():
        assert policy.episodes == 30
        assert policy.mean_return == 2.0
    assert record.turns_per_second * record.seconds == pytest.approx(60)
