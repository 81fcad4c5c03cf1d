"""`policy.priority` across learner processes: a share of the processors, by how nice each is."""

import psutil
import pytest

from remuda.assembly.assembly import Assembly
from remuda.config import load_config
from remuda.config.unused_settings import unused_settings
from remuda.runtime.layout import Layout, niceness
from remuda.system.checkpoint.store import Checkpoints
from remuda.training.prepare import prepare

GROUPS = ((0, 1), (2,), (3,))


@pytest.mark.parametrize(
    ("priorities", "expected"),
    [
        ((1.0, 1.0, 1.0, 1.0), [3, 3, 3]),
        ((7.0, 7.0, 7.0, 7.0), [3, 3, 3]),
        # The kernel gives 1.25 times the time for each step: 1.25 ** 3 is 2, and 1.25 ** 10 is 9.
        ((1.0, 1.0, 2.0, 1.0), [6, 3, 6]),
        ((1.0, 5.0, 9.0, 1.0), [8, 3, 13]),  # by the mean of a process, here 3
        ((1.0, 1.0, 1e9, 1.0), [19, 3, 19]),
    ],
)
def test_a_process_of_a_lower_priority_is_nicer(priorities, expected):
    config = load_config({"learners": {"nice": 3}})
    found = niceness(config, Layout((2, 2), GROUPS, ("cpu",) * 4), priorities)
    assert found == [0, 0, *expected]


@pytest.mark.slow
def test_each_learner_process_runs_as_nice_as_its_priority_asks(tmp_path):
    config = load_config(
        {
            "game": "treasure_hunt",
            "env": {"options": {"num_agents": 4}},
            "learners": {"nice": 0},
            "policy": {"algorithm": "dqn", "network": {"hidden": (8,)}},
            "policies": {"agent_2": {"priority": 4.0}},
            "run": {"turns": 10**7},
        }
    )
    prepared = prepare(config)
    layout = Layout((1,), GROUPS, ("cpu",) * 4)
    assembly = Assembly(prepared.spec, layout)
    (tmp_path / "logs").mkdir()
    runtime = assembly.process_runtime(tmp_path / "logs", Checkpoints(tmp_path / "checkpoints"))
    own = psutil.Process().nice()
    try:
        runtime.start(lambda: False)
        found = [psutil.Process(pid).nice() - own for pid in runtime.pids.values()]
    finally:
        runtime.stop()
    assert found == [0, min(6, 19 - own), 0, min(6, 19 - own)]


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"policies": {"agent_1": {"priority": 3.0}}}, None),
        ({"policy": {"priority": 3.0}}, "policy.priority has no effect: every policy has the same"),
        (
            {"schedule": "lockstep", "policies": {"agent_1": {"priority": 3.0}}},
            "policies.agent_1.priority has no effect: in the schedule lockstep all due updates",
        ),
    ],
)
def test_a_priority_without_effect_is_told(tree, told):
    config = load_config({"game": "treasure_hunt"} | tree)
    found = unused_settings(config, policies=["agent_0", "agent_1"])
    assert len(found) == (told is not None)
    assert not told or found[0].startswith(told)
