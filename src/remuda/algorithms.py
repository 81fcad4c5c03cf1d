"""Which algorithms there are, and all that the rest of Remuda asks of one: the registry.

An entry is light: what trains is imported only where something is trained. An algorithm of one's
own is a class named `module:Class`, which tells the same of itself (`remuda.policies.algorithms`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from remuda.errors import ConfigError
from remuda.loading import load

Takes = Literal["rollouts", "transitions"]
"""`rollouts`: whole segments, an update for each rollout that was played. `transitions`: single
steps drawn from all that is kept, as often as the replay ratio has it."""


Section = Literal["dqn", "iqn", "ppo"]
"""A section of `policy`. Algorithms of one's own that take rollouts have PPO's, others DQN's."""


@dataclass(frozen=True)
class AlgorithmEntry:
    """What the rest of Remuda knows of an algorithm."""

    name: str
    home: str
    """The class that trains, as `module:Class`."""
    takes: Takes
    """What experience it learns from."""
    section: Section
    """Where its own settings stand, under `policy`."""
    presets: tuple[Mapping[str, Any], ...] = ()
    """The defaults of a policy that differ from those of the fields; the later ones go over the
    earlier ones."""
    hyperparameters: tuple[str, ...] = ()
    """Settings that may change while it learns, besides those that every policy has."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What `policy.settings` may name, with the defaults; for algorithms of one's own."""
    unused: tuple[str, ...] = ()
    """Settings of a policy that it has no use for, though others that take the same have."""
    samples: bool = False
    """Whether it explores by drawing from a distribution that its network describes; else it
    takes the action of the greatest value, or any with the probability epsilon."""
    masks: bool = True
    """Whether it can learn where the game tells which actions are allowed."""
    own: bool = False
    """Whether a user brought it."""

    def load(self) -> Any:
        """Import the class that trains, a subclass of `remuda.policies.algorithms`' `Algorithm`."""
        return load(self.home, f"policy.algorithm {self.name}")


OF_VALUES = {"learning_mode": "off_policy"}
OF_PPO = {
    "network": {"hidden": (64, 64), "activation": "tanh", "dueling": False},
    "learning_mode": "on_policy",
    "n_frames": 1,
    "n_steps": 1,
    "discount": 0.99,
    "learning_rate": 1e-3,
    "max_grad_norm": 0.5,
    "exploration": {"start": 1.0, "end": 1.0},
    "experience": {"segment_length": 32, "on_full": "wait", "replay_ratio": None},
    "publish": {"every": 1},
}
ROLLOUT_HYPERPARAMETERS = ("ppo.clip", "ppo.entropy_cost", "ppo.gae_lambda", "ppo.value_cost")

BUILT_IN = {
    entry.name: entry
    for entry in (
        AlgorithmEntry(
            "iqn",
            "remuda.policies.algorithms.iqn:IQN",
            "transitions",
            "iqn",
            (OF_VALUES,),
        ),
        AlgorithmEntry(
            "dqn",
            "remuda.policies.algorithms.dqn:DQN",
            "transitions",
            "dqn",
            (OF_VALUES,),
        ),
        AlgorithmEntry(
            "ppo",
            "remuda.policies.algorithms.ppo:PPO",
            "rollouts",
            "ppo",
            (OF_PPO,),
            ROLLOUT_HYPERPARAMETERS,
            samples=True,
        ),
    )
}
"""By name, those that come with Remuda."""


@cache
def find_algorithm(name: str) -> AlgorithmEntry:
    """Find an algorithm by its name, or one's own as `module:Class`."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if ":" not in name:
        raise ConfigError(
            f"algorithm {name!r} does not exist; there are {', '.join(BUILT_IN)}, or your own as "
            "module:Class"
        )
    kind: Any = load(name, f"algorithm {name}")
    takes = getattr(kind, "takes", None)
    if not isinstance(kind, type) or takes not in ("rollouts", "transitions"):
        raise ConfigError(
            f"algorithm {name} must be a subclass of remuda.RolloutAlgorithm or of "
            "remuda.TransitionAlgorithm"
        )
    missing = sorted(getattr(kind, "__abstractmethods__", ()))
    if missing:
        raise ConfigError(f"algorithm {name}: the class has no {' and no '.join(missing)}")
    found: Any = kind
    like: AlgorithmEntry = BUILT_IN[found.section]
    return AlgorithmEntry(
        name,
        name,
        takes,
        like.section,
        (*like.presets, found.preset),
        (*like.hyperparameters, *(f"settings.{name}" for name in _numbers(found.settings))),
        found.settings,
        tuple(found.unused),
        found.samples,
        masks=found.masks,
        own=True,
    )


def _numbers(settings: Mapping[str, Any]) -> list[str]:
    """The names of those that may change while a policy is trained: floats, by their defaults.

    An integer counts something, such as units or steps, and may shape what is computed.
    """
    return [name for name, default in settings.items() if isinstance(default, float)]
