"""Settings that a resumed run may change, and the differences between configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from remuda.config import Config, by_leaf
from remuda.system.loading import without_digests

OF_POLICY = (
    *("learning_rate", "adam_epsilon", "max_grad_norm", "discount", "reward_scale"),
    *("share_rewards", "max_nonfinite", "priority", "time_budget", "device", "node"),
    *("exploration.start", "exploration.end", "exploration.decay_steps", "publish.every"),
    *("dqn.target_every", "iqn.target_every", "ppo.epochs", "ppo.minibatches", "ppo.gae_lambda"),
    *("ppo.clip", "ppo.value_clip", "ppo.value_cost", "ppo.entropy_cost", "ppo.anchor_every"),
    *("ppo.anchor", "ppo.target_kl", "ppo.normalise_advantages", "ppo.max_staleness"),
    *("ppo.correction", "ppo.anneal_steps", "sac.tau", "sac.target_entropy"),
)
"""Settings of a policy that a resumed run may change, since saved state does not depend on them."""
ANYTHING = (
    *("schedule", "actor", "learners", "checkpoint", "supervision", "cluster", "run", "trace"),
    *("analysis", "env.workers", "env.check", "population.evolution.inherit"),
)
"""Sections and keys that may change freely: they control how long, where and how fast a run trains;
`population.evolution.inherit` applies to later births."""


@dataclass(frozen=True)
class Change:
    """A setting that differs."""

    key: str
    before: Any
    after: Any
    allowed: bool  # true if a resumed run may change it

    def __str__(self) -> str:
        return f"{self.key} was {self.before} and is {self.after}"


def allowed_message() -> str:
    """Return a message about what a resumed run may change."""
    return (
        f"A resumed run may change these keys of policy and policies.NAME: {', '.join(OF_POLICY)}; "
        f"and everything in {', '.join(ANYTHING)}"
    )


def changes(before: Config, after: Config) -> list[Change]:
    """Return the differences between two configurations.

    Policies are compared by their resolved settings. A difference of `policies.NAME` is left out if
    `policy` has the same difference.
    """
    found = []
    for key, old, new in _differences(_tree(before), _tree(after)):
        section, _, rest = key.partition(".")
        free = any(key == name or key.startswith(f"{name}.") for name in ANYTHING)
        allowed = free or (section == "policy" and rest in OF_POLICY)
        if key not in ("run.directory", "run.live"):
            found.append(Change(key, old, new, allowed))
    common = {change.key: (change.before, change.after) for change in found}
    for name in dict.fromkeys((*before.policies, *after.policies)):
        settings, new_settings = (each.policy_of(name).resolved() for each in (before, after))
        for key, old, new in _differences(settings, new_settings):
            if common.get(f"policy.{key}") != (old, new):
                found.append(Change(f"policies.{name}.{key}", old, new, key in OF_POLICY))
    return found


def _tree(config: Config) -> dict[str, Any]:
    return {key: value for key, value in config.resolved().items() if key != "policies"}


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    old, new = by_leaf(before), by_leaf(after)
    for key in {**old, **new}:
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def lasting(config: Config) -> dict[str, Any]:
    """Return the settings that a resumed run must share with the run that it resumes.

    Environment workers and checks are excluded, since they change no result.
    """
    tree = config.model_dump(
        mode="json",
        include={"game", "seed", "env", "policy", "policies", "population"},
        exclude={"env": {"workers", "check"}},
    )
    return dict(without_digests(tree))  # the user may fix the code
