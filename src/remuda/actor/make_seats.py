"""Construction of seats: stacks of policies with equal networks, and experience writers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from remuda.actor.batch_plan import STEP
from remuda.actor.fixed_seats import Seat
from remuda.actor.policy_group import PolicyGroup
from remuda.actor.stream_arrays import StreamArrays
from remuda.envs.vector_env import VectorEnv
from remuda.experience.experience import Experience
from remuda.experience.writer import BlockWriter
from remuda.policies.acting import ActingStack
from remuda.policies.action_spaces import actions_of
from remuda.policies.compatibility import network_layout
from remuda.policies.spec import PolicySpec, kinds_of
from remuda.population.dealing.lead import Dealer
from remuda.population.members.table import Table
from remuda.system.rng import make_rng, torch_rng
from remuda.system.scoreboard import Scoreboard


def make_policy_groups(
    env: VectorEnv,
    specs: tuple[PolicySpec, ...],
    league: Dealer,
    experience: Mapping[str, Experience],  # by policy; empty: no policy learns
    *,
    seed: int,
    purpose: str,  # part of the random seeds
    device: str = "cpu",
    noisy: bool = True,  # False: noisy layers use their mean weights
    actor: int = 0,
) -> list[PolicyGroup]:
    """Group policies with equal networks and equal spaces; each group acts as one stack."""
    table = league.table
    policy_groups = []
    for arrays, numbers in _grouped(env, specs, league):
        live_specs = [specs[number] for number in numbers]
        owners = _owners(table, specs, numbers)
        slots = [slot for slot, _ in owners]
        is_noisy = noisy and live_specs[0].config.network.noisy
        noise = [
            torch_rng(seed, purpose, "noise", spec.name, slot) if is_noisy else None
            for slot, spec in owners
        ]
        width = -(-len(arrays.observations_flat) // STEP) * STEP
        stack = ActingStack(live_specs[0].network(), noise, width, device, gathered=True)
        rows = {specs[number].name: slots.index(number) for number in numbers}
        writers = _writers(experience, rows, actor)
        rng = make_rng(seed, purpose, "dealt", live_specs[0].name)
        policy_groups.append(
            PolicyGroup(arrays, live_specs, slots, stack, writers, rng, len(table.numbers))
        )
    return policy_groups


def _grouped(
    env: VectorEnv, specs: tuple[PolicySpec, ...], league: Dealer
) -> list[tuple[StreamArrays, list[int]]]:
    kinds = kinds_of(env.agents)
    arrays: dict[tuple[int, ...], StreamArrays] = {}
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, spec in enumerate(specs):
        kind = kinds[league.roster.seats_of(league.table.policies[number])[0]]
        agents = tuple(agent for agent, other in enumerate(kinds) if other == kind)
        if agents not in arrays:
            arrays[agents] = StreamArrays(env, agents, spec.actions, spec.masked)
        key = (agents, network_layout(spec), spec.config.entry.samples)
        groups.setdefault(key, []).append(number)
    return [(arrays[agents], numbers) for (agents, *_), numbers in groups.items()]


def other_arrays(env: VectorEnv, all_arrays: Iterable[StreamArrays]) -> list[StreamArrays]:
    """Return the arrays of the agents that no policy with a network can play."""
    known = {agent for arrays in all_arrays for agent in arrays.agents}
    others: dict[int, list[int]] = {}
    for agent, kind in enumerate(kinds_of(env.agents)):
        if agent not in known:
            others.setdefault(kind, []).append(agent)
    found = []
    for first, agents in others.items():
        spec = env.agents[first]
        actions = actions_of(spec.action_space, spec.name)
        found.append(StreamArrays(env, tuple(agents), actions, spec.masked))
    return found


def _owners(
    table: Table, specs: Sequence[PolicySpec], numbers: Sequence[int]
) -> list[tuple[int, PolicySpec]]:
    """Return the population's slots that use these policies' networks, in order, with specs."""
    live_specs = {specs[number].name: specs[number] for number in numbers}
    owners = [(number, specs[number]) for number in numbers]
    owners += [
        (slot, spec) for name, spec in live_specs.items() for slot in table.slots.copies_of(name)
    ]
    owners += [
        (slot, live_specs[origin.like])
        for slot, origin in zip(table.slots.imported, table.slots.origins, strict=True)
        if origin.like in live_specs
    ]
    return sorted(owners, key=lambda owner: owner[0])


def _writers(
    experience: Mapping[str, Experience], rows: Mapping[str, int], actor: int
) -> list[BlockWriter]:
    """Return a writer for each block (adjacent rings) that these policies write to."""
    blocks: dict[int, list[tuple[Experience, int]]] = {}
    for name, row in rows.items():
        if name in experience:
            found = experience[name]
            blocks.setdefault(id(found.block), []).append((found, row))
    return [BlockWriter(block, actor) for block in blocks.values()]


def make_seats(
    env: VectorEnv,
    specs: tuple[PolicySpec, ...],  # by agent
    scoreboard: Scoreboard,
    actor: int = 0,
    *,
    seed: int,
    purpose: str,  # part of the random seeds
    device: str = "cpu",
    noisy: bool = True,  # False: noisy layers use their mean weights
) -> list[Seat]:
    """Make a seat for each agent; policies with equal networks share a stack."""
    layouts = [network_layout(spec) for spec in specs]
    stacks: dict[tuple[object, ...], tuple[ActingStack, list[str]]] = {}
    for spec, layout in zip(specs, layouts, strict=True):
        if layout not in stacks:
            names = [s.name for s, own in zip(specs, layouts, strict=True) if own == layout]
            is_noisy = noisy and spec.config.network.noisy
            noise = [torch_rng(seed, purpose, "noise", n) if is_noisy else None for n in names]
            stacks[layout] = (ActingStack(spec.network(), noise, env.num_envs, device), names)
    seats = []
    for spec, layout in zip(specs, layouts, strict=True):
        stack, names = stacks[layout]
        index = names.index(spec.name)
        seats.append(
            Seat(
                policy=spec.name,
                stack=stack,
                index=index,
                selector=spec.action_selector(),
                masked=spec.masked,
                rng=make_rng(seed, purpose, spec.name),
                row=scoreboard.policy(spec.name, actor),
                actor=actor,
            )
        )
    return seats
