"""Hyperparameters that newborn policies may change, and that are recorded of each member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from remuda.algorithms import BUILT_IN
from remuda.config import PolicyConfig

OF_POLICY = ("learning_rate", "discount", "reward_scale", "share_rewards")
HYPERPARAMETERS = (
    *OF_POLICY,
    *dict.fromkeys(name for entry in BUILT_IN.values() for name in entry.hyperparameters),
)
"""Hyperparameters of policies with built-in algorithms. None of them shapes the computation, so
policies that differ in them are trained as one stack."""
SETTINGS = "settings"  # the section of a custom algorithm's additional settings


def names_of(policies: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return the names of all hyperparameters; those of custom algorithms come last."""
    own = (name for names in policies for name in names)
    return tuple(dict.fromkeys((*HYPERPARAMETERS, *own)))


def values_of(config: PolicyConfig) -> dict[str, float]:
    """Return the named hyperparameters of a policy, including its algorithm's."""
    found = {name: float(getattr(config, name)) for name in OF_POLICY}
    for name in config.entry.hyperparameters:
        section, _, own = name.partition(".")
        if section == SETTINGS:
            found[name] = float(config.settings.get(own, config.entry.settings[own]))
        else:
            found[name] = float(getattr(getattr(config, section), own))
    return found


def with_values(config: PolicyConfig, values: Mapping[str, float]) -> PolicyConfig:
    """Return the policy with other hyperparameters, skipping settings its algorithm lacks.

    A newborn inherits them from a parent that may have another algorithm.
    """
    changed: dict[str, Any] = {name: values[name] for name in OF_POLICY if name in values}
    own: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        section, dot, setting = name.partition(".")
        if dot and (section != SETTINGS or name in config.entry.hyperparameters):
            own.setdefault(section, {})[setting] = value
    for section, settings in own.items():
        before = getattr(config, section)
        if section == SETTINGS:
            changed[section] = {**before, **settings}
        else:
            changed[section] = before.model_copy(update=settings)
    return config.model_copy(update=changed)
