"""A learner process that is stopped for a while: the game goes on, and all go on after."""

import contextlib
import os
import signal

import pytest

from assembled import assemble
from faults.runs import ALGORITHMS, is_stopped, run_until, small_config
from remuda.config import overlay
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.scoreboard import Learn, Play
from support import Tape

pytestmark = pytest.mark.process

AGENTS = 4


@pytest.mark.slow_cases("ppo overwrite-tree1", "ppo wait-dealt", "ppo wait-tree0")
@pytest.mark.parametrize(
    ("algorithm", "tree"),
    [
        ("ppo wait", {}),
        ("ppo overwrite", {}),
        pytest.param("ppo wait", {"population": {"matchmaker": "random"}}, id="ppo wait-dealt"),
        pytest.param(
            "ppo wait",
            {"actor": {"processes": 2}},
            id="ppo wait-actors",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "ppo wait", {"env": {"workers": 2}}, id="ppo wait-workers", marks=pytest.mark.slow
        ),
        pytest.param(
            "ppo overwrite",
            {"population": {"matchmaker": "random"}},
            id="ppo overwrite-dealt",
            marks=pytest.mark.slow,
        ),
        pytest.param("iqn", {}, marks=pytest.mark.slow),
        pytest.param("dqn", {}, marks=pytest.mark.slow),
        pytest.param("iqn wait", {}, marks=pytest.mark.slow),
    ],
)
def test_the_others_go_on_while_one_is_stopped_and_all_after_it(algorithm, tree, tmp_path):
    tree = overlay({"env": {"num_envs": 4, "options": {"num_agents": AGENTS}}}, tree)
    config = small_config(policy=ALGORITHMS[algorithm], **tree)
    agents = Tape(num_agents=AGENTS).agents
    specs = policy_specs(config, agents)
    assembly = assemble(config, specs, make_layout(config, len(specs)), agents=agents)
    runtime = assembly.runtime(tmp_path, Checkpoints(tmp_path / "checkpoints"))
    runtime.start(lambda: False)
    board = assembly.scoreboard
    rows = [board.learn(f"agent_{i}") for i in range(AGENTS)]
    stopped, others = rows[:2], rows[2:]
    name = next(name for name in runtime.pids if name.startswith("learner-agent_0"))
    pid = runtime.pids[name]

    def updated(rows, by):
        before = [row[Learn.UPDATES] for row in rows]
        goal = [count + by for count in before]
        return lambda: all(row[Learn.UPDATES] > n for row, n in zip(rows, goal, strict=True))

    try:
        run_until(runtime, updated(rows, 5))
        os.kill(pid, signal.SIGSTOP)
        run_until(runtime, lambda: is_stopped(pid))
        before = [row[Learn.UPDATES] for row in stopped]
        run_until(runtime, updated(others, 20))
        assert is_stopped(pid)
        assert [row[Learn.UPDATES] for row in stopped] == before
        waits = board.played()[Play.WAITS], board.played()[Play.FORCED]
        os.kill(pid, signal.SIGCONT)
        run_until(runtime, updated(rows, 10))
        assert runtime.pids[name] == pid, "it was replaced"
        if "wait" not in algorithm:
            assert waits == (0, 0) == (board.played()[Play.WAITS], board.played()[Play.FORCED])
        if "ppo" in algorithm:
            assert all(row[Learn.LOST] > 0 for row in stopped)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        runtime.stop()
