"""Scripted members stay what they are, and play on, where policies beside them evolve."""

import numpy as np
import pytest

import remuda
from population.birth_worlds import World
from remuda.config import load_config, overlay
from remuda.population.directors.director import Vacate
from remuda.population.evolution import director
from remuda.population.evolution.fitness import estimate_fitness
from remuda.population.ledger.ledger import BIRTH, BORN_WITH, FREEZE, MATCH, RETIRE, read_records
from remuda.population.ledger.lineage import read_lineage
from remuda.population.ledger.records import SCRIPTED, Member, PolicyRef
from remuda.population.matchmaking.by_turn import Random
from remuda.population.matchmaking.matchmaker import can_stand_in
from remuda.population.members.table_parts import MATCHES
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

BEST = PolicyRef("best", SCRIPTED)
RATES = {"learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}}
EVOLUTION = {
    "every": 10,
    "games": 3,
    "confidence": 0.0,
    "numbers": RATES,
    "mutation": 0.1,
    "crossover_layers": 0.5,
    "crossover_numbers": 0.5,
}
BY_HAND = {"births": {"slots": 0}, "evolution": {"every": 10**9}, "snapshots": {"every": None}}
KINDS = {
    "random": {"matchmaker": "random", "policies": 2},
    "kept to seats": {
        "matchmaker": "random",
        "policies": 2,
        "seats": {"policy_0": ["agent_0"], "policy_1": ["agent_1"], "best": ["agent_0"]},
    },
    "with a past": {
        "matchmaker": "random",
        "policies": 2,
        "snapshots": {"every": 5, "keep": 1},
    },
    "prioritized": {"matchmaker": "prioritized", "policies": 2},
    "fitness": {"matchmaker": "fitness", "policies": 2, "window": 100.0},
    "self-play": {"matchmaker": "self_play", "policies": 2},
    "round robin": {"matchmaker": "round_robin", "policies": 3},
}


def world_of(kind):
    population = BY_HAND | {"scripted": {"best": "hand_written:three"}} | KINDS[kind]
    # Of an algorithm that the actor does not wait for: learners stand still meanwhile.
    experience = {"learning_starts": 50, "segment_length": 5}
    policy = {"algorithm": "dqn", "experience": experience, "batch_size": 8}
    return World(game="support:Tape", population=population, policy=policy)


@pytest.mark.slow_cases("fitness")
@pytest.mark.parametrize("kind", KINDS)
def test_a_stand_in_and_a_scripted_member_play_together(kind):
    """A policy leaves, a copy stands in, one is born; the scripted member plays all along."""
    world = world_of(kind)
    world.matches(40)
    table, population = world.table, world.league.population
    slot, old = table.slots.of("best"), PolicyRef("policy_0")
    spare = table.slots.stand_in_of("policy_0")
    world.command(Vacate("policy_0"), learn=False)
    assert old not in population
    stands_in = population.past_of("policy_0")[-1:] if spare in population.slots else []
    assert bool(stands_in) == (kind not in ("round robin", "self-play"))
    first = table.word(MATCHES)
    world.matches(150, learn=False)  # the newborn waits for its learner
    assert old not in population
    late = world.records(MATCH)[first + 16 :]  # those that began before are over
    sat, versions = late["policy"], late["version"]
    assert (versions < 0).any(1).all()  # in each match a policy learns
    assert (versions == SCRIPTED).any()
    assert population[BEST].slot == slot
    for copied in stands_in:
        assert ((sat == 0) & (versions == copied.ref.version)).any()
    # It plays 3 in every turn, and the copy's network what it will.
    assert set(late["returns"][versions == SCRIPTED].tolist()) == {9.0, 15.0}
    while old not in population:
        world.play(1)
    assert population[old].parent.policy != "best"
    assert spare not in population.slots
    games = population[BEST].games
    world.matches(60)
    assert population[BEST].games > games
    assert population[BEST].slot == slot


def test_none_is_born_in_place_of_a_scripted_member():
    """Red before: the actor failed, for there is no copy that could stand in for it."""
    world = world_of("random")
    world.matches(20)
    world.command(Vacate("best"))
    assert BEST in world.league.population
    assert {str(m.ref) for m in world.league.population.members} == {
        "policy_0",
        "policy_1",
        "best",
    }
    games = world.league.population[BEST].games
    world.matches(40)
    assert world.league.population[BEST].games > games


def test_a_trial_of_a_stand_in_makes_up_a_version_that_a_copy_may_have():
    """A scripted member's number is no version: the copy is not newer than that."""
    seen = []

    class Watching(Random):
        def seat(self, population, ledger, random):
            seen.extend(member.ref for member in population.frozen)
            return super().seat(population, ledger, random)

        def __deepcopy__(self, memo):
            return self

    members = [Member(PolicyRef("a")), Member(PolicyRef("b")), Member(PolicyRef("b", 7))]
    members.append(Member(BEST))
    for slot, member in enumerate(members):
        member.slot = slot
    assert can_stand_in(members, PolicyRef("a"), Watching(2))
    assert set(seen) == {PolicyRef("a", 8), PolicyRef("b", 7), BEST}


# Whole runs.

TREE = {
    "game": "support:Tape",
    "schedule": "sequential",
    "env": {"num_envs": 4},
    "policy": {
        "algorithm": "ppo",
        "network": {"hidden": (8,)},
        "ppo": {"rollout_length": 16},
        "experience": {"segment_length": 4},
    },
    "population": {
        "matchmaker": "random",
        "policies": 4,
        "scripted": {"best": "hand_written:three", "worst": "hand_written:nothing"},
        "evolution": EVOLUTION,
    },
    "learners": {"processes": 1},
    "run": {"turns": 800, "evaluate_episodes": 0},
    "checkpoint": {"every": 3600, "evaluate_episodes": 0},
}


def evolved(directory, *, resume=False, **tree):
    whole = overlay(overlay(TREE, tree), {"run": {"directory": directory}})
    return train(load_config(whole), PlainView(), resume=resume)


def ledger_of(directory):
    return read_records(directory / "ledger.bin")


@pytest.mark.slow
@pytest.mark.parametrize("fitness", ["return", "rating", "win_rate"])
@pytest.mark.parametrize("select", ["truncation", "tournament"])
def test_the_best_of_all_is_no_parent_and_the_worst_is_not_replaced(
    fitness, select, tmp_path, monkeypatch
):
    """One of the scripted members earns more than all policies, the other less."""
    judged = []

    def judge(member, *how):
        judged.append(str(member.ref))
        return estimate_fitness(member, *how)

    monkeypatch.setattr(director, "estimate_fitness", judge)
    population = {"evolution": {"fitness": fitness, "select": select}}
    members = evolved(tmp_path / "r", population=population).record.members
    policies = {f"policy_{i}" for i in range(4)}
    assert members["best"].rating > 30
    assert members["worst"].rating < 20
    births = read_lineage(tmp_path / "r" / "ledger.bin")
    born = [each for each in births if each.generation > 0]
    assert len(born) > 5
    assert {each.policy for each in births} == policies
    assert {each.parent for each in born} <= policies
    seconds = {each.second for each in born} - {None}
    assert seconds
    assert seconds <= policies
    assert set(judged) == policies
    names, records = ledger_of(tmp_path / "r")
    changes = records[np.isin(records["kind"], [BIRTH, BORN_WITH, FREEZE, RETIRE])]
    assert {names[i] for i in changes["policy"][:, 0]} == policies
    matches = records[records["kind"] == MATCH]
    late = matches[-len(matches) // 4 :]
    for name in ("best", "worst"):  # to the end
        assert (late["policy"] == names.index(name)).any()
    earned = matches["returns"][matches["policy"] == names.index("worst")]
    assert set(earned.tolist()) == {0.0}  # no noise ever came over it


DRAWING = {"population": {"scripted": {"bot": "random"}}}
"""A third, which draws random numbers."""


@pytest.mark.slow
def test_a_run_that_evolves_beside_them_repeats_itself_and_is_resumed(tmp_path):
    for name in ("whole", "again"):
        evolved(tmp_path / name, **DRAWING)
    evolved(tmp_path / "parts", run={"turns": 274}, **DRAWING)
    evolved(tmp_path / "parts", resume=True, **DRAWING)
    ledgers = [
        (tmp_path / name / "ledger.bin").read_bytes() for name in ("whole", "again", "parts")
    ]
    assert ledgers[0] == ledgers[1]
    assert ledgers[0] == ledgers[2]
    _, records = ledger_of(tmp_path / "whole")
    assert (records["kind"] == BIRTH).sum() > 5
    whole, parts = remuda.load(tmp_path / "whole"), remuda.load(tmp_path / "parts")
    for name in whole:
        for key, values in whole[name].weights().items():
            assert (parts[name].weights()[key] == values).all()


@pytest.mark.slow
def test_schedules_agree_where_policies_evolve_beside_them(tmp_path):
    for schedule in ("sequential", "lockstep"):
        evolved(tmp_path / schedule, schedule=schedule, **DRAWING)
    one, other = (tmp_path / name / "ledger.bin" for name in ("sequential", "lockstep"))
    assert one.read_bytes() == other.read_bytes()
