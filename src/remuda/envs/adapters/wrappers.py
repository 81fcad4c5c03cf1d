"""Wrappers around each copy of a library's environment, and episode metrics read from `info`.

Both apply to environments that are made one at a time, such as Gymnasium's and PettingZoo's, and
are configured next to the environment's options.
"""

from __future__ import annotations

import ast
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from remuda.envs.adapters.detect import SINGLE, article, kind_of
from remuda.envs.checks import BadValueError, number, short
from remuda.errors import ConfigError, RemudaError
from remuda.system import loading
from remuda.system.loading import load
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
PATIENCE = 100  # episodes without a metric before a warning about it
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wrapping:
    """The wrappers and episode metrics of an adapter's copies."""

    wrappers: tuple[str, ...] = ()  # `module:Name` or `module:Name(values)`, innermost first
    metrics: Mapping[str, str] = field(default_factory=dict)  # each name with a key of `HOW`

    def around(self, make: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that makes a wrapped environment."""
        wrappers = [_Wrapper.read(text) for text in self.wrappers]

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


@dataclass(frozen=True)
class _Wrapper:
    text: str
    make: Callable[..., Any]
    values: tuple[Any, ...]
    named: Mapping[str, Any]

    @classmethod
    def read(cls, text: str) -> _Wrapper:
        """Load the wrapper in a text such as `supersuit:frame_stack_v1(stack_size=4)`."""
        path, values, named = (text, (), {}) if loading.is_pickled(text) else _call_in(text)
        found = load(path, WRAPPERS)
        if not callable(found):
            raise ConfigError(
                f"{WRAPPERS}: {path} is a {type(found).__name__}; name a class or function"
            )
        return cls(text, found, values, named)

    def __call__(self, env: Any) -> Any:
        """Wrap an environment."""
        try:
            with naming_user_code(libraries=False):
                made = self.make(env, *self.values, **self.named)
        except RemudaError:
            raise
        except Exception as error:
            line = " ".join(str(error).split()) or type(error).__name__
            raise ConfigError(
                f"{WRAPPERS}: {self.text} refuses {article(env)}: {line}; wrappers are applied in "
                "the order of the list"
            ) from error
        before, after = kind_of(env), kind_of(made)
        if after != before or after not in SINGLE:
            raise ConfigError(
                f"{WRAPPERS}: {self.text} makes {article(made)} of {article(env)}; allowed are "
                "wrappers that keep the kind of the environment"
            )
        return made


def _call_in(text: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Return the path, the arguments and the keywords of `module:Name(4, key=True)`."""
    module, colon, rest = text.partition(":")

    def refuse(why: str) -> NoReturn:
        raise ConfigError(
            f"{WRAPPERS}: {text!r} {why}; name a wrapper as module:Name, with literal arguments "
            "in parentheses: gymnasium.wrappers:TimeLimit(max_episode_steps=100)"
        )

    if not colon or not module:
        refuse("names no module")
    try:
        found = ast.parse(rest.strip(), mode="eval").body
    except SyntaxError:
        refuse("cannot be read")
    name, call = (found.func, found) if isinstance(found, ast.Call) else (found, None)
    if not isinstance(name, ast.Name | ast.Attribute):
        refuse("cannot be read")
    path = f"{module.strip()}:{ast.unparse(name)}"
    if call is None:
        return path, (), {}
    try:
        values = tuple(ast.literal_eval(value) for value in call.args)
        named = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (ValueError, TypeError):
        refuse("has arguments that are not literals")
    if "" in named:  # `**values`
        refuse("has arguments that are not literals")
    return path, values, named


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
        self._has_begun: Bools = np.zeros(num_envs, np.bool_)
        shape = (len(self._metrics), len(self._agents), num_envs)
        self._values, self._counts = np.zeros(shape), np.zeros(shape, np.int64)
        self._of_episodes = {name: np.zeros(num_envs) for name in self.names}

    def begin(self, env: int) -> None:
        """Start an episode in a copy."""
        self._ends += int(self._has_begun[env])
        self._has_begun[env] = True
        if self._never and self._ends >= PATIENCE:
            for name in sorted(self._never):
                log.warning(
                    "env.episode_metrics.%s: no `info` of a step held it in %d episodes; check the "
                    "keys that the game puts there, and the names of its agents",
                    name,
                    self._ends,
                )
            self._never.clear()
        self._values[:, :, env] = 0.0
        self._counts[:, :, env] = 0

    def read(self, env: int, agent: int, info: Mapping[str, Any], check: bool = True) -> None:
        """Read an agent's `info` of a step."""
        if not info:
            return
        for i, (name, how, path, agent_only) in enumerate(self._metrics):
            if agent_only not in (None, agent):
                continue
            found = _at(info, path)
            if found is None:
                continue
            try:
                value = _finite(found)
            except BadValueError:
                if not check:
                    continue
                raise BadValueError(
                    f"`info` holds {short(found)} as {'/'.join(path)}, which "
                    f"env.episode_metrics.{name} reads; it must be a finite number"
                ) from None
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
                counts, values = self._counts[i, :, e], self._values[i, :, e]
                has_values = counts > 0
                if has_values.any():
                    own = values[has_values] / (counts[has_values] if how == "mean" else 1)
                    self._of_episodes[name][e] = own.mean()
                else:
                    self._of_episodes[name][e] = 0.0 if how == "sum" else np.nan
        return self._of_episodes


def _finite(value: Any) -> float:
    found = number(value.item() if isinstance(value, np.generic) else value)
    if not math.isfinite(found):
        raise BadValueError("it is not finite")
    return found


def _at(info: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the value under the key `a/b`, or under `b` in the mapping `a`; else None."""
    whole = "/".join(path)
    if whole in info:
        return info[whole]
    found: Any = info
    for part in path:
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found
