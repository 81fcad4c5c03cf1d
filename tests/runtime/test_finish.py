"""Roles that are asked to finish, as their runtime sees them."""

import time
from types import SimpleNamespace

from remuda.runtime.child import Child, RoleSetup
from remuda.runtime.control import Control
from remuda.runtime.processes import ProcessRuntime
from remuda.system.memory.waiting import Wakeup


def test_one_that_was_restarted_once_does_not_begin_again_while_the_run_stops(tmp_path):
    """A learner would publish, as its newest weights, those of the last checkpoint."""
    wakeup, spawned = Wakeup(), []
    runtime = object.__new__(ProcessRuntime)
    runtime.control, runtime.stop_limit, runtime.bridge = Control((wakeup,)), 1.0, None
    runtime.clock = SimpleNamespace(passed=lambda: 0.0)
    runtime.start_child = lambda child: spawned.append(child.name)
    role = SimpleNamespace(name="learner", parts=())
    child = Child(0, RoleSetup(role, wakeup, None), tmp_path / "x.log")
    child.process = SimpleNamespace(join=lambda _: True, close=lambda: None, kill=lambda: None)
    child.due = time.monotonic() - 100  # when its successor was due
    runtime.children = [child]
    runtime.finish()
    runtime.watch(0.0)
    assert spawned == []
