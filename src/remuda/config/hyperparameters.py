"""Hyperparameters that may change during a run, and shared memory for the changes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import ValidationError

from remuda.config import PolicyConfig, explain
from remuda.config.algorithm_registry import BUILT_IN
from remuda.errors import CheckpointError, UsageError
from remuda.system.checkpoint.fitting import branch, real_number, where_is
from remuda.system.memory.atomic import fence_acquire, fence_release, load, store
from remuda.system.memory.shared import Arena, SharedArrays
from remuda.types import State

OF_POLICY = ("learning_rate", "discount", "reward_scale", "share_rewards")
HYPERPARAMETERS = (
    *OF_POLICY,
    *dict.fromkeys(name for entry in BUILT_IN.values() for name in entry.hyperparameters),
)
"""Hyperparameters of policies with built-in algorithms. None of them changes the shape of the
computation, so policies that differ in them are trained as one stack."""
SETTINGS = "settings"  # the section of a custom algorithm's additional settings


def names_of(policies: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return the names of all hyperparameters; those of custom algorithms come last."""
    own = (name for names in policies for name in names)
    return tuple(dict.fromkeys((*HYPERPARAMETERS, *own)))


def values_of(config: PolicyConfig) -> dict[str, float]:
    """Return the hyperparameters of a policy and of its algorithm, by their names."""
    found = {name: float(getattr(config, name)) for name in OF_POLICY}
    for name in config.entry.hyperparameters:
        section, _, own = name.partition(".")
        if section == SETTINGS:
            default = config.entry.settings[own]
            assert default is not None
            found[name] = float(config.settings.get(own, default))
        else:
            found[name] = float(getattr(getattr(config, section), own))
    return found


def with_values(config: PolicyConfig, values: Mapping[str, float]) -> PolicyConfig:
    """Return the policy with other hyperparameters, skipping settings its algorithm lacks.

    A newborn inherits hyperparameters from a parent that may have another algorithm.
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


def checked_values(
    config: PolicyConfig, values: Mapping[str, float], prefix: str
) -> dict[str, float]:
    """Check values for a policy's learner during training; return plain numbers."""
    allowed = values_of(config)
    for name in values:
        if name not in allowed:
            raise UsageError(
                f"{prefix}{name} cannot change during a run; for policies of "
                f"{config.algorithm} these can: {', '.join(allowed)}"
            )
    return checked_numbers(config, values, prefix)


def checked_numbers(
    config: PolicyConfig, values: Mapping[str, float], prefix: str
) -> dict[str, float]:
    """Check values of hyperparameters of any algorithm; return plain numbers."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise UsageError(f"{prefix}{name} must be a number, not {value!r}")
        try:
            finite = math.isfinite(value)
        except OverflowError:  # an integer too large for a float
            finite = False
        if not finite:
            raise UsageError(f"{prefix}{name} must be a finite number, not {str(value)[:40]}")
    found = {name: float(value) for name, value in values.items()}
    try:
        config.validated(with_values(config, found).model_dump())
    except ValidationError as error:
        raise UsageError(explain(error, PolicyConfig, prefix)) from None
    return found


class LiveHyperparameters:
    """Changes of hyperparameters during a run, in shared memory.

    The coordinator writes them; learners read them between updates. If the coordinator dies, all
    other processes end, so no process reads a change that is only half written.

    1. A change is seen completely or not at all: `revision` is odd while it is written.
    2. No process waits for a change. An idle learner applies it before its next update.
    3. Changes outlive learners: a successor applies all of them before its first update.
    4. Changes are part of a checkpoint. A resumed run drops the change of a value if its
       configuration sets this value explicitly, or if the configured value has changed.
    """

    def __init__(self, configs: Mapping[str, PolicyConfig], arena: Arena | None = None) -> None:
        """Start without changes to the configuration of each policy."""
        self.policies = tuple(configs)
        self._configs = dict(configs)
        self._configured = {name: values_of(config) for name, config in configs.items()}
        self._names = names_of(self._configured.values())
        shape = (len(self.policies), len(self._names))
        self._shared = SharedArrays(
            {"values": (shape, np.float64), "revision": ((1,), np.int64)}, arena
        )
        self._shared["values"][...] = np.nan

    @property
    def words(self) -> SharedArrays:
        """The arrays `values`, and `revision`, which is written last."""
        return self._shared

    @property
    def revision(self) -> int:
        """A number that grows with every change; odd while one is written."""
        return load(self._shared["revision"], 0)

    def change(self, policy: str, values: Mapping[str, float]) -> None:
        """Change values of a policy from its learner's next update on."""
        revision = self.revision
        store(self._shared["revision"], 0, revision + 1)
        fence_release()
        row = self._shared["values"][self.policies.index(policy)]
        for name, value in values.items():
            row[self._names.index(name)] = value
        store(self._shared["revision"], 0, revision + 2)

    def changes(self, policy: str) -> dict[str, float]:
        """Return the changes of one policy; called by the coordinator, which writes them."""
        return self._named(self._shared["values"][self.policies.index(policy)])

    def read(self, since: int) -> tuple[int, dict[str, dict[str, float]]] | None:
        """Return the revision and all changes by policy; None if unchanged or being written."""
        revision = self.revision
        if revision == since or revision % 2 == 1:
            return None
        values = self._shared["values"].copy()
        fence_acquire()
        if self.revision != revision:
            return None
        found = {p: self._named(row) for p, row in zip(self.policies, values, strict=True)}
        return revision, {policy: changed for policy, changed in found.items() if changed}

    def state(self) -> State:
        """Return each changed value with the configured one, by policy and name."""
        return {
            policy: {name: [x, configured[name]] for name, x in self.changes(policy).items()}
            for policy, configured in self._configured.items()
        }

    def restore(
        self, state: State, explicit_keys: Mapping[str, Collection[str]] = MappingProxyType({})
    ) -> None:
        """Restore `state`, except values in `explicit_keys` or with another configured value."""
        for policy, configured in self._configured.items():
            saved = branch(state, policy)
            changed = {
                name: real_number(value, where_is(saved, name))
                for name, (value, before) in saved.items()
                if configured.get(name) == before and name not in explicit_keys.get(policy, ())
            }
            try:
                checked_values(self._configs[policy], changed, saved.where)
            except UsageError as error:
                raise CheckpointError(str(error)) from None
            if changed:
                self.change(policy, changed)

    def _named(self, row: np.ndarray) -> dict[str, float]:
        pairs = zip(self._names, row.tolist(), strict=True)
        return {name: value for name, value in pairs if not math.isnan(value)}
