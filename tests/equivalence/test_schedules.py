"""`sequential` and `lockstep` agree bit for bit, and a run with a seed repeats itself."""

from itertools import product

import numpy as np
import pytest

from equivalence.runs import PPO, assert_same, run
from remuda.config import overlay
from remuda.population.ledger.ledger import BIRTH, BORN_WITH, FREEZE, MATCH, RETIRE, read_records


def options(algorithm, mode, agents, processes):
    return {
        "policy": {"algorithm": algorithm, "publish": {"mode": mode}},
        "env": {"options": {"num_agents": agents}},
        "learners": {"processes": processes},
    }


QUICK = {
    ("dqn", "double_buffer", 4, 4),
    ("iqn", "snapshot", 1, 4),
}
"""Two that differ in all but the processes, of which there are as many as there may be."""
COMBINATIONS = [
    pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow)
    for each in product(("dqn", "iqn"), ("snapshot", "double_buffer"), (1, 4), (1, 4))
]


@pytest.fixture(scope="session")
def sequential(tmp_path_factory):
    """The outcome of each sequential run, run once."""
    known = {}

    def get(**tree):
        key = repr(tree)
        if key not in known:
            directory = tmp_path_factory.mktemp("sequential") / "run"
            known[key] = run(directory, schedule="sequential", **tree)
        return known[key]

    return get


@pytest.mark.process
@pytest.mark.slow_cases("dqn-double_buffer-4-4", "iqn-snapshot-1-4")
@pytest.mark.parametrize(("algorithm", "mode", "agents", "processes"), COMBINATIONS)
def test_lockstep_equals_sequential(algorithm, mode, agents, processes, tmp_path, sequential):
    tree = options(algorithm, mode, agents, processes)
    if agents == 1 and processes > 1:
        tree["policy"]["network"] = {"noisy": True}  # one policy: nothing to deal; try noise
    assert_same(
        sequential(**tree | {"learners": {}}), run(tmp_path / "run", schedule="lockstep", **tree)
    )


@pytest.mark.process
@pytest.mark.slow_cases("snapshot-3")
@pytest.mark.parametrize(
    ("mode", "processes"),
    [
        ("snapshot", 3),
        pytest.param("double_buffer", 1, marks=pytest.mark.slow),
        pytest.param("snapshot", 1, marks=pytest.mark.slow),
        pytest.param("double_buffer", 3, marks=pytest.mark.slow),
    ],
)
def test_lockstep_equals_sequential_where_stacks_learn_from_rollouts(
    mode, processes, tmp_path, sequential
):
    tree = options("ppo", mode, 3, processes)
    tree["policy"]["ppo"] = PPO
    assert_same(sequential(**tree), run(tmp_path / "run", schedule="lockstep", **tree))


POPULATION = {
    "matchmaker": "self_play",
    "policies": 2,
    "snapshots": {"every": 1, "keep": 2},
    "births": {"slots": 1, "every": 6, "games": 1, "confidence": 0.0},
}
SHARED = {
    "dqn": {"experience": {"group": "all"}},
    "ppo": {
        "learning_mode": "hybrid",
        "experience": {"group": "all"},
        "ppo": PPO | {"rollout_length": 10, "normalise_rewards": False},
    },
}


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_lockstep_equals_sequential_where_seats_are_dealt(algorithm, tmp_path):
    tree = options(algorithm, "double_buffer", 3, 2) | {"population": POPULATION}
    tree["env"] = {"num_envs": 4, "options": {"num_agents": 3, "max_turns": 30}}
    tree = overlay(tree, {"policy": SHARED[algorithm]})
    outcomes = [
        run(tmp_path / schedule, schedule=schedule, **tree | {"learners": {"processes": processes}})
        for schedule, processes in (("sequential", 1), ("lockstep", 2))
    ]
    assert_same(*outcomes, slice(2), updates=5)
    ledgers = [(tmp_path / name / "ledger.bin").read_bytes() for name in ("sequential", "lockstep")]
    assert ledgers[0] == ledgers[1]
    kinds = read_records(tmp_path / "lockstep" / "ledger.bin")[1]["kind"]
    assert {MATCH, FREEZE, RETIRE, BIRTH, BORN_WITH} == set(kinds)


