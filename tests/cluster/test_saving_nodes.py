"""Checkpoints of runs over several nodes: which role writes what, whatever comes first."""

import os
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cluster.node_runs import NodeRun, ProcessNodes
from cluster_nodes import until
from refusals import refuses
from remuda.cluster.member import Member
from remuda.cluster.nodes import Placement
from remuda.cluster.runtime import ClusterRuntime
from remuda.errors import RoleDiedError

SLOWLY = 0.7


class LateAnswers(ProcessNodes):
    """Nodes whose answers to `begin_save` take their time; what is asked is done at once."""

    def call(self, number, method, *args):
        call = super().call(number, method, *args)
        if method == "begin_save":
            until, done = time.monotonic() + SLOWLY, call.done
            call.done = lambda: done() and time.monotonic() > until
        return call


@pytest.mark.slow
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


@pytest.mark.cluster
@pytest.mark.slow
def test_a_learner_that_moves_goes_on_from_its_part_where_others_have_theirs_already(tmp_path):
    settings = {"env": {"num_envs": 4}}
    where = ((1,), (1, 2))
    run = NodeRun(tmp_path, settings, (4,), ((0,), (1,)), where, ProcessNodes(3))
    run.runtime.infos[1] = replace(run.runtime.infos[1], cores=64)
    try:
        run.runtime.start(lambda: False)
        run.runtime.run_for(0.5)
        assert run.save() == set()
        os.kill(run.nodes.pid(2), signal.SIGKILL)
        until(lambda: run.runtime.run_for(0.1) or run.runtime.placement.learners == (1, 1), 20.0)
        log = tmp_path / "logs" / "learner-agent_1@node-1.log"
        until(lambda: run.runtime.run_for(0.3) or is_running(run, "learner-agent_1"), 30.0)
    finally:
        run.stop()
    assert "resumes from the newest checkpoint" in log.read_text()


def is_running(run, name):
    return any(r.name == name and r.state == "running" for r in run.runtime.status())


@pytest.mark.slow
def test_a_role_that_dies_for_good_on_the_head_costs_neither_a_last_checkpoint_nor_an_end_in_order(
    tmp_path,
):
    settings = {"env": {"num_envs": 4}, "supervision": {"restarts": 0}}
    run = NodeRun(tmp_path, settings, (4,), ((0,), (1,)), ((1,), (0, 1)), ProcessNodes(2))
    try:
        run.runtime.start(lambda: False)
        run.runtime.run_for(0.5)
        assert run.save() == set()
        os.kill(run.runtime.local.pids["learner-agent_0"], signal.SIGKILL)
        with refuses(RoleDiedError):
            run.runtime.run_for(5.0)
        assert run.save() == {"agent_0"}
    finally:
        run.stop()
    assert run.runtime.local.pids == {}


@pytest.mark.parametrize(("schedule", "saved"), [("lockstep", 0), ("async", 3)])
def test_counts_that_never_reached_the_head_cost_an_exact_run_its_checkpoint(schedule, saved):
    """The counts that the head knows would belong to an earlier turn than the other parts."""
    runtime = object.__new__(ClusterRuntime)
    runtime.members, runtime.silence, runtime.write_limit = {1: Member(1, "far")}, 0.05, 1.0
    runtime.placement = Placement((0,), (1,))
    runtime.nodes = AnswersAtOnce({"save": {"agent_0": None, "agent_1": None}, "stamp": 7})
    runtime.node = SimpleNamespace(
        assembly=SimpleNamespace(config=SimpleNamespace(exact=schedule == "lockstep")),
        stamps={"stamps": np.array([0, 6])},
    )
    local = {"save": lambda _: {"actor"}, "run_for": lambda _: None}
    runtime.local = SimpleNamespace(**local, want_save=lambda _: None)
    assert len(runtime.save(1)) == saved
    runtime.node.stamps["stamps"][1] = 7
    assert len(runtime.save(2)) == 3


class AnswersAtOnce:
    """Nodes that answer what they are asked."""

    def __init__(self, answers):
        self.answers = answers

    def call(self, number, method, *args):
        return SimpleNamespace(done=lambda: True, result=lambda *_: self.answers.get(method))
