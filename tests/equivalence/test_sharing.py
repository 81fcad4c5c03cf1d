"""A run whose agents share a policy learns as one in self-play does, and repeats itself."""

import pytest

from equivalence.runs import PPO, assert_same, outcome, run
from remuda.runs.run_directory import RunDirectory
from remuda.ui.reports.summary import read_run

SHARING = {"sharing": {"agent_*": "policy"}}
ALGORITHMS = [
    pytest.param(name, marks=() if name == "dqn" else pytest.mark.slow)
    for name in ("dqn", "iqn", "ppo", "mappo", "sac")
]


def tree_of(algorithm, **env):
    ppo = PPO if algorithm in ("ppo", "mappo") else {}
    env = {"options": {"num_agents": 3}, **env}
    return {"policy": {"algorithm": algorithm, "ppo": ppo}, "env": env}


@pytest.mark.process
@pytest.mark.slow_cases("dqn")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sharing_equals_self_play(algorithm, tmp_path):
    tree = tree_of(algorithm) | {"schedule": "sequential"}
    if algorithm == "sac":  # slow on CPUs
        tree["policy"]["experience"] = {"replay_ratio": 2.0}
    shared = run(tmp_path / "shared", **tree, population=SHARING)
    assert_same(shared, run(tmp_path / "self_play", **tree, population={"matchmaker": "self_play"}))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["iqn", "mappo"])
def test_sharing_repeats_itself_in_lockstep_and_after_a_resume(algorithm, tmp_path):
    tree = tree_of(algorithm, agent_id=True)
    tree["population"] = {"sharing": {"agent_[01]": "pair"}}
    whole = run(tmp_path / "whole", schedule="sequential", **tree)
    assert set(whole[0]) == {"pair", "agent_2"}
    assert_same(whole, run(tmp_path / "lockstep", schedule="lockstep", **tree))
    run(tmp_path / "parts", schedule="sequential", **tree, run={"turns": 333})
    run(tmp_path / "parts", resume=True, schedule="sequential", **tree, run={"turns": 800})
    assert_same(whole, outcome(tmp_path / "parts"))


@pytest.mark.process
@pytest.mark.slow
def test_returns_are_reported_by_agent_and_there_are_no_ratings(tmp_path):
    tree = tree_of("dqn") | {"schedule": "sequential", "population": SHARING}
    tree["env"]["options"]["max_turns"] = 40
    run(tmp_path / "run", **tree, run={"evaluate_episodes": 2})
    files, summary = RunDirectory.open(tmp_path / "run"), read_run(tmp_path / "run")
    assert not files.ledger.exists()
    assert [policy.name for policy in summary.policies] == ["policy"]
    assert summary.policies[0].member is None
    returns = {m.name: m for m in summary.episode_metrics if m.name.endswith("/return")}
    assert list(returns) == [f"agent_{i}/return" for i in range(3)]
    assert all(m.training is not None and m.evaluated is not None for m in returns.values())
    last = summary.records[-1]
    mean = sum(m.training for m in returns.values()) / 3
    assert mean == pytest.approx(last.policies["policy"].mean_return)
