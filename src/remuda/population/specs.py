"""The policy specifications of a run, from its configuration and its environment's agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from remuda.config import Config, PolicyConfig, explain
from remuda.envs.observation_parts import parts_of
from remuda.errors import ConfigError, ContractError
from remuda.policies.spec import PolicySpec, kinds_of
from remuda.population.roster import Roster
from remuda.types import AgentSpec


def policy_specs(config: Config, agents: Sequence[AgentSpec]) -> tuple[PolicySpec, ...]:
    """Return the specifications of a run's policies, after checks of spaces, names and seats."""
    roster = Roster.of(config, agents)
    names = roster.policies
    for name in config.policies:
        if name not in names:
            raise ConfigError(
                f"policies.{name}: {config.game} has no such policy; it has {', '.join(names)}"
            )
    if not config.population.dealt:
        return tuple(_spec(config, agent.name, agent) for agent in agents)
    kinds = kinds_of(agents)
    specs = []
    for name in names:
        first, *others = roster.seats_of(name)
        for other in others:
            if kinds[other] != kinds[first]:
                raise ConfigError(
                    f"the policy {name} may take the seats of {agents[first].name} and "
                    f"{agents[other].name}, which have different observations or actions; set its "
                    f"own seats, as in --population.seats.{name} [{agents[first].name}]"
                )
        specs.append(_spec(config, name, agents[first]))
    return tuple(specs)


def _spec(config: Config, name: str, agent: AgentSpec) -> PolicySpec:
    from gymnasium.spaces import Box

    from remuda.policies.actions import actions_of

    observation_space, action_space = agent.observation_space, agent.action_space
    if not isinstance(observation_space, Box):
        raise ContractError(f"{agent.name} observes {observation_space}; policies need a Box")
    policy = config.policy_of(name)
    actions = actions_of(action_space, agent.name)
    if not policy.rollout_length:
        kind: Any = policy.entry.load()
        actions = kind.actions_for(actions, agent.name, policy.algorithm)
    if agent.masked and not policy.entry.masks:
        raise ContractError(
            f"{agent.name} has action masks, and {policy.algorithm} ignores them: exclude "
            "the actions that batch.allowed_t forbids in its loss, and set masks = True in its "
            "class; or use --policy.algorithm dqn"
        )
    parts = parts_of(observation_space)
    scales = [1.0 / 255.0 if part.is_pixels else 1.0 for part in parts]
    runs = tuple((part.size, scale) for part, scale in zip(parts, scales, strict=True))
    spec = PolicySpec(
        name=name,
        config=policy,
        observation=observation_space.shape,
        dtype=observation_space.dtype,
        actions=actions,
        masked=agent.masked,
        scale=scales[0] if len(set(scales)) == 1 else runs,
        parts=parts,
        layout=agent.layout,
    )
    try:
        resolved = policy.with_network(spec.memory > 0) if policy.waits_for_network else policy
    except ValueError as error:
        fault = explain(error, PolicyConfig) if isinstance(error, ValidationError) else str(error)
        raise ConfigError(f"policies.{name}: {fault}") from None
    try:  # `Config` could not check this without the network's default batch size
        config.check_pauses(f"policies.{name}" if config.policies.get(name) else "policy", resolved)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return replace(spec, config=resolved)
