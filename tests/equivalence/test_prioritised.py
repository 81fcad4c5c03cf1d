"""Where steps are prioritised, exact schedules are exact, too; elsewhere nothing changes."""

import numpy as np
import pytest

from equivalence.runs import assert_same, outcome, run, stops
from remuda.config import overlay

PRIORITISED = {"policy": {"algorithm": "dqn", "experience": {"prioritised": 0.6}}}
POPULATION = {"policies": 2, "matchmaker": "self_play", "snapshots": {"every": 4, "keep": 2}}
SETTINGS = {
    "dqn": PRIORITISED,
    "iqn": overlay(PRIORITISED, {"policy": {"algorithm": "iqn"}}),
    "dealt, of a group": overlay(
        PRIORITISED,
        {
            "env": {"num_envs": 4, "options": {"max_turns": 30}},
            "population": POPULATION
            | {"births": {"slots": 1, "every": 6, "games": 1, "confidence": 0.0}},
            "policy": {"experience": {"group": "all"}},
        },
    ),
}


@pytest.mark.slow_cases("dealt, of a group", "dqn")
@pytest.mark.parametrize(
    "setting", ["dqn", pytest.param("iqn", marks=pytest.mark.slow), "dealt, of a group"]
)
def test_lockstep_equals_sequential(setting, tmp_path):
    both = [
        run(tmp_path / schedule, schedule=schedule, **SETTINGS[setting])
        for schedule in ("sequential", "lockstep")
    ]
    assert_same(*both, policies=slice(2), updates=5)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_resumed_run_equals_an_uninterrupted_one(setting, tmp_path):
    tree = SETTINGS[setting] | {"schedule": "sequential"}
    whole = run(tmp_path / "whole", **tree)
    run(tmp_path / "parts", **tree, run={"turns": stops(setting)[0]})
    run(tmp_path / "parts", resume=True, **tree)
    assert_same(whole, outcome(tmp_path / "parts"), policies=slice(2), updates=5)


def test_one_that_draws_uniformly_learns_the_same_beside_one_that_does_not(tmp_path):
    """They are one stack; only the neighbour's acts may reach it, and those do not change here."""
    still = {"exploration": {"start": 1.0, "end": 1.0}}
    tree = {"schedule": "sequential", "policy": {"algorithm": "dqn"}}
    (first, _), (second, _) = (
        run(
            tmp_path / str(alpha),
            **tree,
            policies={"agent_1": still | {"experience": {"prioritised": alpha}}},
        )
        for alpha in (0.0, 0.6)
    )
    assert np.array_equal(first["agent_0"], second["agent_0"])
    assert not np.array_equal(first["agent_1"], second["agent_1"])
