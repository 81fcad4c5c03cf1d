"""What of its configuration a resumed run may change, and what was changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from remuda.config import Config
from remuda.config.resolved import resolved, resolved_policy
from remuda.pickled import without_digests

OF_POLICY = (
    "learning_rate",
    "adam_epsilon",
    "max_grad_norm",
    "discount",
    "reward_scale",
    "share_rewards",
    "max_nonfinite",
    "priority",
    "time_budget",
    "device",
    "node",
    "exploration.start",
    "exploration.end",
    "exploration.decay_steps",
    "publish.every",
    "dqn.target_every",
    "iqn.target_every",
    "ppo.epochs",
    "ppo.minibatches",
    "ppo.gae_lambda",
    "ppo.clip",
    "ppo.value_clip",
    "ppo.value_cost",
    "ppo.entropy_cost",
    "ppo.anchor_every",
    "ppo.anchor",
    "ppo.target_kl",
    "ppo.normalise_advantages",
    "ppo.max_staleness",
    "ppo.correction",
    "ppo.anneal_steps",
)
"""Of a policy: what neither shapes what is saved of it, nor is counted from the run's beginning in
a way that a change would have to be caught up with."""
ANYTHING = (
    "schedule",
    "actor",
    "learners",
    "checkpoint",
    "supervision",
    "cluster",
    "run",
    "trace",
    "analysis",
    "env.workers",
    "env.check",
    "population.evolution.inherit",
)
"""Sections and keys of which everything may change: they say how long, where and how fast; or, the
last of them, what newborn policies begin with from now on."""
UNTOLD = ("run.directory", "run.live")
"""Where the run lies and who watches it is no change of it."""


@dataclass(frozen=True)
class Change:
    """One setting that is not what it was."""

    key: str
    before: Any
    after: Any
    allowed: bool
    """Whether a resumed run may change it."""

    def __str__(self) -> str:
        return f"{self.key} was {self.before} and is {self.after}"


def allowed_words() -> str:
    """What a resumed run may change, to be told to the user."""
    return (
        f"A resumed run may change, of policy and policies.NAME: {', '.join(OF_POLICY)}; and all "
        f"of {', '.join(ANYTHING)}"
    )


def changes(before: Config, after: Config) -> list[Change]:
    """What differs between two configurations.

    Policies are compared by what holds for each, wherever that is written: `policies.NAME` differs
    only where `policy` does not differ in the same way.
    """
    found = []
    for key, one, other in _differences(_tree(before), _tree(after)):
        section, _, rest = key.partition(".")
        free = any(key == name or key.startswith(f"{name}.") for name in ANYTHING)
        allowed = free or (section == "policy" and rest in OF_POLICY)
        if key not in UNTOLD:
            found.append(Change(key, one, other, allowed))
    common = {change.key: (change.before, change.after) for change in found}
    for name in dict.fromkeys((*before.policies, *after.policies)):
        own, now = (resolved_policy(each.policy_of(name)) for each in (before, after))
        for key, one, other in _differences(own, now):
            if common.get(f"policy.{key}") != (one, other):
                found.append(Change(f"policies.{name}.{key}", one, other, key in OF_POLICY))
    return found


def _tree(config: Config) -> dict[str, Any]:
    return {key: value for key, value in resolved(config).items() if key != "policies"}


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """The leaves of two trees that are not equal: dotted key, value before, value after."""
    for key in {**before, **after}:
        one, other = before.get(key), after.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _differences(one, other, f"{prefix}{key}.")
        elif one != other:
            yield f"{prefix}{key}", one, other


def lasting(config: Config) -> dict[str, Any]:
    """What of a configuration a resumed run must share with the run that it resumes.

    Not who steps the copies of the game, nor whether its values are checked: neither changes them.
    """
    tree = config.model_dump(
        mode="json",
        include={"game", "seed", "env", "policy", "policies", "population"},
        exclude={"env": {"workers", "check"}},
    )
    return dict(without_digests(tree))  # the user's code may be mended
