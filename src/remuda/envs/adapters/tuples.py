"""Gymnasium environments with several agents: level-based foraging, RWARE and the like.

Their observations, actions and rewards are tuples by agent; an episode ends for all agents at once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.answers import STEP, is_sequence, parts, reset_env
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.adapters.spaces import MASK
from remuda.envs.adapters.wrapping import NOTHING, Wrapping
from remuda.envs.checks import BadValueError, flag
from remuda.envs.closing import close
from remuda.errors import ConfigError, ContractError
from remuda.user_code import where_raised

RWARE = "rware"
Numbers = Mapping[str, Any]
ATTRIBUTES = "n_agents", "num_agents", "agents", "players"
"""Attributes that give the number of agents."""
NUMBER = (bool, int, float, np.generic)
"""Kinds of values in `info` that all agents share."""


def has_agents(
    env: gymnasium.Env[Any, Any], another: Callable[[], gymnasium.Env[Any, Any]] | None = None
) -> bool:
    """Return whether the tuples of an environment have a part for each of several agents.

    One of `ATTRIBUTES` says so, or the first step of `another` copy, which pays a reward for each
    part. A single agent may have tuples too.
    """
    sees, acts = env.observation_space, env.action_space
    if not (isinstance(sees, spaces.Tuple) and isinstance(acts, spaces.Tuple)):
        return False
    count, own = len(sees.spaces), env.unwrapped
    found: list[Any] = [getattr(own, name, None) for name in ATTRIBUTES]
    sizes = [len(each) if hasattr(each, "__len__") else each for each in found]
    if count != len(acts.spaces):
        return False
    return count in sizes or (another is not None and count > 1 and _pays_each(another, count))


def _pays_each(make: Callable[[], gymnasium.Env[Any, Any]], count: int) -> bool:
    try:
        env = make()
        try:
            env.reset(seed=0)
            env.action_space.seed(0)
            reward: Any = env.step(env.action_space.sample())[1]
        finally:
            close(env.close, env)
    except Exception:  # an environment that does not step here decides nothing
        return False
    return is_sequence(reward) and len(reward) == count


class TupleEnv:
    """An environment of tuples with the interface of PettingZoo's parallel ones."""

    def __init__(
        self, env: gymnasium.Env[Any, Any], forget: Callable[[Any], None] | None = None
    ) -> None:
        """Take an environment; `forget` clears state that its `reset` does not."""
        self.env, self.metadata, self._forget = env, env.metadata, forget
        sees, acts = env.observation_space, env.action_space
        if not (isinstance(sees, spaces.Tuple) and isinstance(acts, spaces.Tuple)):
            raise ConfigError(
                f"env.wrappers: what they make of {env.unwrapped} sees {type(sees).__name__} and "
                f"does {type(acts).__name__}; each has to stay a tuple by agent"
            )
        self.possible_agents = [f"agent_{i}" for i in range(len(sees))]
        self.agents: list[str] = []
        self._observation_spaces = dict(zip(self.possible_agents, sees.spaces, strict=True))
        self._action_spaces = dict(zip(self.possible_agents, acts.spaces, strict=True))

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None) -> tuple[Numbers, Numbers]:
        """Begin an episode; raise an `UntakeableError` if the result has another form."""
        if self._forget is not None:
            self._forget(self.env.unwrapped)
        observations, info = reset_env(self.env, seed, agents=len(self.possible_agents))
        self.agents = list(self.possible_agents)
        return self._by_agent("observations", observations), self._infos(info)

    def step(self, actions: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers]:
        """Step all agents; raise an `UntakeableError` if the result has another form."""
        chosen = tuple(actions[name] for name in self.possible_agents)
        result = parts(self.env, "step", self.env.step(chosen), STEP, len(chosen))
        observations, rewards, terminated, truncated, info = result
        terminations, truncations, paid = (
            self._by_agent(what, each if is_sequence(each) else [each] * len(chosen))
            for what, each in (("ends", terminated), ("ends", truncated), ("rewards", rewards))
        )
        if all(_is_true(terminations[n]) or _is_true(truncations[n]) for n in self.possible_agents):
            self.agents = []
        else:  # the episode ends for all at once; what is no flag is refused later
            terminations, truncations = (
                {name: False if _is_flag(end) else end for name, end in flags.items()}
                for flags in (terminations, truncations)
            )
        by_agent = self._by_agent("observations", observations)
        return by_agent, paid, terminations, truncations, self._infos(info)

    def render(self) -> Any:
        """Return a picture, or raise a `NotImplementedError`."""
        try:
            return self.env.render()
        except Exception as error:  # it may need a display, or a library that is missing
            line = " ".join(str(error).split())
            raise NotImplementedError(f"{self.env} cannot draw here: {line}") from None

    def close(self) -> None:
        self.env.close()

    def _is_by_agent(self, values: Any) -> bool:
        return is_sequence(values) and len(values) == len(self.possible_agents)

    def _by_agent(self, what: str, values: Any) -> Numbers:
        count = len(self.possible_agents)
        if not is_sequence(values) or len(values) != count:
            found = f"{len(values)}" if is_sequence(values) else type(values).__name__
            raise ContractError(f"{self.env}: it has {count} agents, and gave {found} {what}")
        return dict(zip(self.possible_agents, values, strict=True))

    def _infos(self, info: Any) -> Numbers:
        """Divide `info`: tuples by agent, and numbers that all agents share."""
        if self._is_by_agent(info):
            return dict(zip(self.possible_agents, info, strict=True))
        shared = info if isinstance(info, Mapping) else {}
        return {name: self._share(shared, i) for i, name in enumerate(self.possible_agents)}

    def _share(self, info: Mapping[str, Any], agent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in info.items():
            if key == MASK:
                found[key] = self._mask(value, agent)
            elif isinstance(value, Mapping):
                found[key] = self._share(value, agent)
            elif isinstance(value, NUMBER) or getattr(value, "shape", None) == ():
                found[key] = value
            elif self._is_by_agent(value):
                found[key] = value[agent]
        return found

    def _mask(self, mask: Any, agent: int) -> Any:
        """Return an agent's mask, or the one for all; lengths are checked later."""
        if isinstance(mask, Mapping):
            return {name: self._mask(part, agent) for name, part in mask.items()}
        if self._is_by_agent(mask) and any(part is None or is_sequence(part) for part in mask):
            return mask[agent]
        return mask


def _is_flag(end: Any) -> bool:
    try:
        flag("the end", end)
    except BadValueError:
        return False
    return True


def _is_true(end: Any) -> bool:
    return end is True or (end is not False and _is_flag(end) and bool(end))


class TupleCopies(ParallelCopies):
    """Copies of an environment of tuples."""

    checker = ""  # PettingZoo's do not know tuples, and Gymnasium's no rewards by agent


def copies_of(
    make: Callable[[], gymnasium.Env[Any, Any]],
    num_envs: int,
    wrapping: Wrapping = NOTHING,
    forget: Callable[[Any], None] | None = None,
) -> ParallelCopies:
    """Make copies of an environment of tuples; `forget` is that of `TupleEnv`."""
    return TupleCopies(lambda: TupleEnv(make(), forget), num_envs, wrapping)


def made_quietly(name: str, options: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Make an environment without Gymnasium's checks, which are for a single agent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(name, disable_env_checker=True, **options)


def make_lbf(
    name: str, /, num_envs: int = 1, *, wrapping: Wrapping = NOTHING, **options: Any
) -> ParallelCopies:
    """Make copies of level-based foraging (Papoudakis et al. 2021): `Foraging-8x8-2p-2f-v3`."""
    return _make("lbf", "lbforaging", name, num_envs, wrapping, options, _clear_positions)


def _clear_positions(env: Any) -> None:
    """Remove the players from the field, so that new places are drawn from all free ones."""
    for player in env.players:
        player.position = None


def make_rware(
    name: str, /, num_envs: int = 1, *, wrapping: Wrapping = NOTHING, **options: Any
) -> ParallelCopies:
    """Make copies of the robotic warehouse (Papoudakis et al. 2021): `tiny-4ag`."""
    full = name if name.startswith(RWARE) else f"{RWARE}-{name}-v2"
    return _make("rware", "rware", full, num_envs, wrapping, options)


def _make(
    library: str,
    package: str,
    name: str,
    num_envs: int,
    wrapping: Wrapping,
    options: dict[str, Any],
    forget: Callable[[Any], None] | None = None,
) -> ParallelCopies:
    os.environ.setdefault("PYGLET_HEADLESS", "1")
    try:
        __import__(package)
    except ImportError as error:
        raise ConfigError(
            f"{library}:{name} needs {package} ({error}): pip install 'remuda[worlds]'"
        ) from None

    try:
        env = made_quietly(name, options)
        close(env.close, env)
        make = wrapping.around(lambda: made_quietly(name, options))
        return copies_of(make, num_envs, wrapping, forget)
    except (gymnasium.error.Error, TypeError, ValueError, AssertionError) as error:
        if where_raised(error, libraries=False):
            raise
        line = " ".join(str(error).split())
        raise ConfigError(f"{library}:{name} cannot be made: {line}") from None
