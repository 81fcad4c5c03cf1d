"""Refuse or report wrapper state that outlasts an episode, because no run saves it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from remuda.envs.scripted import at_random, turns
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError

INNER = ("env", "aec_env", "par_env", "_env")
"""The attributes in which wrappers keep their environment."""
LIBRARIES = ("remuda", "gymnasium", "pettingzoo", "supersuit", "shimmy")
"""Libraries whose wrappers keep nothing from episode to episode except running statistics."""
TURNS = 30  # turns that are played to find lasting state
SPREADS, COUNTS = {"var", "std", "m2", "s"}, {"count", "n"}


def refuse_statistics(copy: Any) -> None:
    """Refuse a library's wrapper that normalises by running statistics, unless they are fixed.

    Each copy would have different ones, and evaluation and resumed runs would start without any, so
    observations would be scaled differently than in training.
    """
    for layer in filter(_is_of_library, _layers(copy)):
        held = getattr(layer, "__dict__", {})
        for name, value in held.items():
            if _is_statistics(value) and held.get("_update_running_mean", True) is not False:
                raise _refused(layer, name)


def _refused(layer: Any, name: str) -> ConfigError:
    return ConfigError(
        f"env.wrappers: {_kind(layer)} keeps running statistics ({name}) that no run saves, so "
        "evaluation and resumed runs would start without them; use "
        "policy.ppo.normalise_observations or policy.ppo.normalise_rewards, which are saved with "
        "the policy, or fixed numbers: policy.reward_scale, "
        "gymnasium.wrappers:RescaleObservation, update_running_mean = False"
    )


def _kind(layer: Any) -> str:
    return f"{type(layer).__module__}:{type(layer).__name__}"


def lasting_state(env: VectorEnv) -> str:
    """Return a note about state that a user's wrappers keep between episodes, or an empty text.

    Plays a few random turns between two resets from the same seed; state that then differs
    outlasts episodes. Pass an environment that is not used otherwise. If it cannot be played, the
    note is empty. Running statistics raise a ConfigError, even those of the environment itself.
    """
    copies = getattr(env, "copies", ())
    layers = [layer for layer in _layers(copies[0]) if _may_last(layer)] if copies else []
    if not layers:
        return ""
    seeds, everyone = np.full(env.num_envs, 7), np.ones(env.num_envs, np.bool_)
    try:
        env.reset(seeds, everyone)
        before = [_numbers(layer) for layer in layers]
        played = turns(env, [at_random] * env.num_agents, np.random.default_rng(0))
        for _, (_, over, _) in zip(range(TURNS), played, strict=False):
            if over.all():
                break
        env.reset(seeds, everyone)
    except Exception:  # the run itself reports the error
        return ""
    changed = []
    for layer, old in zip(layers, before, strict=True):
        for name, value in _numbers(layer).items():
            if old.get(name) == value:
                continue
            if _is_statistics(layer.__dict__[name]):
                raise _refused(layer, name)
            if _is_wrapper(layer):
                changed.append(f"{_kind(layer)}.{name}")
    if not changed:
        return ""
    return (
        f"env.wrappers: {', '.join(changed)} changes from episode to episode, and no run saves it: "
        "each copy of the environment has its own, and evaluation and a resumed run start without "
        "it; if it changes observations or rewards, keep it fixed, or use settings of the "
        "policy (policy.ppo.normalise_observations, policy.ppo.normalise_rewards)"
    )


def _layers(copy: Any) -> Iterator[Any]:
    """Yield the wrappers of an environment from the outside in, then the environment itself."""
    visited: set[int] = set()
    while copy is not None and id(copy) not in visited:
        visited.add(id(copy))
        yield copy
        copy = _inner(copy)


def _inner(layer: Any) -> Any:
    """Return the environment that a wrapper wraps; None if the layer is no wrapper."""
    held = getattr(layer, "__dict__", {})
    return next((held[name] for name in INNER if held.get(name) is not None), None)


def _is_wrapper(layer: Any) -> bool:
    return _inner(layer) is not None


def _is_of_library(layer: Any) -> bool:
    return type(layer).__module__.partition(".")[0] in LIBRARIES


def _may_last(layer: Any) -> bool:
    """Return whether this is a user's wrapper, or a user's environment with statistics."""
    held = getattr(layer, "__dict__", {}).values()
    return not _is_of_library(layer) and (_is_wrapper(layer) or any(map(_is_statistics, held)))


def _is_statistics(value: Any) -> bool:
    names = {name.strip("_").lower() for name in getattr(value, "__dict__", {})}
    return "mean" in names and bool(names & SPREADS) and bool(names & COUNTS)


def _numbers(layer: Any) -> dict[str, bytes]:
    """Return the numbers in each attribute of a layer, as bytes to compare."""
    held = getattr(layer, "__dict__", {})
    numbers = {name: list(_numbers_in(held[name])) for name in held if name not in INNER}
    return {name: pickle.dumps(each) for name, each in numbers.items() if each}


def _numbers_in(value: Any, depth: int = 3) -> Iterator[Any]:
    if isinstance(value, bool | int | float | np.generic):
        yield float(value) if np.isreal(value) else complex(value)
    elif isinstance(value, np.ndarray):
        if value.dtype.kind in "biufc":
            yield value.tobytes()
    elif depth and not callable(value) and not isinstance(value, str | bytes):
        parts = (
            value if isinstance(value, Mapping | list | tuple) else getattr(value, "__dict__", {})
        )
        for part in parts.values() if isinstance(parts, Mapping) else parts:
            yield from _numbers_in(part, depth - 1)
