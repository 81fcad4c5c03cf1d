"""Evolution outlives every role that dies: no birth is undone, lost, or carried out twice."""

import contextlib
import os
import random
import signal
from collections import Counter

import pytest

from assembled import assemble
from faults.runs import PPO, run_until, small_config
from remuda.coordinator.ledger_writer import LedgerWriter
from remuda.population.ledger.lineage import read_lineage
from remuda.population.ledger.records import PolicyRef
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.scoreboard import Learn
from support import Tape

pytestmark = pytest.mark.process

RATES = {"learning_rate": {"low": 1e-6, "high": 1e-4, "log": True}}
POPULATIONS = {
    "fixed": ({"matchmaker": "fixed"}, ["agent_0", "agent_1"]),
    "random": ({"matchmaker": "random", "policies": 4}, [f"policy_{i}" for i in range(4)]),
    "networks": ({"matchmaker": "fixed"}, ["agent_0", "agent_1"]),
}


@pytest.mark.slow_cases("fixed-algorithm0-8")
@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        ("fixed", PPO),
        pytest.param("random", {"algorithm": "dqn"}, marks=pytest.mark.slow),
        pytest.param("networks", PPO, marks=pytest.mark.slow),
    ],
)
def test_what_the_ledger_says_is_in_force_whoever_was_killed(kind, algorithm, kills, tmp_path):
    population, names = POPULATIONS[kind]
    evolution = {"every": 100, "games": 10, "confidence": 0.0, "numbers": RATES}
    own = {}
    if kind == "networks":
        evolution["networks"] = "any"
        own = {"policies": {"agent_1": {"network": {"hidden": (24, 16)}}}}
    config = small_config(
        **own,
        policy=algorithm,
        env={"num_envs": 4},
        population=population | {"evolution": evolution},
        learners={"processes": 2},
        supervision={"restarts": 10**6, "backoff": 0.02, "max_backoff": 0.02},
    )
    agents = Tape().agents
    specs = policy_specs(config, agents)
    ring = assemble(config, specs, make_layout(config, len(specs)), agents=agents)
    runtime = ring.runtime(tmp_path, Checkpoints(tmp_path / "checkpoints"))
    ledger = LedgerWriter(ring.table, tmp_path / "ledger.bin", print)
    draw = random.Random(kind)
    runtime.start(lambda: False)

    def births():
        ledger.write()
        return len(read_lineage(tmp_path / "ledger.bin"))

    def all_live():
        ledger.write()
        live = {member.ref for member in ring.table.population().learning}
        return live == {PolicyRef(name) for name in names}

    try:
        run_until(runtime, lambda: ring.table.word(0) >= 100)
        for _ in range(kills):
            before, role = births(), draw.choice(sorted(runtime.pids))
            with contextlib.suppress(ProcessLookupError):  # it is dead, and was not missed yet
                os.kill(runtime.pids[role], signal.SIGKILL)
            run_until(runtime, lambda before=before: births() > before)
        run_until(runtime, lambda: all_live() and agrees(ring, tmp_path / "ledger.bin", names))
        run_until(runtime, lambda: open_orders(ring, names) == 0)
    finally:
        runtime.stop()
    ledger.write()  # births went on while the last orders were waited for
    assert ledger.lost == 0
    orders, lineage = ring.table.births, read_lineage(tmp_path / "ledger.bin")
    count = Counter(born.policy for born in lineage)
    # Whoever was killed, what parents had learned by went on: no optimizer began anew for it.
    inherits = [born.optimizer_steps > 0 for born in lineage if born.parent is not None]
    if kind == "networks":
        assert not any(inherits)
    else:  # a Q-learner may be a parent before it has begun to train
        assert all(inherits) if algorithm == PPO else any(inherits)
    for slot, name in enumerate(names):
        # An order may be noted and its actor die before it counts; its successor orders anew.
        assert 0 <= count[name] - orders.ordered(slot) <= kills
        assert orders.confirmed(slot) <= orders.ordered(slot) <= orders.confirmed(slot) + 1


def open_orders(ring, names):
    """Births that were ordered, and that no learner has carried out yet."""
    orders = ring.table.births
    return sum(orders.ordered(slot) - orders.confirmed(slot) for slot in range(len(names)))


def agrees(ring, ledger, names):
    """Whether learners train with what the ledger says of the newest births."""
    newest = {born.policy: born.hyperparameters["learning_rate"] for born in read_lineage(ledger)}
    return all(
        abs(ring.scoreboard.learn(name)[Learn.LEARNING_RATE] - newest[name]) < 1e-12
        for name in names
        if name in newest
    )
