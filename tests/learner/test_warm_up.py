"""Nothing is compiled, or loaded from where it was compiled before, once a role is ready.

Each role is in a process of its own, as in a run: in one process, what one role compiles another
would find there, whether it had compiled it itself or not.
"""

import sys
import time
from dataclasses import replace

import pytest

from assembled import assemble
from remuda.config import load_config, overlay
from remuda.envs.registry import make_env
from remuda.learner import warm_up
from remuda.learner.role import LearnerRole
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.memory.shared import SharedArrays
from remuda.system.processes import client as forkserver
from remuda.system.scoreboard import Learn, Play, Policy

SMALL = {
    "schedule": "async",
    "env": {"num_envs": 2},
    "actor": {"processes": 1},
    "learners": {"processes": 1},
    "run": {"turns": None, "seconds": 3600},
    "policy": {"network": {"hidden": (16,)}, "iqn": {"quantiles": 4}},
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
    "ppo one after another": (  # rollouts too large for an update of both
        "treasure_hunt",
        {"policy": overlay(ROLLOUTS, {"ppo": {"rollout_length": 512}})},
    ),
    "ppo of many minibatches": (  # for which a small update is not small
        "treasure_hunt",
        {"policy": overlay(ROLLOUTS, {"ppo": {"rollout_length": 256, "minibatches": 256}})},
    ),
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
    "dqn from dealt seats": (
        "support:Tape",
        {"policy": {"algorithm": "dqn"} | VALUES} | POPULATION,
    ),
    "dqn, prioritised": (
        "treasure_hunt",
        {"policy": overlay(VALUES, {"algorithm": "dqn", "experience": {"prioritised": 0.6}})},
    ),
    "dqn with a memory, masks and burn-in": (
        "connect_four",
        {
            "policy": overlay(
                VALUES,
                {
                    "algorithm": "dqn",
                    "network": {"recurrent": 8},
                    "experience": {"segment_length": 8, "burn_in": 2},
                },
            )
        },
    ),
    "iqn with a memory, prioritised": (
        "treasure_hunt",
        {
            "policy": overlay(
                VALUES, {"network": {"recurrent": 8}, "experience": {"prioritised": 0.6}}
            )
        },
    ),
    "dqn with masks": ("connect_four", {"policy": {"algorithm": "dqn"} | VALUES}),
    "iqn with choices, from dealt seats": (
        "masked_games:Doors",
        {"policy": VALUES, "env": {"options": {"choices": (2, 3)}}} | POPULATION,
    ),
    "iqn of a group": (
        "treasure_hunt",
        {"policy": overlay(VALUES, {"experience": {"group": "us"}})},
    ),
    "ppo of a group": (
        "treasure_hunt",
        {
            "policy": overlay(
                ROLLOUTS, {"learning_mode": "off_policy", "experience": {"group": "us"}}
            )
        },
    ),
    "ppo one by one": (
        "treasure_hunt",
        {"policy": ROLLOUTS, "schedule": "lockstep"},
    ),
    "iqn one by one": (
        "treasure_hunt",
        {"policy": VALUES, "schedule": "lockstep"},
    ),
}
QUICK = {
    ("dqn", "actor"),
    ("dqn", "learner"),
    ("ppo", "learner"),
    ("ppo one after another", "learner"),
}
"""Cases of the quick suite; the others take as long each, and compile other variants."""
LIMIT = 240.0
"""Seconds that a role is given to do what is compared; it takes one or two."""


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


def waits(specs):
    """Whether any policy lets the actor wait."""
    return any(spec.config.experience.on_full == "wait" for spec in specs)


def run_others(role, gate):
    """In a process of its own, until it is killed: the role that is not looked at."""
    worker = role.build()
    while not gate["open"][0]:
        time.sleep(0.01)
    while True:
        if not worker.work():
            worker.wait(0.1, lambda: False)


