"""An analysis of the population while a run goes on changes nothing of what is learned."""

import time

import pytest

from equivalence.runs import assert_same, run
from remuda.coordinator.analysing import PopulationAnalyser
from remuda.runs.metrics import read_metrics


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["sequential", "lockstep"])
def test_a_run_that_is_analysed_learns_the_same_bit_by_bit(schedule, tmp_path, monkeypatch):
    tree = {
        "schedule": schedule,
        "policy": {"algorithm": "dqn"},
        "learners": {"processes": 2},
        "env": {"num_envs": 4, "options": {"num_agents": 2, "max_turns": 20}},
        "population": {"matchmaker": "random", "policies": 3, "snapshots": {"every": 4}},
    }
    plain = run(tmp_path / "plain", **tree, analysis={"every": None})
    look, asked = PopulationAnalyser.poll, []

    def until_there_is_one(analyser):
        """In place of a look: the run may be over before the helper has begun."""
        look(analyser)
        limit = time.monotonic() + 120.0
        while analyser.newest is None and time.monotonic() < limit:
            look(analyser)
            time.sleep(0.005)
        asked.append(analyser.newest.requested_at)

    monkeypatch.setattr(PopulationAnalyser, "poll", until_there_is_one)
    analysed = run(tmp_path / "analysed", **tree, analysis={"every": 0.001, "members": 5})
    assert asked
    assert_same(analysed, plain)
    ledgers = [(tmp_path / name / "ledger.bin").read_bytes() for name in ("plain", "analysed")]
    assert ledgers[0] == ledgers[1]
    told = [list(read_metrics(tmp_path / n / "metrics.jsonl"))[-1] for n in ("plain", "analysed")]
    assert [record.population["analysis_age"] is None for record in told] == [True, False]
