"""The experience of each policy of a run: its size and its rings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.config import Config
from remuda.experience.experience import Experience, ring_segments, segments_for
from remuda.experience.ring_block import Block
from remuda.memory.shared import Arena
from remuda.memory.waiting import Wakeup
from remuda.policies.compatibility import network_layout, stream_shape
from remuda.policies.spec import PolicySpec, kinds_of
from remuda.population.roster import Roster
from remuda.population.setup import expected_shares, sits_once
from remuda.types import AgentSpec

AHEAD = 2
"""Rollouts that an actor plays ahead if seats are dealt: some policies play more than others for a
while, and those that play less should be trained together with them.
"""


def experience_of_all(
    config: Config,
    specs: tuple[PolicySpec, ...],
    agents: tuple[AgentSpec, ...],
    copies: Sequence[int],
    learners: Mapping[str, Wakeup],
    actors: Sequence[Wakeup],
    arena: Arena,
) -> dict[str, Experience]:
    """Return the experience of every policy of a run."""
    if config.population.dealt:
        return dealt_experience(config, specs, agents, copies, learners, actors, arena)
    return fixed_experience(specs, copies, learners, actors, arena)


def fixed_experience(
    specs: tuple[PolicySpec, ...],
    copies: Sequence[int],
    learners: Mapping[str, Wakeup],
    actors: Sequence[Wakeup],
    arena: Arena,
) -> dict[str, Experience]:
    """Return the experience of policies that each play one agent; equal ones share a block."""
    alike: dict[tuple[Any, ...], list[PolicySpec]] = {}
    for spec in specs:
        keeps = spec.config.replays > 0
        key = (stream_shape(spec), spec.config.experience, spec.config.rollout_length, keeps)
        alike.setdefault(key, []).append(spec)
    found: dict[str, Experience] = {}
    for members in alike.values():
        config, keeps = members[0].config, members[0].config.replays > 0
        rollout, shape = config.rollout_length * sum(copies), stream_shape(members[0])
        segments = ring_segments(config.experience, copies, rollout, keeps)
        length = config.experience.segment_length
        block = Block(shape, len(members), length, segments, arena)
        for index, spec in enumerate(members):
            found[spec.name] = Experience(
                shape,
                spec.config.experience,
                copies,
                learners[spec.name],
                actors,
                rollout,
                block,
                index,
                keeps=keeps,
                arena=arena,
            )
    return {spec.name: found[spec.name] for spec in specs}


def make_experience(
    spec: PolicySpec,
    num_streams: Sequence[int],
    learner: Wakeup,
    actors: Sequence[Wakeup],
    arena: Arena | None = None,
) -> Experience:
    """Return the experience of a policy that plays so many streams at once, by actor."""
    config = spec.config
    rollout = config.rollout_length * sum(num_streams)
    return Experience(
        stream_shape(spec),
        config.experience,
        num_streams,
        learner,
        actors,
        rollout,
        keeps=config.replays > 0,
        arena=arena,
    )


@dataclass(frozen=True)
class DealtRings:
    """The rings of equal policies whose seats are dealt, in one block."""

    members: tuple[PolicySpec, ...]
    rollout: int  # steps that a learner takes at once; 0 if it samples them
    streams: tuple[int, ...]  # maximal streams of a policy, by actor
    likely: tuple[int, ...]  # usual number of open segments of a policy, by actor
    segments: tuple[int, ...]  # segments of each ring, by actor
    keeps: bool  # `capacity` steps are kept, besides those that rollouts need


def dealt_experience(
    config: Config,
    specs: tuple[PolicySpec, ...],
    agents: tuple[AgentSpec, ...],
    copies: Sequence[int],
    learners: Mapping[str, Wakeup],
    actors: Sequence[Wakeup],
    arena: Arena | None = None,
) -> dict[str, Experience]:
    """Return the experience of policies whose seats are dealt."""
    found: dict[str, Experience] = {}
    for rings in dealt_rings(config, specs, agents, copies):
        shape, experience = stream_shape(rings.members[0]), rings.members[0].config.experience
        block = Block(shape, len(rings.members), experience.segment_length, rings.segments, arena)
        for index, spec in enumerate(rings.members):
            found[spec.name] = Experience(
                shape,
                experience,
                rings.streams,
                learners[spec.name],
                actors,
                rings.rollout,
                block,
                index,
                rings.likely,
                AHEAD,
                rings.keeps,
            )
    return found


def dealt_rings(
    config: Config,
    specs: tuple[PolicySpec, ...],
    agents: tuple[AgentSpec, ...],
    copies_of: Sequence[int],
) -> list[DealtRings]:
    """Return the rings of policies whose seats are dealt, equal ones in one block."""
    copies, roster = sum(copies_of), Roster.of(config, agents)
    once = sits_once(config.population, roster)
    expected = expected_shares(config.population, roster)
    blocks: dict[tuple[Any, ...], list[PolicySpec]] = {}
    kinds = kinds_of(agents)
    for spec in specs:
        first = roster.seats_of(spec.name)[0]
        seats = kinds.count(kinds[first])
        share = max(round(copies * expected[spec.name]), 1)
        rollout = spec.config.rollout_length * share
        keeps = spec.config.replays > 0 or not rollout
        key = (
            seats,
            share,
            rollout,
            spec.config.experience,
            keeps,
            network_layout(spec),
            stream_shape(spec),
        )
        blocks.setdefault(key, []).append(spec)
    found = []
    for (seats, share, rollout, experience, keeps, *_), members in blocks.items():
        likely, segments = [], []
        for own in copies_of:
            most_open = own if once else own * seats
            own_share = max(round(share * own / copies), 1)
            likely.append(min(most_open, 2 * own_share))
            kept = -(-experience.capacity * own // copies) if keeps else 0
            part, length = -(-rollout * own // copies), experience.segment_length
            segments.append(segments_for(kept, length, most_open, likely[-1], part))
        streams = tuple(own * seats for own in copies_of)
        found.append(
            DealtRings(tuple(members), rollout, streams, tuple(likely), tuple(segments), keeps)
        )
    return found