def look_at(role, specs, scoreboard, gate, is_cut):
    """In a process of its own: build a role, and see what it compiles at work."""
    worker = role.build()
    before = compiled()
    names, acts = [spec.name for spec in specs], role.name.startswith("actor")
    if acts and waits(specs):  # no learner takes anything yet
        while worker.work():
            pass
        worker.wait(0.001, lambda: False)
        assert scoreboard.play()[Play.WAITS] > 0
    elif not acts:
        worker.wait(0.001, lambda: False)
    gate["open"][0] = 1

    def is_enough():
        if not acts:
            return min(scoreboard.learn(name)[Learn.UPDATES] for name in names) >= 3
        rows = [scoreboard.policy(name) for name in names]
        return (
            scoreboard.play()[Play.TURNS] >= 100
            and min(row[Policy.EPISODES] for row in rows) >= 1
            and min(row[Policy.VERSION] for row in rows) >= 2
        )

    end = time.monotonic() + LIMIT
    while not is_enough():
        assert time.monotonic() < end, "it never came to what is compared"
        if not worker.work():
            worker.wait(0.1, lambda: False)
    later = compiled()
    fresh = {name: count for name, count in later.items() if count > before.get(name, 0)}
    if is_cut:
        # Its updates are cut to what fits into the cache, which a small one is not: other slices.
        fresh = {name: count for name, count in fresh.items() if ".fused_kernels." not in name}
    assert not fresh, f"compiled after {role.name} was ready: {fresh}"


@pytest.mark.process
@pytest.mark.slow_cases("dqn-actor", "dqn-learner", "ppo one after another-learner", "ppo-learner")
@pytest.mark.parametrize(
    ("case", "kind"),
    [
        pytest.param(case, kind, marks=() if (case, kind) in QUICK else pytest.mark.slow)
        for case in CASES
        for kind in ("actor", "learner")
    ],
)
def test_nothing_is_compiled_once_a_role_is_ready(case, kind, tmp_path):
    game, tree = CASES[case]
    config = load_config(overlay(SMALL | {"game": game}, tree))
    env = make_env(game, 1, **config.env.options)
    specs = policy_specs(config, env.agents)
    layout = make_layout(config, len(specs))
    parts = assemble(config, specs, layout, episode_metrics=env.episode_metrics, agents=env.agents)
    gate = SharedArrays({"open": ((1,), "int64")})
    actor, learner = parts.roles()
    watched, other = (actor, learner) if kind == "actor" else (learner, actor)
    log = tmp_path / "log"
    arguments = (watched, specs, parts.scoreboard, gate, game == "connect_four")
    processes = [
        forkserver.start(run_others, (other, gate), name="other", log=str(tmp_path / "other")),
        forkserver.start(look_at, arguments, name=kind, log=str(log)),
    ]
    try:
        assert processes[1].join(LIMIT + 60.0)
        assert processes[1].exitcode == 0, log.read_text()
        assert processes[0].exitcode is None, (tmp_path / "other").read_text()
    finally:
        for process in processes:
            process.kill()
            process.join(60)
            process.close()


def test_stacks_that_are_alike_are_rehearsed_on_each_of_their_devices(monkeypatch):
    """What runs on a CPU alone was not rehearsed where a GPU's stack of the same kind came last."""
    tree = {"game": "support:Tape", "policy": ROLLOUTS, "learners": {"processes": 1}}
    config = load_config(tree)
    env = make_env(config.game, 1)
    specs = policy_specs(config, env.agents)
    _, role, *_ = assemble(config, specs, make_layout(config, len(specs))).roles()
    monkeypatch.setattr(warm_up, "COMPILED", set())
    used, group = [], LearnerRole.group
    monkeypatch.setattr(LearnerRole, "group", lambda self: used.append(self.devices) or group(self))
    replace(role, devices=("cpu", "cpu:0")).build()
    assert used == [("cpu",), ("cpu:0",), ("cpu", "cpu:0")]
    used.clear()
    replace(role, devices=("cpu:0", "cpu:0")).build()
    assert used == [("cpu:0", "cpu:0")] * 2, "two policies of a stack compile what one does not"
    used.clear()
    replace(role, devices=("cpu", "cpu:0")).build()
    assert used == [("cpu", "cpu:0")], "what this process has compiled is not rehearsed again"
