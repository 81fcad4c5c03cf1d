"""Where seats are dealt, policies that play unequally are trained together all the same."""

import numpy as np

from assembled import assemble
from remuda.config import load_config
from remuda.population.ledger.records import PolicyRef
from remuda.population.matchmaking.matchmaker import Matchmaker
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.scoreboard import Learn, Play
from support import Tape


class Unequal(Matchmaker):
    """policy_0 is in every match; the others share the other seat; policy_3 never plays."""

    def seat(self, population, ledger, random):
        return (PolicyRef("policy_0"), PolicyRef(f"policy_{random.integers(1, 3)}"))


class Unexpected(Unequal):
    """Likewise, and all were expected to play alike."""

    exchangeable = True


def trained_together(matchmaker, turns):
    """How many policies each update trained, and all counters; in one process."""
    config = load_config(
        {
            "game": "support:Tape",
            "schedule": "async",  # else each policy is trained by itself
            "env": {"num_envs": 8},
            "policy": {
                "algorithm": "ppo",
                "network": {"hidden": (8,)},
                "ppo": {"rollout_length": 16, "minibatches": 1},
                "experience": {"segment_length": 5},
            },
            "population": {"matchmaker": matchmaker, "policies": 4},
            "learners": {"processes": 1},
            "run": {"turns": None, "seconds": 3600},
        }
    )
    agents = Tape().agents
    specs = policy_specs(config, agents)
    assembly = assemble(config, specs, make_layout(config, 4), agents=agents)
    actor, *learners = (role.build() for role in assembly.roles())
    rows = [assembly.scoreboard.learn(spec.name) for spec in specs]
    sizes = []
    for _ in range(turns):
        worked = actor.work()
        for learner in learners:
            before = [row[Learn.UPDATES] for row in rows]
            while learner.work():
                after = [row[Learn.UPDATES] for row in rows]
                sizes.append(sum(a > b for a, b in zip(after, before, strict=True)))
                before, worked = after, True
        assert worked, "neither the actor nor a learner could go on"
    return sizes, [dict(zip(Learn, row, strict=True)) for row in rows], assembly


def test_a_stack_waits_for_all_its_policies():
    sizes, rows, assembly = trained_together("random", 800)
    assert len(sizes) > 20
    assert np.mean(sizes) > 3.0  # of 4, though they play unequally for a while
    assert assembly.scoreboard.played()[Play.WAITS] == 0
    for row in rows:
        assert row[Learn.LOST] == 0
        assert row[Learn.TRAINED] > 0.8 * 800 * 16 / 4


def test_who_never_plays_holds_up_nobody():
    _, rows, _ = trained_together("learner.test_dealt:Unexpected", 600)
    updates = [row[Learn.UPDATES] for row in rows]
    assert updates[3] == 0
    assert min(updates[:3]) > 5
    assert updates[0] > 1.5 * max(updates[1:3])


def test_who_is_dealt_more_streams_trains_on_more_steps_as_often():
    _, rows, assembly = trained_together("learner.test_dealt:Unequal", 600)
    first, *others = [assembly.experience[f"policy_{i}"].rollout for i in range(3)]
    assert others == [first // 2] * 2
    updates = [row[Learn.UPDATES] for row in rows]
    assert updates[3] == 0
    assert max(updates[:3]) < 1.3 * min(updates[:3])
