"""The policy specifications of a run, from its configuration and its environment's agents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from remuda.config import Config, PolicyConfig, explain
from remuda.envs.critic_inputs import JOINT, STATE, critic_parts
from remuda.envs.observation_parts import Part, parts_of
from remuda.errors import ConfigError, ContractError
from remuda.policies.spec import Critic, PolicySpec, kinds_of
from remuda.population.roster import Roster
from remuda.types import AgentSpec

OBSERVATION, STATE_OR_JOINT = "observation", "state_or_joint"  # values of `policy.value.input`


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
        return _alike_critics(
            [spec_of_seat(config, agent.name, agents, i) for i, agent in enumerate(agents)]
        )
    kinds = kinds_of(agents)
    specs = []
    for name in names:
        first, *others = roster.seats_of(name)
        for other in others:
            if kinds[other] != kinds[first] and config.population.sharing:
                raise ConfigError(
                    f"population.sharing: {agents[first].name} and {agents[other].name} would "
                    f"share {name}, but have different observations or actions; map them to "
                    "different policies"
                )
            if kinds[other] != kinds[first]:
                raise ConfigError(
                    f"the policy {name} may take the seats of {agents[first].name} and "
                    f"{agents[other].name}, which have different observations or actions; set its "
                    f"own seats, as in --population.seats.{name} [{agents[first].name}]"
                )
        spec = spec_of_seat(config, name, agents, first)
        for other in others:
            if _critic(spec.config, agents, other) != spec.critic:
                raise ConfigError(
                    f"the policy {name} may take the seats of {agents[first].name} and "
                    f"{agents[other].name}, whose critics have different inputs (policy.value."
                    f"input {spec.config.value.input}); give their teams equal sizes, or let them "
                    "play different policies"
                )
        specs.append(spec)
    return _alike_critics(specs)


def scales_of(parts: Iterable[Part]) -> tuple[tuple[int, float], ...]:
    """Return (count, factor) for each part of a row: pixels become 0 to 1."""
    return tuple((part.size, 1.0 / 255.0 if part.is_pixels else 1.0) for part in parts)


def _critic(policy: PolicyConfig, agents: Sequence[AgentSpec], agent: int) -> Critic | None:
    """Return what the critic of an agent's policy gets; raise ConfigError if there is no state."""
    from gymnasium.spaces import Box

    kind: str = policy.value.input
    state = agents[agent].state_space
    if kind == OBSERVATION or policy.entry.takes != "rollouts":
        return None
    if kind == STATE and state is None:
        raise ConfigError(
            f"policy.value.input is state, but the environment has no state for "
            f"{agents[agent].name}; use joint, or let the environment declare one: state_space and "
            "state() of a parallel PettingZoo environment, or AgentSpec.state_space and "
            "observe_state of a VectorEnv"
        )
    if state is not None and not (isinstance(state, Box) and state.shape):
        raise ConfigError(
            f"policy.value.input is {kind}, but the state_space of {agents[agent].name} is "
            f"{state}; a critic needs a Box with at least one axis: declare one, or use joint"
        )
    if kind == STATE_OR_JOINT:
        kind = JOINT if state is None else STATE
    added = critic_parts(agents, agent, kind)
    scale = scales_of((*parts_of(agents[agent].observation_space), *added.parts))
    return Critic(kind, added.parts, str(added.dtype), scale)


def _alike_critics(specs: Sequence[PolicySpec]) -> tuple[PolicySpec, ...]:
    """Raise ConfigError if some critics get the joint observation and others the state."""
    kinds = {spec.critic.kind: spec.name for spec in specs if spec.critic is not None}
    if len(kinds) > 1:
        raise ConfigError(
            f"policy.value.input: the critic of {kinds[JOINT]} gets the joint observation, and "
            f"that of {kinds[STATE]} the state; use the same for all centralised critics of a run"
        )
    return tuple(specs)


def spec_of_seat(config: Config, name: str, agents: Sequence[AgentSpec], seat: int) -> PolicySpec:
    """Return the specification of a policy that plays an agent's seat."""
    from gymnasium.spaces import Box

    from remuda.policies.action_spaces import actions_of
    from remuda.policies.networks.layers import simplified

    agent = agents[seat]
    observation_space, action_space = agent.observation_space, agent.action_space
    if not isinstance(observation_space, Box):
        raise ContractError(f"{agent.name} observes {observation_space}; policies need a Box")
    key = f"policies.{name}" if config.policies.get(name) else "policy"
    has_own_module = "module" in config.policies.get(name, {}).get("network", {})
    try:  # the class may have changed since the run was saved
        policy = config.policy_of(name).with_newest_code()
    except ValidationError as error:
        raise ConfigError(explain(error, PolicyConfig, f"{key}.")) from None
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
    spec = PolicySpec(
        name=name,
        config=policy,
        observation=observation_space.shape,
        dtype=observation_space.dtype,
        actions=actions,
        masked=agent.masked,
        scale=simplified(scales_of(parts_of(observation_space))),
        parts=parts_of(observation_space),
        layout=agent.layout,
        critic=_critic(policy, agents, seat),
        section=key if has_own_module else "policy",
    )
    try:
        resolved = policy.with_network(spec.memory > 0) if policy.waits_for_network else policy
    except ValueError as error:
        fault = explain(error, PolicyConfig) if isinstance(error, ValidationError) else str(error)
        raise ConfigError(f"policies.{name}: {fault}") from None
    try:  # `Config` could not check this without the network's default batch size
        config.check_pauses(key, resolved)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return replace(spec, config=resolved)
