"""Wrappers around each copy of a library's environment, and episode metrics read from `info`.

Both apply to environments that are made one at a time, such as Gymnasium's and PettingZoo's, and
are configured next to the environment's options.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from remuda.envs.adapters.detect import SINGLE, article, kind_of
from remuda.envs.checks import BadValueError, number, short
from remuda.errors import ConfigError, RemudaError
from remuda.system import loading
from remuda.system.loading import load
from remuda.system.trust import check_call
from remuda.system.user_errors import naming_user_code
from remuda.types import Array, Bools

HOW: dict[str, Callable[[float, float], float]] = {
    "last": lambda _, value: value,
    "sum": lambda before, value: before + value,
    "mean": lambda before, value: before + value,
    "min": min,
    "max": max,
}
"""The ways to combine the numbers of an episode's steps."""
EACH = "*"  # before a metric's name: one metric for each agent
WRAPPERS = "env.wrappers"
METRICS = "env.episode_metrics"
"""`WRAPPERS` and `METRICS`: the keys of these settings in an environment's options."""
PATIENCE = 100  # episodes without a metric before a note about it


@dataclass(frozen=True)
class Wrapping:
    """The wrappers and episode metrics of an adapter's copies."""

    wrappers: tuple[str, ...] = ()  # `module:Name` or `module:Name(values)`, innermost first
    metrics: Mapping[str, str] = field(default_factory=dict)  # each name with a key of `HOW`

    def around(self, make: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that makes a wrapped environment."""
        wrappers = [_wrapper(text) for text in self.wrappers]

        def wrapped() -> Any:
            made = make()
            for wrapper in wrappers:
                made = wrapper(made)
            return made

        return wrapped if wrappers else make

    def reading(self, agents: Sequence[str], num_envs: int) -> InfoMetrics | None:
        """Return a reader of the metrics in `info`; None without metrics."""
        return InfoMetrics(self.metrics, agents, num_envs) if self.metrics else None


NOTHING = Wrapping()


def _wrapper(text: str) -> Callable[[Any], Any]:
    """Return the wrapper in a text such as `supersuit:frame_stack_v1(stack_size=4)`."""
    path, values, named = (text, [], {}) if loading.is_pickled(text) else _call_in(text)
    make = load(path, WRAPPERS)
    check_call(text, make)
    if not callable(make):
        raise ConfigError(
            f"{WRAPPERS}: {path} is a {type(make).__name__}; name a class or function"
        )

    def wrap(env: Any) -> Any:
        try:
            with naming_user_code(libraries=False):
                wrapped = make(env, *values, **named)
        except RemudaError:
            raise
        except Exception as error:
            line = " ".join(str(error).split()) or type(error).__name__
            raise ConfigError(
                f"{WRAPPERS}: {text} refuses {article(env)}: {line}; wrappers are applied in "
                "the order of the list"
            ) from error
        kind = kind_of(wrapped)
        if kind != kind_of(env) or kind not in SINGLE:
            raise ConfigError(
                f"{WRAPPERS}: {text} makes {article(wrapped)} of {article(env)}; allowed are "
                "wrappers that keep the kind of the environment"
            )
        return wrapped

    return wrap


def _call_in(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Return the path, the arguments and the keywords of `module:Name(4, key=True)`."""
    module, colon, rest = text.partition(":")
    fault = "cannot be read" if colon and module else "names no module"
    try:
        parsed = ast.parse(rest.strip(), mode="eval").body
        call = parsed if isinstance(parsed, ast.Call) else ast.Call(parsed, [], [])
        if colon and module and isinstance(call.func, ast.Name | ast.Attribute):
            fault = "has arguments that are not literals"
            values = [ast.literal_eval(value) for value in call.args]
            named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
            if all(each.arg for each in call.keywords):  # no `**values`
                return f"{module.strip()}:{ast.unparse(call.func)}", values, named
    except (SyntaxError, ValueError, TypeError):
        pass
    raise ConfigError(
        f"{WRAPPERS}: {text!r} {fault}; name a wrapper as module:Name, with literal arguments "
        "in parentheses: gymnasium.wrappers:TimeLimit(max_episode_steps=100)"
    )


class InfoMetrics:
    """Episode metrics from numbers in `info`, for each copy.

    `speed` is the mean over the agents that report it, `agent_0/speed` that of one agent, and
    `*/speed` one metric for each agent. A path refers to a nested number: `collisions/walls`.
    """

    def __init__(self, metrics: Mapping[str, str], agents: Sequence[str], num_envs: int) -> None:
        self._agents = tuple(agents)
        self._metrics: list[tuple[str, str, tuple[str, ...], int | None]] = []
        for name, how in metrics.items():
            if how not in HOW:
                raise ConfigError(
                    f"env.episode_metrics.{name} is {how!r}; allowed are {', '.join(HOW)}"
                )
            prefix, _, rest = name.partition("/")
            if not rest or prefix not in (EACH, *self._agents):
                self._metrics.append((name, how, tuple(name.split("/")), None))
                continue
            for i, agent in enumerate(self._agents):
                if prefix in (EACH, agent):
                    self._metrics.append((f"{agent}/{rest}", how, tuple(rest.split("/")), i))
        self.names = tuple(name for name, *_ in self._metrics)  # the names of the metrics, in order
        repeated = next((name for name in self.names if self.names.count(name) > 1), None)
        if repeated is not None:
            raise ConfigError(
                f"env.episode_metrics: {repeated} is set twice, once through {EACH}; leave "
                "one of them out"
            )
        # Metrics that no step has reported yet, and the number of finished episodes.
        self._never, self._ends = set(self.names), 0
        self.note = ""  # names the metrics that no step of the first episodes reported
        self._has_begun: Bools = np.zeros(num_envs, np.bool_)
        shape = (len(self._metrics), len(self._agents), num_envs)
        self._values, self._counts = np.zeros(shape), np.zeros(shape, np.int64)
        self._of_episodes = {name: np.zeros(num_envs) for name in self.names}

    def begin(self, env: int) -> None:
        self._ends += int(self._has_begun[env])
        self._has_begun[env] = True
        if self._never and self._ends >= PATIENCE:
            self.note = never_reported(sorted(self._never), f"the first {self._ends} episodes")
            self._never.clear()
        self._values[:, :, env] = 0.0
        self._counts[:, :, env] = 0

    def read(self, env: int, agent: int, info: Mapping[str, Any], check: bool = True) -> None:
        if not info:
            return
        for i, (name, how, path, agent_only) in enumerate(self._metrics):
            if agent_only not in (None, agent):
                continue
            reported = _at(info, path)
            if reported is None:
                continue
            try:
                value = number(reported.item() if isinstance(reported, np.generic) else reported)
            except BadValueError:
                value = math.nan
            if not math.isfinite(value):
                if not check:
                    continue
                raise BadValueError(
                    f"`info` holds {short(reported)} as {'/'.join(path)}, which "
                    f"env.episode_metrics.{name} reads; it must be a finite number"
                )
            before, count = self._values[i, agent, env], self._counts[i, agent, env]
            self._values[i, agent, env] = HOW[how](before, value) if count else value
            self._counts[i, agent, env] = count + 1
            self._never.discard(name)

    def episode_metrics(self, ended: Bools) -> dict[str, Array]:
        """Return each metric of the newest finished episode: [num_envs].

        A metric that no step reported is NaN, or 0 for `sum`. This call updates the metrics of
        copies in which any agent's episode has `ended`: [num_envs].
        """
        for e in np.flatnonzero(ended).tolist():
            for i, (name, how, _, _) in enumerate(self._metrics):
                reported = self._counts[i, :, e] > 0
                values = self._values[i, reported, e]
                if how == "mean":
                    values = values / self._counts[i, reported, e]
                empty = 0.0 if how == "sum" else np.nan
                self._of_episodes[name][e] = values.mean() if reported.any() else empty
        return self._of_episodes


def keys_of_metric(name: str) -> tuple[str, str]:
    """Return the keys of `env.episode_metrics` that make a metric: its own, and `*/speed`."""
    return name, f"{EACH}/{name.partition('/')[2]}"


def never_reported(names: Sequence[str], episodes: str) -> str:
    """Return a note on episode metrics that no `info` held in some episodes."""
    return (
        f"env.episode_metrics: in {episodes} no `info` of a step held {', '.join(names)}; check "
        "the keys that the environment puts there, and the names of its agents"
    )


def _at(info: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the value under the key `a/b`, or under `b` in the mapping `a`; else None."""
    whole = "/".join(path)
    if whole in info:
        return info[whole]
    value: Any = info
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value