def test_how_stacks_share_processes_changes_nothing(tmp_path):
    """Red before: a product of three policies at once differs in its last bits from one of one."""
    tree = {"schedule": "sequential", "policy": {"algorithm": "ppo", "ppo": PPO}}
    tree |= {"env": {"options": {"num_agents": 3}}, "run": {"turns": 200}}
    together, apart = (run(tmp_path / str(n), **tree, learners={"processes": n})[0] for n in (1, 3))
    for name, flat in together.items():
        assert np.array_equal(flat, apart[name])


DEALT = {
    "game": "support:Tape",
    "env": {"num_envs": 2, "options": {}},
    "population": {"matchmaker": "random", "policies": 8},
    "run": {"turns": 1_600},
}


@pytest.mark.process
@pytest.mark.slow_cases("ppo-lockstep-3", "ppo-sequential-8")
@pytest.mark.parametrize(
    ("algorithm", "schedule", "processes"),
    [
        ("ppo", "sequential", 8),
        ("ppo", "lockstep", 3),
        ("dqn", "sequential", 8),
        pytest.param("dqn", "lockstep", 3, marks=pytest.mark.slow),
        pytest.param("iqn", "sequential", 3, marks=pytest.mark.slow),
    ],
)
def test_how_members_share_processes_changes_nothing(algorithm, schedule, processes, tmp_path):
    """Red before: a member's update waited for those of others in its process."""
    own = {"ppo": PPO} if algorithm == "ppo" else {"experience": {"learning_starts": 40}}
    tree = DEALT | {"policy": {"algorithm": algorithm} | own}
    together = run(tmp_path / "1", schedule="sequential", learners={"processes": 1}, **tree)
    apart = run(tmp_path / "n", schedule=schedule, learners={"processes": processes}, **tree)
    assert_same(together, apart, updates=3)


@pytest.mark.slow
def test_what_a_run_repeats_does_not_depend_on_how_many_cores_there_are(tmp_path, monkeypatch):
    tree = DEALT | {"policy": {"algorithm": "ppo", "ppo": PPO}, "schedule": "sequential"}
    outcomes = []
    for cores in (1, 2, 16):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, n=cores: set(range(n)))
        outcomes.append(run(tmp_path / str(cores), **tree))
    assert_same(*outcomes[:2], updates=3)
    assert_same(*outcomes[1:], updates=3)


@pytest.mark.slow_cases("sequential")
@pytest.mark.parametrize(
    "schedule",
    ["sequential", pytest.param("lockstep", marks=pytest.mark.slow)],  # which equals sequential
)
def test_a_repeated_run_repeats_itself(schedule, tmp_path):
    tree = options("iqn", "double_buffer", 2, 2) | {"schedule": schedule}
    first = run(tmp_path / "a", **tree)
    assert_same(first, run(tmp_path / "b", **tree))
    other, _ = run(tmp_path / "c", **tree, seed=6)
    assert not np.array_equal(first[0]["agent_0"], other["agent_0"])
    assert not np.array_equal(first[0]["agent_0"], first[0]["agent_1"])


@pytest.mark.slow  # each of them is compared with sequential above
def test_how_policies_share_processes_changes_nothing(tmp_path):
    outcomes = [
        run(tmp_path / str(n), schedule="lockstep", **options("dqn", "snapshot", 4, n))
        for n in (2, 3)
    ]
    assert_same(*outcomes)


def test_an_agent_learns_the_same_whoever_learns_beside_it_in_its_process(tmp_path):
    """A policy's arithmetic is its own: another learning rate for a neighbour moves no bit of it.

    Only the neighbour's acts may reach it, so the neighbour here does not move at all.
    """
    frozen = {"exploration": {"start": 1.0, "end": 1.0}}
    outcomes = [
        run(
            tmp_path / str(rate),
            schedule="sequential",  # which equals lockstep
            **options("dqn", "snapshot", 2, 1) | {"policies": {"agent_1": own | frozen}},
        )
        for rate, own in enumerate(({"learning_rate": 1e-3}, {"learning_rate": 1e-5}))
    ]
    (first, _), (second, _) = outcomes
    assert np.array_equal(first["agent_0"], second["agent_0"])
    assert not np.array_equal(first["agent_1"], second["agent_1"])
