"""Gymnasium environments with one agent, or with several in tuples (LBF, RWARE).

With several agents, observations, actions and rewards are tuples with an entry for each agent, and
an episode ends for all agents at once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.copies import Copies, Spaces
from remuda.envs.adapters.detect import CHECKERS, GYMNASIUM
from remuda.envs.adapters.masks import MASK
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.envs.adapters.step_results import (
    STEP,
    is_sequence,
    making,
    parts,
    reset_env,
    with_pictures,
)
from remuda.envs.adapters.wrappers import NOTHING, Wrapping
from remuda.envs.checks import BadValueError, UntakeableError, flag, number
from remuda.envs.closing import close
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError, ContractError
from remuda.system.loading import import_module
from remuda.types import Array

AGENT = "agent_0"
Numbers = Mapping[str, Any]
ATTRIBUTES = "n_agents", "num_agents", "agents", "players"
"""Attributes that may hold the number of agents, or the agents."""
NUMBER = (bool, int, float, np.generic)  # types of values in `info` that all agents share


class GymnasiumEnv(Copies):
    """Copies of one Gymnasium environment, stepped one after another.

    Observations that are not a Box are flattened by `gymnasium.spaces.flatten`. The agent is masked
    if the observation contains an `action_mask`, or if `info` of the first reset has that key.
    """

    turn_groups = ((0,),)
    checker = CHECKERS[GYMNASIUM]

    def _spaces_of(self, env: Any) -> Mapping[Any, Spaces]:
        return {AGENT: (env.observation_space, env.action_space)}

    def _infos_of(self, env: Any, result: Any) -> Any:  # noqa: ARG002
        return {AGENT: result[1]}

    def _restart(self, e: int, seed: int) -> None:
        self._agent = 0
        self._note(e, 0, *self._reset_copy(e, seed))
        self.active[e] = self._playing[e] = True

    def _step(self, e: int, agent: int, action: Any) -> None:
        copy = self.copies[e]
        result = parts(copy, "step", copy.step(action), STEP)
        observation, reward, terminated, truncated, info = result
        try:
            self._note(e, agent, observation, info)
            if self._metrics is not None:
                self._metrics.read(e, agent, info or {}, self.check)
            if not (type(reward) is float and type(terminated) is type(truncated) is bool):
                missing = reward is None and not self.check
                reward = np.nan if missing else number(reward, self.check)
                terminated = flag("terminated", terminated, self.check)
                truncated = flag("truncated", truncated, self.check)
        except BadValueError as error:
            count = _parts_of_tuples(copy)
            if count and is_sequence(result[1]) and len(result[1]) == count:
                raise UntakeableError(
                    f"{error}; if its tuples have a part for each of {count} agents, add an "
                    f"attribute n_agents = {count}"
                ) from None
            raise
        self._rewards[e, agent] = reward
        if terminated or truncated:
            self._end(e, agent, terminated)

    def render(self, env: int = 0) -> Array:
        try:
            return super().render(env)
        except gymnasium.error.Error as error:  # a rendering library is missing
            raise NotImplementedError(" ".join(str(error).split())) from None


def _parts_of_tuples(env: gymnasium.Env[Any, Any]) -> int:
    """Return how many parts both spaces have; 0 if they are not tuples of equal lengths."""
    both = env.observation_space, env.action_space
    sizes = {len(space.spaces) if isinstance(space, spaces.Tuple) else 0 for space in both}
    return sizes.pop() if len(sizes) == 1 else 0


def has_agents(
    env: gymnasium.Env[Any, Any], another: Callable[[], gymnasium.Env[Any, Any]] | None = None
) -> bool:
    """Return whether the tuples of an environment have a part for each of several agents.

    This is true if one of `ATTRIBUTES` has the number of parts, or if the first step of another
    copy returns a reward for each part. A single agent may have tuples too. `another` makes that
    copy.
    """
    count = _parts_of_tuples(env)
    if not count:
        return False
    values: list[Any] = [getattr(env.unwrapped, name, None) for name in ATTRIBUTES]
    if count in [len(each) if hasattr(each, "__len__") else each for each in values]:
        return True
    return another is not None and count > 1 and _pays_each(another, count)


def _pays_each(make: Callable[[], gymnasium.Env[Any, Any]], count: int) -> bool:
    try:
        env = make()
        try:
            env.reset(seed=0)
            env.action_space.seed(0)
            reward: Any = env.step(env.action_space.sample())[1]
        finally:
            close(env.close, env)
    except Exception:  # the environment cannot be stepped here
        return False
    return is_sequence(reward) and len(reward) == count


class TupleEnv:
    """A Gymnasium environment of tuples with PettingZoo's parallel interface."""

    def __init__(
        self, env: gymnasium.Env[Any, Any], forget: Callable[[Any], None] | None = None
    ) -> None:
        """Wrap an environment; `forget` clears state that its `reset` does not."""
        self.env, self.metadata, self._forget = env, env.metadata, forget
        sees, acts = env.observation_space, env.action_space
        if not (isinstance(sees, spaces.Tuple) and isinstance(acts, spaces.Tuple)):
            raise ConfigError(
                f"env.wrappers: after wrapping, {env.unwrapped} observes {type(sees).__name__} and "
                f"acts in {type(acts).__name__}; both must stay a Tuple with a part for each agent"
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
        """Start an episode; raise an `UntakeableError` if the result has another form."""
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
        by_agent = [
            self._by_agent(what, each if is_sequence(each) else [each] * len(chosen))
            for what, each in (("rewards", rewards), ("ends", terminated), ("ends", truncated))
        ]
        ends = [{name: _end_of(end) for name, end in flags.items()} for flags in by_agent[1:]]
        if all(any(flags[name] is True for flags in ends) for name in self.possible_agents):
            self.agents = []
        else:  # the episode ends for all at once
            ends = [{n: False if end is True else end for n, end in each.items()} for each in ends]
        observed = self._by_agent("observations", observations)
        return observed, by_agent[0], ends[0], ends[1], self._infos(info)

    def render(self) -> Any:
        try:
            return self.env.render()
        except Exception as error:  # it may need a display, or a library that is missing
            line = " ".join(str(error).split())
            raise NotImplementedError(f"{self.env} cannot be rendered here: {line}") from None

    def close(self) -> None:
        self.env.close()

    def _is_by_agent(self, values: Any) -> bool:
        return is_sequence(values) and len(values) == len(self.possible_agents)

    def _by_agent(self, what: str, values: Any) -> Numbers:
        if not self._is_by_agent(values):
            count = len(self.possible_agents)
            found = f"{len(values)}" if is_sequence(values) else type(values).__name__
            raise ContractError(f"{self.env}: it has {count} agents, but returned {found} {what}")
        return dict(zip(self.possible_agents, values, strict=True))

    def _infos(self, info: Any) -> Numbers:
        """Split `info` by agent: tuples have an entry for each, numbers are shared by all."""
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
        """Return an agent's mask, or the mask that all agents share; lengths are checked later."""
        if isinstance(mask, Mapping):
            return {name: self._mask(part, agent) for name, part in mask.items()}
        if self._is_by_agent(mask) and any(part is None or is_sequence(part) for part in mask):
            return mask[agent]
        return mask


def _end_of(end: Any) -> Any:
    """Return a flag as a bool; a value that is no flag is refused later."""
    try:
        return flag("the end", end)
    except BadValueError:
        return end


class TupleCopies(ParallelCopies):
    """Copies of an environment of tuples."""

    checker = ""  # PettingZoo's tests refuse tuples; Gymnasium's refuse several rewards


def copies_of(
    make: Callable[[], gymnasium.Env[Any, Any]],
    num_envs: int,
    wrapping: Wrapping = NOTHING,
    forget: Callable[[Any], None] | None = None,
) -> ParallelCopies:
    """Make copies of an environment of tuples; `forget` is passed to `TupleEnv`."""
    return TupleCopies(lambda: TupleEnv(make(), forget), num_envs, wrapping)


def made_quietly(name: str, **options: Any) -> gymnasium.Env[Any, Any]:
    """Make an environment without Gymnasium's checks, which are for a single agent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(name, disable_env_checker=True, **options)


def make_lbf(name: str, /, num_envs: int = 1, **options: Any) -> ParallelCopies:
    """Make copies of level-based foraging (Papoudakis et al. 2021), as `Foraging-8x8-2p-2f-v3`."""
    return _make("lbf", "lbforaging", name, num_envs, _clear_positions, **options)


def _clear_positions(env: Any) -> None:
    """Remove the players from the field, so that all their old positions are free again."""
    for player in env.players:
        player.position = None


def make_rware(name: str, /, num_envs: int = 1, **options: Any) -> ParallelCopies:
    """Make copies of the robotic warehouse (Papoudakis et al. 2021), as `tiny-4ag`."""
    full = name if name.startswith("rware") else f"rware-{name}-v2"
    return _make("rware", "rware", full, num_envs, None, **options)


def _make(
    library: str,
    package: str,
    name: str,
    num_envs: int,
    forget: Callable[[Any], None] | None,
    wrapping: Wrapping = NOTHING,
    **options: Any,
) -> ParallelCopies:
    os.environ.setdefault("PYGLET_HEADLESS", "1")
    try:
        __import__(package)
    except ImportError as error:
        raise ConfigError(
            f"{library}:{name} needs {package} ({error}): pip install -e '.[worlds]'"
        ) from None
    refusals = gymnasium.error.Error, TypeError, ValueError, AssertionError
    with making(f"{library}:{name}", *refusals):
        make = wrapping.around(partial(made_quietly, name, **options))
        return copies_of(make, num_envs, wrapping, forget)


def make_gymnasium(
    name: str, /, num_envs: int = 1, *, wrapping: Wrapping = NOTHING, **options: Any
) -> VectorEnv:
    """Make copies of an environment of Gymnasium's registry.

    `my_module:Name-v0` imports a module that registers it. An environment whose spaces are tuples
    with a part for each agent gets several agents (see `has_agents`).
    """
    with making(f"gymnasium:{name}", gymnasium.error.Error, TypeError, ImportError):
        module, _, name = name.rpartition(":")
        if module:
            import_module(module)
        env = gymnasium.make(name, **options)
        close(env.close, env)
        for_agents = has_agents(env, partial(made_quietly, name, **options))
        make: Callable[..., Any] = partial(made_quietly if for_agents else gymnasium.make, name)
        drawable = "rgb_array" in (env.metadata.get("render_modes") or ())
        registered = getattr(env.unwrapped.spec, "kwargs", {})
        if num_envs == 1 and drawable and "render_mode" not in registered:  # several are not drawn
            options = dict(with_pictures(make, options))
        adapter = copies_of if for_agents else GymnasiumEnv
        return adapter(wrapping.around(partial(make, **options)), num_envs, wrapping)
