"""Options of JaxMARL's worlds: their names, defaults and allowed values."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

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
COUNTS = ("max_steps", "num_agents", "num_allies", "num_enemies", "num_inner_steps")
"""Options that are at least 1."""


def defaults_of(env: Any) -> dict[str, Any]:
    """Return a world's options with their defaults.

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
            found = defaults_of(inner) | found
    return found


def check_options(name: str, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse options that a world does not have, and values of other types than its defaults."""
    for key, value in options.items():
        if key not in defaults:
            near = difflib.get_close_matches(key, defaults, 1, 0.6)
            hint = f"did you mean {near[0]}?" if near else "check its spelling;"
            raise ConfigError(
                f"env.options.{key}: jaxmarl:{name} has no such option; {hint} `remuda games "
                f"jaxmarl:{name}` shows its options"
            )
        allowed = _allowed(key, value, defaults[key])
        if allowed and (name, key) not in TABLES:
            raise ConfigError(
                f"env.options.{key} of jaxmarl:{name} is {value!r}; allowed is {allowed}, as its "
                f"default {defaults[key]!r}"
            )


def _allowed(key: str, value: Any, default: Any) -> str:
    """Return what is allowed instead of a value; empty if it is allowed."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(default, int):
        fits = is_number and isinstance(value, Integral)
        if key in COUNTS:
            return "" if fits and value >= 1 else "a whole number, at least 1"
        return "" if fits else "a whole number"
    if isinstance(default, float):
        return "" if is_number and math.isfinite(value) else "a finite number"
    if isinstance(default, str):
        return "" if isinstance(value, str) else "a text"
    return ""


def value_of(name: str, key: str, value: Any) -> Any:
    """Return an option's value as the world takes it: some take objects that have names."""
    if (name, key) not in TABLES or value is None:
        return value
    table = _table(name, key)
    if isinstance(value, str) and value in table:
        return table[value]
    if isinstance(value, str | int | float):
        raise ConfigError(
            f"env.options.{key}: jaxmarl:{name} has no {key} {value!r}; it has {', '.join(table)}"
        )
    return value


def shown_options(name: str, env: Any) -> dict[str, Any]:
    """Return the options that can be passed as plain values, with their defaults."""
    own = inspect.signature(type(env).__init__).parameters
    found: dict[str, Any] = {}
    for key, default in defaults_of(env).items():
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
