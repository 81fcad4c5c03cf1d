"""Checkpoints of runs over several nodes: which role writes what, whatever comes first."""

import time

from cluster.node_runs import NodeRun, ProcessNodes

SLOWLY = 0.7


class LateAnswers(ProcessNodes):
    """Nodes whose answers to `begin_save` take their time; what is asked is done at once."""

    def call(self, number, method, *args):
        call = super().call(number, method, *args)
        if method == "begin_save":
            until, done = time.monotonic() + SLOWLY, call.done
            call.done = lambda: done() and time.monotonic() > until
        return call


def test_a_learner_knows_which_checkpoint_is_wanted_before_an_actor_elsewhere_ends_its_turn(
    tmp_path,
):
    settings = {
        "schedule": "lockstep",
        "env": {"num_envs": 4},
        "checkpoint": {"write_limit": 4.0},
    }
    run = NodeRun(tmp_path, settings, (4,), ((0, 1),), ((1,), (0,)), LateAnswers(2))
    try:
        run.runtime.start(lambda: False)
        run.runtime.run_for(0.5)
        assert run.save() == set()
    finally:
        run.stop()
