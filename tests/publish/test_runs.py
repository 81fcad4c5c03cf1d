"""Publishing in whole runs: every checkpoint and every successor has weights, in both modes."""

import numpy as np
import pytest

from assembled import assemble
from remuda.config import load_config
from remuda.population.specs import policy_specs
from remuda.publish.snapshot import Publisher
from remuda.runtime.layout import make_layout
from remuda.system.checkpoint.state import pack, unpack
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.scoreboard import Learn
from support import Tape

MODES = ["snapshot", "double_buffer"]


def make(algorithm="ppo", schedule="sequential", **policies):
    steps = {"n_steps": 1} if algorithm == "ppo" else {"batch_size": 16}
    kept = {"learning_starts": 32, "capacity": 2000, "replay_ratio": 0.5, "segment_length": 4}
    tree = {
        "game": "support:Tape",
        "schedule": schedule,
        "env": {"num_envs": 2},
        "policy": {
            "algorithm": algorithm,
            "network": {"hidden": (8,)},
            "ppo": {"rollout_length": 16},
            "experience": kept,
            **steps,
        },
        "policies": policies,
        "learners": {"processes": 1},
        "run": {"turns": 200},
    }
    config = load_config(tree)
    specs = policy_specs(config, Tape().agents)
    return assemble(config, specs, make_layout(config, len(specs)))


def dies_while_publishing(assembly, policy):
    """Its learner, in the middle of a copy: the row that it writes is half of it new."""

    class Died(BaseException):
        pass

    class Half:
        def __array__(self, dtype=None, copy=None):
            slots = assembly.published.slots[policy]
            for row in np.flatnonzero(slots["sequence"] % 2):
                slots["weights"][row, ::2] = 99.0
            raise Died

    checksum = assembly.published.checksums[policy]
    with pytest.raises(Died):
        Publisher(assembly.published, policy, checksum).publish(Half(), 1, 0.5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ["ppo", "mappo", "iqn", "dqn", "sac"])
def test_a_checkpoint_holds_a_policy_that_is_just_publishing(algorithm, mode):
    assembly = make(algorithm, agent_0={"publish": {"mode": mode}})
    before = assembly.snapshots()
    dies_while_publishing(assembly, "agent_0")
    saved = unpack(pack(assembly.state()))
    assert set(saved["published"]) == {"agent_0", "agent_1"}
    for name, found in saved["published"].items():
        assert np.array_equal(found["weights"], before[name].weights)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ["ppo", "mappo", "iqn", "dqn", "sac"])
def test_a_learner_that_died_while_publishing_has_a_successor(algorithm, mode):
    assembly = make(algorithm, agent_0={"publish": {"mode": mode}})
    for _ in range(3):
        dies_while_publishing(assembly, "agent_0")
        actor, learner = (role.build() for role in assembly.roles())
    assert actor.seats.seats[0].version == 0
    actor.turn()
    assert actor.seats.seats[0].version == 1  # it was published once, and so it acts
    while assembly.scoreboard.learn("agent_0")[Learn.UPDATES] < 3:
        actor.turn()
        while learner.work():
            pass
    learner.finish()
    assert np.isfinite(assembly.snapshots()["agent_0"].weights).all()
    assert assembly.snapshots()["agent_0"].version > 1


def play(tmp_path, **policies):
    assembly = make(**policies)
    runtime = assembly.runtime(tmp_path, Checkpoints(tmp_path / "checkpoints"))
    runtime.start(lambda: False)
    while not runtime.run_for(1.0):
        pass
    runtime.stop()
    assert assembly.scoreboard.turns() == 200
    return assembly


def test_policies_publish_each_in_a_mode_of_its_own(tmp_path):
    """How weights are handed over does not change them; each seat acts with its newest."""
    one, other = {"publish": {"mode": "snapshot"}}, {"publish": {"mode": "double_buffer"}}
    mixed = play(tmp_path, agent_0=one, agent_1=other)
    assert mixed.published.modes == {"agent_0": "snapshot", "agent_1": "double_buffer"}
    alike = play(tmp_path, agent_0=other, agent_1=other)
    for name, snapshot in mixed.snapshots().items():
        assert snapshot.version > 3
        assert snapshot.version == alike.snapshots()[name].version
        assert np.array_equal(snapshot.weights, alike.snapshots()[name].weights)
        seen = mixed.scoreboard.policy(name, 0)
        assert seen.tolist() == alike.scoreboard.policy(name, 0).tolist()
