"""Hyperparameters that a policy may be born with, and that are noted of each member."""

from __future__ import annotations

from collections.abc import Mapping

from remuda.config import PolicyConfig

OF_POLICY = ("learning_rate", "discount", "reward_scale")
OF_PPO = ("clip", "entropy_cost", "gae_lambda", "value_cost")
HYPERPARAMETERS = (*OF_POLICY, *(f"ppo.{name}" for name in OF_PPO))
"""Their names: none of them shapes the computation, so policies that differ in them are trained as
one stack."""


def values_of(config: PolicyConfig) -> dict[str, float]:
    """The hyperparameters of a policy, by name; those of PPO only where it is the algorithm."""
    found = {name: float(getattr(config, name)) for name in OF_POLICY}
    if config.algorithm == "ppo":
        found |= {f"ppo.{name}": float(getattr(config.ppo, name)) for name in OF_PPO}
    return found


def with_values(config: PolicyConfig, values: Mapping[str, float]) -> PolicyConfig:
    """The same policy with other hyperparameters."""
    own = {name: values[name] for name in OF_POLICY if name in values}
    ppo = {name: values[f"ppo.{name}"] for name in OF_PPO if f"ppo.{name}" in values}
    return config.model_copy(update=own | {"ppo": config.ppo.model_copy(update=ppo)})
