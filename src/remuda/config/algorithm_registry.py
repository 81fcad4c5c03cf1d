"""The registry of algorithms, with the properties that other modules use.

An entry contains only the name of the class that trains; `AlgorithmEntry.load` imports it. A custom
algorithm is named `module:Class`, and its entry is made from the attributes of that class (see
`remuda.policies.algorithms`). A configuration keeps the entries that it was read with, and a run
saves them, so that the run can be opened without the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from remuda.config.plain import plain_data
from remuda.errors import ConfigError
from remuda.system.loading import load

Takes = Literal["rollouts", "transitions"]
"""The data of an algorithm. `rollouts`: whole segments, with an update for each rollout.
`transitions`: steps (or segments) sampled from all experience, at the replay ratio."""
Section = Literal["dqn", "iqn", "ppo", "sac"]
"""A section of `policy`; a custom algorithm inherits it from its base class."""


@dataclass(frozen=True)
class AlgorithmEntry:
    """The properties of an algorithm that other modules use."""

    name: str
    home: str  # the class that trains, as `module:Class`
    takes: Takes  # kind of experience
    section: Section  # section of its settings, under `policy`
    presets: tuple[Mapping[str, Any], ...] = ()
    """Defaults that differ from those of the fields; later ones override earlier ones."""
    hyperparameters: tuple[str, ...] = ()
    """Settings that may change during training, in addition to those that every policy has."""
    settings: Mapping[str, float | None] = field(default_factory=dict)
    """Names of `policy.settings`, for users' algorithms, with the defaults of those that may change
    during training; None for others."""
    unused: tuple[str, ...] = ()  # settings that only similar algorithms use
    samples: bool = False
    """True if actions are sampled from the network's distribution; else they are epsilon-greedy."""
    masks: bool = True  # whether it supports action masks
    quantiles: bool = False  # whether its network estimates quantiles of returns
    own: bool = False  # whether it is a user's algorithm

    def load(self) -> Any:
        """Import the class that trains: a subclass of `remuda.policies.algorithms.Algorithm`."""
        return load(self.home, f"policy.algorithm {self.name}")


Entries = Mapping[str, AlgorithmEntry]
"""The entry of each user's algorithm."""
NO_ENTRIES: Entries = MappingProxyType({})

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
OF_SAC = {
    "network": {"hidden": (256, 256), "dueling": False},
    "learning_mode": "off_policy",
    "n_frames": 1,
    "n_steps": 1,
    "discount": 0.99,
    "batch_size": 256,
    "learning_rate": 3e-4,
    "adam_epsilon": 1e-8,
    "max_grad_norm": 1e6,
    "reward_scale": 1.0,
    "experience": {
        "replay_ratio": 256.0,
        "learning_starts": 1_000,
        "on_full": "wait",
        "max_lead": 1_000,
    },
}

OF_MAPPO = {"value": {"input": "state_or_joint"}}
PPO = "remuda.policies.algorithms.ppo:PPO"
PPO_NUMBERS = ("ppo.clip", "ppo.entropy_cost", "ppo.gae_lambda", "ppo.value_cost")

BUILT_IN = {
    entry.name: entry
    for entry in (
        AlgorithmEntry(
            "iqn",
            "remuda.policies.algorithms.iqn:IQN",
            "transitions",
            "iqn",
            (OF_VALUES,),
            quantiles=True,
        ),
        AlgorithmEntry(
            "dqn", "remuda.policies.algorithms.dqn:DQN", "transitions", "dqn", (OF_VALUES,)
        ),
        AlgorithmEntry("ppo", PPO, "rollouts", "ppo", (OF_PPO,), PPO_NUMBERS, samples=True),
        AlgorithmEntry(
            "mappo", PPO, "rollouts", "ppo", (OF_PPO, OF_MAPPO), PPO_NUMBERS, samples=True
        ),
        AlgorithmEntry(
            "sac",
            "remuda.policies.algorithms.sac:SAC",
            "transitions",
            "sac",
            (OF_SAC,),
            ("sac.tau",),
            unused=("exploration.start", "exploration.end", "network.dueling"),
            samples=True,
        ),
    )
}


def find_algorithm(name: str, known: Entries = NO_ENTRIES) -> AlgorithmEntry:
    """Find a built-in algorithm, or a custom one as `module:Class`; import it unless `known`."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name in known:
        return known[name]
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
    # Only floats may change during training, since integers may be shapes.
    settings = {
        name: float(default) if isinstance(default, float) else None
        for name, default in found.settings.items()
    }
    try:
        presets = [plain_data(preset, "preset") for preset in (*like.presets, found.preset)]
    except ValueError as error:
        raise ConfigError(f"algorithm {name}: {error}") from None
    return AlgorithmEntry(
        name,
        name,
        takes,
        like.section,
        tuple(presets),
        _hyperparameters(like.section, settings),
        settings,
        tuple(found.unused),
        bool(found.samples),
        masks=bool(found.masks),
        quantiles=like.quantiles,
        own=True,
    )


def _hyperparameters(section: Section, settings: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = (f"settings.{name}" for name, default in settings.items() if default is not None)
    return (*BUILT_IN[section].hyperparameters, *numbers)


def entries_to_plain(entries: Entries) -> dict[str, Any]:
    """Return entries of users' algorithms as plain data."""
    return {name: asdict(entry) for name, entry in entries.items()}


def entries_from_plain(plain: object) -> Entries:
    """Return the entries in the result of `entries_to_plain`; raise ValueError for other data."""
    try:
        read = TypeAdapter(dict[str, AlgorithmEntry]).validate_python(plain)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(" ".join((*map(str, first["loc"]), first["msg"]))) from None
    entries = {}
    for name, entry in read.items():
        if entry.takes != BUILT_IN[entry.section].takes:
            raise ValueError(f"{name} takes {entry.takes}, unlike {entry.section}")
        numbers = _hyperparameters(entry.section, entry.settings)
        entries[name] = replace(entry, name=name, home=name, hyperparameters=numbers, own=True)
    return entries
