"""What the reader of a run's table is told besides its numbers."""

import json

import pytest

from remuda.ui.remarks import remarks
from remuda.ui.summary import read_run
from ui.made_runs import a_run


def remarks_of(run, mean, error=0.5, names=("agent_0",)):
    """With greedy play of this mean return; in training it rose from 1 to about 10."""
    summary = json.loads((run / "summary.json").read_text())
    summary["evaluation"]["agents"] |= {
        name: {"mean": mean, "standard_error": error} for name in names
    }
    (run / "summary.json").write_text(json.dumps(summary))
    return remarks(read_run(run))


@pytest.mark.parametrize("names", [("agent_0",), ("agent_0", "agent_1")])
def test_greedy_play_that_comes_to_far_less_is_told(tmp_path, names):
    """As of pursuers that all stay where they are: so who trains them does not give them up."""
    run = a_run(tmp_path / "run")
    (said,) = remarks_of(run, -30.0, names=names)
    assert "agent_0 earned -30.0 an episode in greedy play, and 10." in said
    assert f"remuda evaluate {run} --sampled measures that" in said
    assert ("(so did 1 more)" in said) == (len(names) == 2)


@pytest.mark.parametrize(
    ("mean", "error"),
    [(10.0, 0.5), (20.0, 0.1), (8.0, 0.01), (2.0, 5.0)],
    ids=["alike", "better", "less by little", "not known well enough"],
)
def test_greedy_play_that_is_about_as_good_is_not(tmp_path, mean, error):
    assert remarks_of(a_run(tmp_path / "run"), mean, error) == []


def test_who_learned_nothing_loses_nothing_by_greedy_play(tmp_path):
    run = a_run(tmp_path / "run", lines=40)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        record["policies"]["agent_0"]["mean_return"] = 5.0
    (run / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    assert remarks_of(run, -30.0) == []
