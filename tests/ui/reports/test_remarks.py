"""What the reader of a run's table is told besides its numbers."""

import json

import numpy as np
import pytest

from remuda.ui.cli.arguments import parse_flags, validate
from remuda.ui.cli.commands.one_run import EvaluateOptions
from remuda.ui.reports.results import remarks
from remuda.ui.reports.summary import read_run
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
    assert "agent_0 returned -30.0 per episode in greedy play, but 10." in said
    command = said.partition("remuda evaluate ")[2].partition(";")[0]
    found = validate(parse_flags(command.split(), EvaluateOptions, "run"), EvaluateOptions)
    assert (found.run, found.sampled) == (run, True)
    assert ("(similar for 1 more)" in said) == (len(names) == 2)


@pytest.mark.parametrize(
    ("mean", "error"),
    [(10.0, 0.5), (20.0, 0.1), (8.0, 0.01), (2.0, 5.0)],
    ids=["alike", "better", "less by little", "not known well enough"],
)
def test_greedy_play_that_is_about_as_good_is_not(tmp_path, mean, error):
    assert remarks_of(a_run(tmp_path / "run"), mean, error) == []


def change(run, **numbers):
    """Let agent_0's records say this, each of them a value or what makes it of its number."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for i, record in enumerate(records):
        record["policies"]["agent_0"] |= {
            key: value(i) if callable(value) else value for key, value in numbers.items()
        }
    (run / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))


@pytest.mark.slow
def test_noise_is_no_loss(tmp_path):
    """Red before: of policies that play alike from start to end a fifth were told of."""
    rng, told = np.random.default_rng(0), 0
    for i in range(100):
        run = a_run(tmp_path / str(i), names=("agent_0",))
        change(run, mean_return=lambda _: float(rng.normal(20.0, 10.0)))
        told += len(remarks_of(run, float(rng.normal(20.0, 0.7)), 0.7))
    assert told <= 2


def test_one_episode_is_no_measurement(tmp_path):
    assert remarks_of(a_run(tmp_path / "run"), -30.0, None) == []


def test_who_is_scripted_has_no_greedy_play(tmp_path):
    run = a_run(tmp_path / "run", game="tag", env={"scripted": {"agent_0": "random"}})
    assert remarks_of(run, -30.0) == []


def test_who_learned_nothing_loses_nothing_by_greedy_play(tmp_path):
    run = a_run(tmp_path / "run")
    change(run, mean_return=5.0)
    assert remarks_of(run, -30.0) == []
