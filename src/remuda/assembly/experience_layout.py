"""The experience of each policy of a run: its size and its ring buffers.

Each policy has one ring of segments per actor. The rings of equal policies are in one block of
shared memory. A stream is one seat in one environment copy, whose steps a policy collects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.experience.experience import Experience, ring_segments, segments_for
from remuda.experience.ring_block import Block
from remuda.policies.compatibility import network_layout, stream_shape
from remuda.policies.spec import PolicySpec, kinds_of
from remuda.population.run_spec import RunSpec
from remuda.population.setup import expected_shares, sits_once
from remuda.system.memory.shared import Arena
from remuda.system.memory.waiting import Wakeup

AHEAD = 2
"""Rollouts of a policy that an actor of a population plays before it waits for the learner. With
two, policies can train together (as a stack) although some collect steps faster than others."""


@dataclass(frozen=True)
class BlockPlan:
    """The rings of policies with equal shapes and settings, in one block."""

    members: tuple[PolicySpec, ...]
    rollout: int  # steps of a rollout; 0 if the learner samples from a replay buffer
    streams: tuple[int, ...]  # maximum streams of a policy, for each actor
    likely: tuple[int, ...]  # usual number of unfinished segments of a policy, for each actor
    segments: tuple[int, ...]  # segments of each ring, for each actor
    keeps: bool  # whether rings hold `capacity` steps in addition to those of rollouts


def experience_of_all(
    spec: RunSpec,
    policies: Sequence[PolicySpec],
    copies: Sequence[int],
    learners: Mapping[str, Wakeup],
    actors: Sequence[Wakeup],
    arena: Arena | None = None,
) -> dict[str, Experience]:
    """Return the experience of every policy of a run."""
    found: dict[str, Experience] = {}
    for plan in ring_plans(spec, policies, copies):
        shape, experience = stream_shape(plan.members[0]), plan.members[0].config.stored
        block = Block(shape, len(plan.members), experience.segment_length, plan.segments, arena)
        for index, policy in enumerate(plan.members):
            found[policy.name] = Experience(
                shape,
                experience,
                plan.streams,
                learners[policy.name],
                actors,
                plan.rollout,
                block,
                index,
                plan.likely,
                AHEAD if spec.config.population.dealt else 1,
                plan.keeps,
                arena,
                policy.config.lead(policy.memory > 0),
            )
    return {policy.name: found[policy.name] for policy in policies}


def ring_plans(
    spec: RunSpec, policies: Sequence[PolicySpec], copies: Sequence[int]
) -> list[BlockPlan]:
    """Return the rings of all policies, for the environment copies of each actor."""
    if spec.config.population.dealt:
        return dealt_rings(spec, policies, copies)
    alike: dict[tuple[Any, ...], list[PolicySpec]] = {}
    for policy in policies:
        rollout, keeps = policy.config.rollout_length * sum(copies), policy.config.replays > 0
        key = (rollout, keeps, policy.config.stored, stream_shape(policy))
        alike.setdefault(key, []).append(policy)
    streams, plans = tuple(copies), []
    for (rollout, keeps, experience, _), members in alike.items():
        segments = tuple(ring_segments(experience, streams, rollout, keeps))
        plans.append(BlockPlan(tuple(members), rollout, streams, streams, segments, keeps))
    return plans


def dealt_rings(
    spec: RunSpec, policies: Sequence[PolicySpec], copies_of: Sequence[int]
) -> list[BlockPlan]:
    """Return the rings of a population's policies."""
    copies, roster, population = sum(copies_of), spec.roster, spec.config.population
    once = sits_once(population, roster)
    expected = expected_shares(population, roster)
    alike: dict[tuple[Any, ...], list[PolicySpec]] = {}
    kinds = kinds_of(spec.agents)
    for policy in policies:
        seats = kinds.count(kinds[roster.seats_of(policy.name)[0]])
        share = max(round(copies * expected[policy.name]), 1)
        rollout = policy.config.rollout_length * share
        keeps = policy.config.replays > 0 or not rollout
        key = (seats, share, rollout, policy.config.stored, keeps)
        alike.setdefault((*key, network_layout(policy), stream_shape(policy)), []).append(policy)
    plans = []
    for (seats, share, rollout, experience, keeps, *_), members in alike.items():
        likely, segments = [], []
        for own in copies_of:
            most_open = own if once else own * seats
            own_share = max(round(share * own / copies), 1)
            likely.append(min(most_open, 2 * own_share))
            kept = -(-experience.capacity * own // copies) if keeps else 0
            part, length = -(-rollout * own // copies), experience.segment_length
            segments.append(segments_for(kept, length, most_open, likely[-1], part))
        streams = tuple(own * seats for own in copies_of)
        plans.append(
            BlockPlan(tuple(members), rollout, streams, tuple(likely), tuple(segments), keeps)
        )
    return plans
