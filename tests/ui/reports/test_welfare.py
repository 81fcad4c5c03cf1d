"""The welfare of a population's policies, in the table at the end of a run and in its report."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

import remuda
from remuda.runs.metrics import MemberRecord
from remuda.ui.cli.main import run as command
from remuda.ui.reports.report import write_report
from remuda.ui.reports.results import columns_of
from remuda.ui.reports.summary import PolicySummary, read_run

MEMBER = MemberRecord(10, 2.0, 25.0, 8.0, True, welfare=8.0)


def headings(*members):
    policies = [PolicySummary(f"p{i}", member=member) for i, member in enumerate(members)]
    return [name for name, _ in columns_of(SimpleNamespace(way="greedy", policies=policies))]


def test_a_welfare_that_differs_is_shown():
    assert "welfare" in headings(MEMBER, replace(MEMBER, welfare=9.0))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(MEMBER, id="constant"),
        pytest.param(replace(MEMBER, welfare=8.0 + 1e-9), id="rounded"),
        pytest.param(replace(MEMBER, welfare=None), id="unknown"),
    ],
)
def test_a_welfare_that_says_nothing_is_left_out(other):
    assert "welfare" not in headings(MEMBER, other)


def test_the_return_of_a_single_agent_is_no_welfare():
    alone = [replace(MEMBER, mean_return=x, welfare=x) for x in (1.0, 2.0)]
    assert "welfare" not in headings(*alone)


def test_a_run_reports_the_mean_total_of_the_matches_of_each_policy(tmp_path, capsys):
    """Teams of unlike sizes: a seat's return is another number than the sum of all."""
    teams = {
        "one": {"agents": ["agent_0"], "policies": ["a", "b"]},
        "others": {"agents": ["agent_1", "agent_2", "agent_3"], "policies": ["c", "bot"]},
    }
    result = remuda.train(
        "bucket_brigade",
        schedule="sequential",
        env={"num_envs": 4},
        policy={"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 8}},
        population={"matchmaker": "teams", "teams": teams, "scripted": {"bot": "random"}},
        run={"turns": 600, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        checkpoint={"evaluate_episodes": 0},
    )
    ledger = remuda.load(tmp_path / "run").ledger()
    agents = [f"agent_{seat}" for seat in range(4)]
    total = sum(ledger[f"{agent}/return"] for agent in agents)
    for name in ("a", "b", "c", "bot"):
        played = sum(ledger[f"{agent}/policy"] == name for agent in agents) > 0
        assert result.record.members[name].welfare == pytest.approx(total[played].mean(), rel=1e-5)
    assert "welfare" in [name for name, _ in columns_of(read_run(tmp_path / "run"))]
    assert ">welfare<" in write_report(tmp_path / "run").read_text()
    capsys.readouterr()
    assert command(["status", str(tmp_path / "run"), "--json"]) == 0
    assert '"welfare"' in capsys.readouterr().out
