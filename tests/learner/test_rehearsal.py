"""Nothing is compiled, or loaded from where it was compiled before, once a role is ready."""

import sys

import pytest

from remuda.assembly import Assembly
from remuda.config import load_config, overlay
from remuda.envs.registry import make_env
from remuda.forkserver import client as forkserver
from remuda.policies.spec import policy_specs
from remuda.runtime.layout import make_layout
from remuda.scoreboard import Learn

SMALL = {
    "schedule": "sequential",
    "env": {"num_envs": 2},
    "learners": {"processes": 1},
    "policy": {"network": {"hidden": (16,), "quantiles": 4}},
}
VALUES = {"batch_size": 8, "experience": {"learning_starts": 64, "capacity": 1000}}
ROLLOUTS = {
    "algorithm": "ppo",
    "ppo": {"rollout_length": 32},
    "experience": {"segment_length": 8},
}
POPULATION = {"population": {"policies": 4, "matchmaker": "random"}}
CASES = {
    "iqn": ("treasure_hunt", {"policy": VALUES}),
    "dqn": ("treasure_hunt", {"policy": {"algorithm": "dqn"} | VALUES}),
    "noisy dqn": (
        "treasure_hunt",
        {"policy": overlay(VALUES, {"algorithm": "dqn", "network": {"noisy": True}})},
    ),
    "ppo": ("treasure_hunt", {"policy": ROLLOUTS}),
    "ppo over short segments": (
        "treasure_hunt",
        {"policy": overlay(ROLLOUTS, {"experience": {"segment_length": 2}})},
    ),
    "ppo hybrid": ("treasure_hunt", {"policy": ROLLOUTS | {"learning_mode": "hybrid"}}),
    "ppo off-policy": ("treasure_hunt", {"policy": ROLLOUTS | {"learning_mode": "off_policy"}}),
    "ppo with a memory": (
        "tag",
        {"policy": overlay(ROLLOUTS, {"network": {"recurrent": 8}})},
    ),
    "ppo with continuous actions": (
        "pettingzoo:mpe2.simple_spread_v3",
        {"policy": ROLLOUTS, "env": {"options": {"continuous_actions": True}}},
    ),
    "ppo with masks": ("connect_four", {"policy": ROLLOUTS}),
    "dqn with one agent": ("support:Recall", {"policy": {"algorithm": "dqn"} | VALUES}),
    "ppo with a memory and one agent": (
        "support:Recall",
        {"policy": overlay(ROLLOUTS, {"network": {"recurrent": 8}})},
    ),
    "dqn and an actor that waits": (
        "support:Recall",
        {
            "policy": overlay(
                VALUES, {"algorithm": "dqn", "experience": {"on_full": "wait", "capacity": 200}}
            )
        },
    ),
    "ppo and an actor that waits": (
        "support:Recall",
        {"policy": overlay(ROLLOUTS, {"experience": {"on_full": "wait"}})},
    ),
    "ppo from dealt seats": ("connect_four", {"policy": ROLLOUTS} | POPULATION),
}


def compiled():
    """How many signatures each compiled function of this process has."""
    from numba.core.dispatcher import Dispatcher

    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("remuda."):
            for attribute, value in list(vars(module).items()):
                if isinstance(value, Dispatcher):
                    found[f"{value.py_func.__module__}.{attribute}"] = len(value.signatures)
    return found


def play_and_train(game, tree):
    """In a fresh process: build the roles of a run, then see what its first updates compile."""
    config = load_config(overlay(SMALL | {"game": game}, tree))
    env = make_env(game, 1, **config.env.options)
    specs = policy_specs(config, env.agents)
    layout = make_layout(config, len(specs))
    parts = Assembly(config, specs, layout, facts=env.facts, agents=env.agents)
    actor, *learners = (role.build() for role in parts.roles())
    before = compiled()
    rows = [parts.scoreboard.learn(spec.name) for spec in specs]
    if any(spec.config.experience.on_full == "wait" for spec in specs):
        while actor.work():
            pass
    actor.wait(0.001, lambda: False)
    for _ in range(3000):
        actor.work()
        for learner in learners:
            while learner.work():
                pass
        if min(row[Learn.UPDATES] for row in rows) >= 2:
            break
    assert min(row[Learn.UPDATES] for row in rows) >= 2
    later = compiled()
    fresh = {name: count for name, count in later.items() if count > before.get(name, 0)}
    if game == "connect_four":
        # Its updates are cut to what fits into the cache, which a small one is not: other slices.
        fresh = {name: count for name, count in fresh.items() if ".by_hand." not in name}
    assert not fresh, f"compiled after the roles were ready: {fresh}"


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_compiled_once_a_role_is_ready(case, tmp_path):
    log = tmp_path / "log"
    process = forkserver.start(play_and_train, CASES[case], name="rehearsal", log=str(log))
    assert process.join(280)
    code = process.exitcode
    process.close()
    assert code == 0, log.read_text()
