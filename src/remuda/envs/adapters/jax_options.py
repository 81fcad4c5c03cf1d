"""Options of JaxMARL's worlds: their names, defaults and allowed values."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
from collections.abc import Mapping
from numbers import Integral, Real
from types import FunctionType
from typing import Any

import numpy as np

from remuda.errors import ConfigError

SCENARIOS = ("jaxmarl.environments.smax.smax_env", "MAP_NAME_TO_SCENARIO")
TABLES = {
    ("overcooked", "layout"): ("jaxmarl.environments.overcooked", "overcooked_layouts"),
    ("overcooked_v2", "layout"): ("jaxmarl.environments.overcooked_v2", "overcooked_v2_layouts"),
    ("SMAX", "scenario"): SCENARIOS,
    ("HeuristicEnemySMAX", "scenario"): SCENARIOS,
}
"""Options that take objects, and the module and table that map names to them."""
PARTICLES = (
    *("rad", "moveable", "silent", "collide", "mass", "accel", "max_speed", "u_noise", "c_noise"),
    *("damping", "contact_force", "contact_margin"),
)
"""Options of MPE that no signature names: `SimpleMPE` reads them from its other keywords."""
SET_BY_WORLDS = {"num_agents", "num_landmarks", "dim_c", "dim_p"}
"""Options of `SimpleMPE` that worlds derived from it set themselves, unless they name them."""
COUNTS = (
    *("max_steps", "num_agents", "num_allies", "num_enemies"),
    *("num_inner_steps", "num_outer_steps"),
)
"""Options that are at least 1."""
LENGTHS = {"num_cards_of_rank": "num_ranks"}
"""Options that are arrays, and the options that are their lengths."""
LARGEST = 2**31 - 1  # JAX's integers have 32 bits


def maker_of(name: str) -> Any:
    """Return the class or function that `jaxmarl.make` calls for a world."""
    make = importlib.import_module("jaxmarl.registration").make

    def recorder(maker: Any) -> Any:
        return lambda **_: maker

    makers = {
        key: recorder(value) if inspect.isclass(value) or inspect.isfunction(value) else value
        for key, value in make.__globals__.items()
    }
    return FunctionType(make.__code__, makers)(name)


def defaults_of(name: str, env: Any) -> dict[str, Any]:
    """Return a world's options with their defaults."""
    maker = maker_of(name)
    if inspect.isclass(maker):
        return _defaults_of_object(env)
    return {each.name: each.default for each in inspect.signature(maker).parameters.values()}


def _defaults_of_object(env: Any) -> dict[str, Any]:
    """Return the keywords of a world's class with their defaults.

    Keywords that a class does not name go to its base class, or to the world that it wraps.
    """
    found: dict[str, Any] = {}
    for kind in type(env).__mro__:
        init = vars(kind).get("__init__")
        if init is None or kind is object or kind.__name__ == "MultiAgentEnv":
            continue
        parameters = list(inspect.signature(init).parameters.values())[1:]
        named = [each for each in parameters if each.kind is not each.VAR_KEYWORD]
        found = {each.name: each.default for each in named} | found
        if len(named) == len(parameters):
            return found
        if kind.__name__ == "SimpleMPE":
            return dict.fromkeys(PARTICLES) | found
    for inner in vars(env).values():
        if hasattr(inner, "step_env"):
            found = _defaults_of_object(inner) | found
    return found


