"""A run that stops in the middle of episodes and goes on equals one that never stopped."""

import numpy as np
import pytest

from cluster.in_turns import ACTOR_THERE, LEARNERS_THERE, ONE_NODE, SCATTERED, InTurns

TURNS = 150
KINDS = [
    "ppo",
    "dqn",
    "iqn",
    "ppo recurrent",
    "dqn recurrent",
    "dqn n_step prioritised",
    "iqn frames",
    "ppo hybrid frames",
    "ppo leduc_poker",
    "dqn leduc_poker n_step",
    "iqn kuhn_poker prioritised",
    "ppo kuhn_poker recurrent",
]
PLACEMENTS = {
    "one node": ONE_NODE,
    "scattered": SCATTERED,
    "learners there": LEARNERS_THERE,
    "actor there": ACTOR_THERE,
}
"""Where seats are dealt, the first actor lives on the head."""


@pytest.mark.slow_cases(
    "dqn leduc_poker n_step",
    "dqn n_step prioritised",
    "dqn recurrent",
    "iqn",
    "iqn frames",
    "iqn kuhn_poker prioritised",
    "ppo",
    "ppo hybrid frames",
    "ppo kuhn_poker recurrent",
    "ppo leduc_poker",
    "ppo recurrent",
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_stops_at_any_turn_goes_on_exactly(kind, tmp_path):
    """At turns drawn at random, whatever the node where each role lives."""
    whole = InTurns(kind, ONE_NODE)
    whole.play(TURNS)
    assert whole.updates().min() > 1
    random = np.random.default_rng(KINDS.index(kind))
    for name, placement in PLACEMENTS.items():
        if name == "actor there" and "poker" in kind:
            continue
        run, checkpoints, played = InTurns(kind, placement), None, 0
        for stop in (*sorted(random.choice(TURNS, 2, replace=False).tolist()), TURNS):
            if checkpoints is not None:
                run = InTurns(kind, placement, checkpoints)
            run.play(stop - played)
            played, checkpoints = stop, run.save(tmp_path / name)
        assert run.learned() == whole.learned(), name
        assert run.counted() == whole.counted(), name
