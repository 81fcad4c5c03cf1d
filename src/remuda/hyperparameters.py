"""Hyperparameters that a policy may be born with, and that are noted of each member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.algorithms import BUILT_IN
from remuda.config import PolicyConfig

OF_POLICY = ("learning_rate", "discount", "reward_scale")
HYPERPARAMETERS = (
    *OF_POLICY,
    *dict.fromkeys(name for entry in BUILT_IN.values() for name in entry.hyperparameters),
)
"""Their names: none of them shapes the computation, so policies that differ in them are trained as
one stack."""


def values_of(config: PolicyConfig) -> dict[str, float]:
    """The hyperparameters of a policy, by name: those that all have, and its algorithm's own."""
    found = {name: float(getattr(config, name)) for name in OF_POLICY}
    for name in config.entry.hyperparameters:
        section, _, own = name.partition(".")
        found[name] = float(getattr(getattr(config, section), own))
    return found


def with_values(config: PolicyConfig, values: Mapping[str, float]) -> PolicyConfig:
    """The same policy with other hyperparameters."""
    changed: dict[str, Any] = {name: values[name] for name in OF_POLICY if name in values}
    own: dict[str, dict[str, float]] = {}
    for name in HYPERPARAMETERS[len(OF_POLICY) :]:
        section, _, setting = name.partition(".")
        if name in values:
            own.setdefault(section, {})[setting] = values[name]
    for section, settings in own.items():
        changed[section] = getattr(config, section).model_copy(update=settings)
    return config.model_copy(update=changed)