def taken_options(
    name: str, options: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Return options as the world takes them: integers as floats, lists as arrays.

    Refuse options that the world does not have, and values of other types than its defaults.
    """
    found: dict[str, Any] = {}
    for key, value in options.items():
        if key not in defaults:
            near = difflib.get_close_matches(key, defaults, 1, 0.6)
            raise unknown_option(name, key, f"did you mean {near[0]}?" if near else "")
        default = defaults[key]
        if (name, key) in TABLES:
            found[key] = _value_of(name, key, value, default)
            continue
        shape = np.shape(default) if _is_array(default) else ()
        if key in LENGTHS:
            shape = (options.get(LENGTHS[key], defaults[LENGTHS[key]]),)
        allowed = _allowed(key, value, default, shape)
        if allowed:
            shown = np.asarray(default).tolist() if _is_array(default) else default
            raise ConfigError(
                f"env.options.{key} of jaxmarl:{name} is {value!r}; allowed is {allowed}, as its "
                f"default {shown!r}"
            )
        found[key] = _converted(value, default)
    return found


def unknown_option(name: str, key: str, hint: str = "") -> ConfigError:
    """Return the error of an option that a world does not have."""
    return ConfigError(
        f"env.options.{key}: jaxmarl:{name} has no such option; {hint or 'check its spelling;'} "
        f"`remuda games jaxmarl:{name}` shows its options"
    )


def _allowed(key: str, value: Any, default: Any, shape: tuple[int, ...]) -> str:
    """Return what is allowed instead of a value; empty if it is allowed."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(default, int):
        least = 1 if key in COUNTS else -LARGEST
        fits = is_number and isinstance(value, Integral) and least <= int(value) <= LARGEST
        return "" if fits else f"a whole number from {least:,} to {LARGEST:,}"
    if isinstance(default, float):
        return "" if is_number and math.isfinite(value) else "a finite number"
    if isinstance(default, str):
        return "" if isinstance(value, str) else "a text"
    if _is_array(default):
        is_whole = np.asarray(default).dtype.kind != "f" and not isinstance(default, list)
        fits = _are_numbers(value, shape, "iu" if is_whole else "iuf")
        return (
            ""
            if fits
            else f"an array of {'whole' if is_whole else 'finite'} numbers of shape {shape}"
        )
    return ""


def _is_array(default: Any) -> bool:
    """Return whether a default is an array, or a list or tuple of numbers."""
    is_list = isinstance(default, list | tuple) and np.asarray(default).dtype.kind in "iuf"
    return is_list or hasattr(default, "dtype")


def _are_numbers(value: Any, shape: tuple[int, ...], kinds: str) -> bool:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return False
    if array.shape != shape or array.dtype.kind not in kinds:
        return False
    return bool(np.isfinite(array).all() and (np.abs(array) <= LARGEST).all())


def _converted(value: Any, default: Any) -> Any:
    """Return an allowed value with the default's type."""
    if isinstance(default, float):
        return float(value)
    if hasattr(default, "dtype"):
        return importlib.import_module("jax.numpy").asarray(value, default.dtype)
    return value


def _value_of(name: str, key: str, value: Any, default: Any) -> Any:
    """Return the object that has this name, for an option that takes objects."""
    table = _table(name, key)
    if isinstance(value, str) and value in table:
        return table[value]
    if isinstance(value, type(next(iter(table.values())))) or (value is default is None):
        return value
    raise ConfigError(
        f"env.options.{key}: jaxmarl:{name} has no {key} {value!r}; it has {', '.join(table)}"
    )


def shown_options(name: str, env: Any) -> dict[str, Any]:
    """Return the options that can be passed as plain values, with their defaults."""
    own = inspect.signature(maker_of(name)).parameters
    found: dict[str, Any] = {}
    for key, default in defaults_of(name, env).items():
        shown = default
        if (name, key) in TABLES and default is not None and not isinstance(default, str):
            table = _table(name, key)
            shown = next((each for each in table if str(table[each]) == str(default)), None)
        if shown is None:
            is_shown = key in own or (name, key) in TABLES
        else:
            is_plain = type(shown) in (bool, int, float, str)
            is_shown = is_plain and (key in own or key not in SET_BY_WORLDS)
        if is_shown:
            found[key] = shown
    return found


def _table(name: str, key: str) -> Any:
    module, attribute = TABLES[name, key]
    return getattr(importlib.import_module(module), attribute)
