"""What the steps of a group's other members weigh in an update, with figures worked by hand.

The policy is uniform over four actions. So a step that was chosen with a chance of 1/4 weighs 1,
one of 1/2 weighs 1/2, and one of 1/16 weighs 4, or as much as the correction allows.
"""

import math

import pytest

from assembled import assemble
from metric_lines import scalars
from remuda.config import load_config, overlay
from remuda.coordinator.scoreboard_reader import ScoreboardReader
from remuda.experience.ring import OTHERS
from remuda.experience.segments import AFTER
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.scoreboard import Learn
from support import Tape

TREE = {
    "game": "support:Tape",
    "schedule": "sequential",
    "policy": {
        "algorithm": "ppo",
        "learning_mode": "hybrid",
        "network": {"hidden": (8,)},
        "ppo": {"rollout_length": 16, "minibatches": 1, "max_staleness": 3},
        "experience": {"segment_length": 5, "capacity": 2000, "group": "us"},
    },
}
FIRST = [(7, 1 / 4), (OTHERS, 1 / 2), (7, 1 / 4), (OTHERS, 1 / 16)]
SECOND = [(8, 1 / 4), (8, 1 / 4), (OTHERS, 1 / 2), (8, 1 / 4)]
"""Updates: by step, the version that chose it, and with what chance."""


def build(**policy):
    config = load_config(overlay(TREE, {"policy": policy}))
    agents = Tape().agents
    specs = policy_specs(config, agents)
    assembly = assemble(config, specs, make_layout(config, len(specs)), agents=agents)
    learners = [role.build() for role in assembly.roles()[1:]]
    board = ScoreboardReader(assembly.scoreboard, assembly.experience)
    found = next(
        learner for group in learners for learner in group.learners if "agent_0" in learner.policies
    )
    return found, board


def train_on(learner, steps):
    """One update of the first policy, which is uniform before it, on one segment of these steps."""
    k, count = learner.policies.index("agent_0"), len(steps)

    def take(out, *_):
        out.num_rows[k], out.num_steps[k], out.num_taken[k] = count + 1, count, count
        out.num_segments[k], out.starts[k, 0] = 1, 0
        out.streams[k, :count], out.streams[k, count] = 0, AFTER
        out.observations[k, : count + 1] = 0.0
        for row, (version, chance) in enumerate(steps):
            out.versions[k, row], out.log_probs[k, row] = version, math.log(chance)
        out.versions[k, count] = OTHERS  # no step: whatever stands here
        return count

    learner.algorithm.online.flat[k] = 0.0
    learner.rollouts[k].ready, learner.rollouts[k].take = lambda: True, take
    learner.update()


@pytest.mark.parametrize(
    ("correction", "limit", "first", "both"),
    [
        ("vtrace", None, (0.5 + 1.0) / 2, (0.5 + 1.0 + 0.5) / 3),
        ("decoupled", None, (0.5 + 2.0) / 2, (0.5 + 2.0 + 0.5) / 3),
        ("decoupled", 1.5, (0.5 + 1.5) / 2, (0.5 + 1.5 + 0.5) / 3),
        ("vtrace", 0.25, 0.25, 0.25),
        ("none", None, 1.0, 1.0),
    ],
)
def test_the_mean_weight_of_what_others_chose(correction, limit, first, both):
    learner, board = build(ppo={"correction": correction, "correction_limit": limit})
    start = board.start
    train_on(learner, FIRST)
    record = board.between(start, board.read()).policies["agent_0"]
    assert record.others == pytest.approx(2 / 4)
    assert record.others_weight == pytest.approx(first, rel=1e-5)
    train_on(learner, SECOND)
    found = board.between(start, board.read())
    assert found.policies["agent_0"].others == pytest.approx((2 / 4 + 1 / 4) / 2)
    assert found.policies["agent_0"].others_weight == pytest.approx(both, rel=1e-5)
    told = dict(scalars(found))
    assert told["agent_0/others_weight"] == pytest.approx(both, rel=1e-5)
    assert found.policies["agent_1"].others_weight is None  # no update of it yet


def test_where_nobody_elses_steps_were_trained_on_there_is_no_weight_to_tell():
    learner, board = build()
    start = board.start
    train_on(learner, [(7, 1 / 4)] * 4)
    record = board.between(start, board.read()).policies["agent_0"]
    assert record.others == 0.0
    assert record.others_weight is None


def test_the_share_of_what_others_chose_in_batches_of_q_learners():
    policy = {"algorithm": "dqn", "learning_mode": "off_policy", "batch_size": 4}
    tree = {key: value for key, value in TREE["policy"].items() if key != "ppo"} | policy
    tree["experience"] = tree["experience"] | {"learning_starts": 16}
    config = load_config(TREE | {"policy": tree})
    agents = Tape().agents
    assembly = assemble(config, policy_specs(config, agents), make_layout(config, 2), agents=agents)
    actor, learner = (role.build() for role in assembly.roles()[:2])
    (learner,) = learner.learners
    replay, row = learner.replays[0], assembly.scoreboard.learn("agent_0")
    sample, drawn = replay.sample, [[OTHERS, 3, OTHERS, OTHERS], [3, 3, 3, 3]]

    def of_others(out, policy, *how):
        found = sample(out, policy, *how)
        out.versions[policy] = drawn[int(row[Learn.UPDATES])]
        return found

    replay.sample = of_others
    while row[Learn.UPDATES] < 2:
        actor.work()
        while row[Learn.UPDATES] < 2 and learner.ready():
            learner.update()
    assert row[Learn.OTHERS_SUM] == pytest.approx(3 / 4)
    assert row[Learn.OTHERS_STEPS] == 0  # a batch weighs all alike
