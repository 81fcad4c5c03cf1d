"""Policies with unlike shares of rewards, in exact schedules: they agree, and resume as a whole."""

import pytest

from equivalence.runs import PPO, assert_same, outcome, run, stops

KINDS = {"fixed": {}, "dealt": {"matchmaker": "random", "policies": 3}}


def tree_of(kind):
    names = [f"agent_{i}" if kind == "fixed" else f"policy_{i}" for i in range(3)]
    shares = (0.0, 0.5, 1.0)
    own = {"ppo": PPO | {"rollout_length": 10, "normalise_rewards": False}}
    return {
        "policy": {"algorithm": "ppo", **own},
        "policies": {n: {"share_rewards": s} for n, s in zip(names, shares, strict=True)},
        "env": {"num_envs": 4, "options": {"num_agents": 3, "max_turns": 30}},
        "learners": {"processes": 2},
        "population": KINDS[kind],
    }


@pytest.mark.process
@pytest.mark.slow_cases("dealt")
@pytest.mark.parametrize("kind", ["dealt", pytest.param("fixed", marks=pytest.mark.slow)])
def test_lockstep_equals_sequential_where_rewards_are_shared(kind, tmp_path):
    outcomes = [
        run(tmp_path / schedule, schedule=schedule, **tree_of(kind))
        for schedule in ("sequential", "lockstep")
    ]
    assert_same(*outcomes, slice(2), updates=5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_with_shares_is_resumed_exactly_in_the_middle_of_an_episode(kind, tmp_path):
    tree = tree_of(kind) | {"schedule": "sequential"}
    whole = run(tmp_path / "whole", **tree)
    run(tmp_path / "parts", **tree, run={"turns": stops("shared", kind)[0]})
    run(tmp_path / "parts", resume=True, **tree, run={"turns": 800})
    assert_same(whole, outcome(tmp_path / "parts"), slice(2), updates=5)
