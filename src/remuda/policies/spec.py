"""`PolicySpec`: everything a process must know to build a policy, as plain data that crosses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from remuda.config import Config, PolicyConfig
from remuda.errors import ConfigError, ContractError
from remuda.population.setup import policy_names, seats_of
from remuda.types import AgentSpec

if TYPE_CHECKING:
    import torch

    from remuda.policies.acting import Rule
    from remuda.policies.actions import Actions
    from remuda.policies.algorithms.dqn import DQN
    from remuda.policies.algorithms.ppo import PPO
    from remuda.policies.networks.actor_critic import ActorCritic, Image
    from remuda.policies.networks.network import Network
    from remuda.policies.networks.q_network import QNetwork


@dataclass(frozen=True)
class PolicySpec:
    """One policy: its name, its configuration, and what it sees and does."""

    name: str
    config: PolicyConfig
    observation: tuple[int, ...]
    """The shape of one observation, unstacked."""
    dtype: npt.DTypeLike
    """The dtype of an observation, as the environment writes it."""
    actions: Actions
    """What it can do."""
    masked: bool = False
    """Whether the environment tells which actions are allowed."""
    scale: float = 1.0
    """What observations are multiplied by; pixels are brought to 0 to 1."""

    @property
    def observation_size(self) -> int:
        """Numbers in one observation, unstacked."""
        return int(np.prod(self.observation, dtype=np.int64))

    @property
    def num_inputs(self) -> int:
        """Numbers in one stacked input."""
        return self.config.n_frames * self.observation_size

    @property
    def specification(self) -> tuple[object, ...]:
        """What policies must have in common to be trained as one stack."""
        config, ppo = self.config, self.config.ppo
        shape: tuple[object, ...] = (config.batch_size, config.double, config.huber)
        if config.takes_rollouts:
            shape = (
                config.experience,
                ppo.rollout_length,
                ppo.epochs,
                ppo.minibatches,
                ppo.normalise_advantages,
                ppo.normalise_observations,
                ppo.anchor_cost > 0.0,
                config.learning_mode,
                config.replays,
            )
        return (
            config.algorithm,
            config.network,
            # Noise is drawn for a whole stack at once; so that each draws its own, each is alone.
            self.name if config.network.noisy else "",
            config.n_frames,
            config.priority,
            config.time_budget,
            shape,
            self.observation,
            str(np.dtype(self.dtype)),
            repr(self.actions),
            self.masked,
        )

    def rule(self) -> Rule:
        """How it chooses what to do."""
        from remuda.policies.acting import EpsilonGreedy, Sampled

        return (Sampled if self.config.takes_rollouts else EpsilonGreedy)(self.actions)

    def network(self) -> Network:
        """The network that the configuration asks for, over stacked observations."""
        if self.config.takes_rollouts:
            return self._actor_critic()
        return self._q_network()

    def _actor_critic(self) -> ActorCritic:
        from remuda.policies.networks.actor_critic import ActorCritic

        config = self.config
        normalised = config.ppo.normalise_observations
        return ActorCritic(
            self.num_inputs, self.actions, config.network, normalised, self._image(), self.scale
        )

    def _image(self) -> Image | None:
        """How an observation lies in space; None: it is no image."""
        from remuda.policies.networks.actor_critic import Image

        if len(self.observation) != 3:
            return None
        # Colours, at most four, come last in pictures; in grids what lies on a tile comes first.
        last = self.observation[2] <= 4 < self.observation[0]
        channels, *size = self.observation[::-1] if last else self.observation
        height, width = size[::-1] if last else size
        return Image(channels, height, width, last, self.config.n_frames)

    def _q_network(self) -> QNetwork:
        from remuda.policies.networks.iqn import IQN
        from remuda.policies.networks.q_network import MLP

        kind = IQN if self.config.algorithm == "iqn" else MLP
        return kind(self.num_inputs, self.actions.num_outputs, self.config.network)


def value_learner(
    specs: Sequence[PolicySpec], streams: Sequence[torch.Generator], device: str = "cpu"
) -> DQN:
    """DQN or IQN for a stack of policies of one specification."""
    from remuda.policies.algorithms.dqn import DQN
    from remuda.policies.algorithms.iqn import IQN

    kind = IQN if specs[0].config.algorithm == "iqn" else DQN
    return kind([spec.config for spec in specs], specs[0]._q_network(), streams, device)


def ppo(
    specs: Sequence[PolicySpec], streams: Sequence[np.random.Generator], device: str = "cpu"
) -> PPO:
    """PPO for a stack of policies of one specification."""
    from remuda.policies.algorithms.ppo import PPO

    return PPO([spec.config for spec in specs], specs[0]._actor_critic(), streams, device)


def first_weights(spec: PolicySpec, stream: torch.Generator) -> np.ndarray:
    """Weights that nobody has trained yet, drawn as its network has it: [P]."""
    from remuda.policies.stack import ParameterStack

    network = spec.network()
    stack = ParameterStack(network.shapes, 1)
    network.initialise(stack.parameters, stream)
    return stack.flat[0].numpy()


def policy_specs(config: Config, agents: Sequence[AgentSpec]) -> tuple[PolicySpec, ...]:
    """The policies of a run: one for each agent, of its name, or those of the population.

    Raises:
        ContractError: an agent whose spaces no algorithm here can learn in.
        ConfigError: `policies` or `population` names what is not there, or a policy may take seats
            that are not alike.
    """
    names = policy_names(config, agents)
    for name in config.policies:
        if name not in names:
            raise ConfigError(
                f"policies.{name}: {config.game} has no such policy; it has {', '.join(names)}"
            )
    if not config.population.dealt:
        return tuple(_spec(config, agent.name, agent) for agent in agents)
    allowed, kinds = seats_of(config, agents, names), kinds_of(agents)
    specs = []
    for name in names:
        first, *others = sorted(allowed.get(name, frozenset(range(len(agents)))))
        for other in others:
            if kinds[other] != kinds[first]:
                raise ConfigError(
                    f"the policy {name} may take the seats of {agents[first].name} and "
                    f"{agents[other].name}, which see or do different things; tell which are its "
                    f"own, as in --population.seats.{name} [{agents[first].name}]"
                )
        specs.append(_spec(config, name, agents[first]))
    return tuple(specs)


def alike(one: AgentSpec, other: AgentSpec) -> bool:
    """Whether the same policies may sit there."""
    return (
        one.observation_space == other.observation_space
        and one.action_space == other.action_space
        and one.masked == other.masked
    )


def kinds_of(agents: Sequence[AgentSpec]) -> list[int]:
    """By agent, the first one that sees and does the same things; to compare spaces is slow."""
    kinds: list[int] = []
    for i, agent in enumerate(agents):
        firsts = [k for k, first in enumerate(kinds) if k == first]
        kinds.append(next((k for k in firsts if alike(agents[k], agent)), i))
    return kinds


def _spec(config: Config, name: str, agent: AgentSpec) -> PolicySpec:
    """A policy that sees and does what an agent does."""
    from gymnasium.spaces import Box, Discrete

    from remuda.policies.actions import actions_of

    sees, does = agent.observation_space, agent.action_space
    if not isinstance(sees, Box):
        raise ContractError(f"{agent.name} observes {sees}; policies learn from a Box")
    found = config.policy_of(name)
    actions = actions_of(does, agent.name)
    if not found.takes_rollouts and (not isinstance(does, Discrete) or agent.masked):
        what = "with masks" if agent.masked else f"in {does}"
        raise ContractError(
            f"{agent.name} acts {what}; {found.algorithm} needs Discrete actions that are "
            "always allowed: use --policy.algorithm ppo"
        )
    pixels = sees.dtype == np.uint8 and bool((sees.high == 255).all())
    return PolicySpec(
        name=name,
        config=found,
        observation=sees.shape,
        dtype=sees.dtype,
        actions=actions,
        masked=agent.masked,
        scale=1.0 / 255.0 if pixels else 1.0,
    )
