"""Where a game tells what is allowed, and Q-learners play it, exact schedules are exact, too."""

import pytest

from equivalence.runs import assert_same, outcome, run, stops

DOORS = {
    "game": "masked_games:Doors",
    "env": {"num_envs": 4, "options": {"choices": [2, 3]}},
    "policy": {"algorithm": "dqn", "experience": {"segment_length": 4}},
}
POPULATION = {"policies": 2, "matchmaker": "self_play", "snapshots": {"every": 4, "keep": 2}}
SETTINGS = {
    "dqn": DOORS,
    "iqn": DOORS | {"policy": DOORS["policy"] | {"algorithm": "iqn"}},
    "dealt": DOORS | {"population": POPULATION},
}


@pytest.mark.process
@pytest.mark.slow_cases("dealt", "dqn")
@pytest.mark.parametrize("setting", ["dqn", pytest.param("iqn", marks=pytest.mark.slow), "dealt"])
def test_lockstep_equals_sequential(setting, tmp_path):
    both = [
        run(tmp_path / schedule, schedule=schedule, **SETTINGS[setting])
        for schedule in ("sequential", "lockstep")
    ]
    assert_same(*both, policies=slice(2))


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_resumed_run_equals_an_uninterrupted_one(setting, tmp_path):
    tree = SETTINGS[setting] | {"schedule": "sequential"}
    whole = run(tmp_path / "whole", **tree)
    run(tmp_path / "parts", **tree, run={"turns": stops(setting)[0]})
    run(tmp_path / "parts", resume=True, **tree)
    assert_same(whole, outcome(tmp_path / "parts"), policies=slice(2))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dqn", "iqn", "sac"])
def test_nothing_forbidden_is_done_in_async_nor_in_evaluation(algorithm, tmp_path):
    """A forbidden action would end the actor, and the evaluation."""
    tree = {"schedule": "async", "policy": DOORS["policy"] | {"algorithm": algorithm}}
    tree["policy"]["experience"] = {"segment_length": 4, "on_full": "wait"}
    _, counts = run(tmp_path / "run", **DOORS | tree, run={"turns": 3000, "evaluate_episodes": 20})
    assert (counts["written"] > 2900).all()
