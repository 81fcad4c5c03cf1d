"""Gymnasium environments that several agents share: level-based foraging, RWARE and their like.

They hand over a tuple by agent: observations, actions and rewards; an episode ends for all at once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.answers import STEP, begin, is_sequence, parts
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
"""By any of these an environment tells how many agents share it."""
NUMBER = (bool, int, float, np.generic)
"""What `info` may tell of all agents together."""


def has_agents(
    env: gymnasium.Env[Any, Any], another: Callable[[], gymnasium.Env[Any, Any]] | None = None
) -> bool:
    """Return whether several agents share an environment, which sees and does tuples by agent.

    It says so by an attribute `n_agents`, `num_agents`, `agents` or `players` that tells as many
    as the tuples have parts, or it pays a reward for each part. One agent may see and do tuples,
    too.

    Args:
        env: the environment.
        another: makes another one, which is played for a step where no attribute tells; None: the
            attributes decide.
    """
    sees, does = env.observation_space, env.action_space
    if not (isinstance(sees, spaces.Tuple) and isinstance(does, spaces.Tuple)):
        return False
    count, own = len(sees.spaces), env.unwrapped
    told: list[Any] = [getattr(own, name, None) for name in ATTRIBUTES]
    sizes = [len(each) if hasattr(each, "__len__") else each for each in told]
    if count != len(does.spaces):
        return False
    return count in sizes or (another is not None and count > 1 and _pays_each(another, count))


def _pays_each(make: Callable[[], gymnasium.Env[Any, Any]], count: int) -> bool:
    """Return whether the first step of an environment pays so many rewards."""
    try:
        env = make()
        try:
            env.reset(seed=0)
            env.action_space.seed(0)
            reward: Any = env.step(env.action_space.sample())[1]
        finally:
            close(env.close, env)
    except Exception:  # whatever it is: an environment that does not step here tells nothing
        return False
    return is_sequence(reward) and len(reward) == count


class TupleEnv:
    """Such an environment with the interface of PettingZoo's parallel ones."""

    def __init__(
        self, env: gymnasium.Env[Any, Any], forget: Callable[[Any], None] | None = None
    ) -> None:
        """Take an environment.

        Args:
            env: shared by several agents.
            forget: makes it forget the episode before, where `reset` does not; it is given the
                environment without its wrappers.
        """
        self.env, self.metadata, self._forget = env, env.metadata, forget
        sees, does = env.observation_space, env.action_space
        if not (isinstance(sees, spaces.Tuple) and isinstance(does, spaces.Tuple)):
            raise ConfigError(
                f"env.wrappers: what they make of {env.unwrapped} sees {type(sees).__name__} and "
                f"does {type(does).__name__}; each has to stay a tuple by agent"
            )
        self.possible_agents = [f"agent_{i}" for i in range(len(sees))]
        self.agents: list[str] = []
        """Who plays: all, until the episode is over."""
        self._sees = dict(zip(self.possible_agents, sees.spaces, strict=True))
        self._does = dict(zip(self.possible_agents, does.spaces, strict=True))

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """What an agent sees."""
        return self._sees[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """What an agent does."""
        return self._does[agent]

    def reset(self, seed: int | None = None) -> tuple[Numbers, Numbers]:
        """Begin an episode: observations and infos, by agent.

        Raises:
            UntakeableError: it takes no seed, or answers anything but observations and an info.
        """
        if self._forget is not None:
            self._forget(self.env.unwrapped)
        observations, info = begin(self.env, seed, agents=len(self.possible_agents))
        self.agents = list(self.possible_agents)
        return self._by_agent("observations", observations), self._infos(info)

    def step(self, actions: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers]:
        """One step of all: observations, rewards, terminations, truncations and infos.

        Raises:
            UntakeableError: it answers anything else.
        """
        chosen = tuple(actions[name] for name in self.possible_agents)
        answer = parts(self.env, "step", self.env.step(chosen), STEP, len(chosen))
        observations, rewards, terminated, truncated, info = answer
        ended, cut, given = (
            self._by_agent(what, each if is_sequence(each) else [each] * len(chosen))
            for what, each in (("ends", terminated), ("ends", truncated), ("rewards", rewards))
        )
        if all(_is_true(ended[name]) or _is_true(cut[name]) for name in self.possible_agents):
            self.agents = []
        else:  # an episode is over for all at once; what is no flag is left to be refused
            ended, cut = (
                {name: False if _is_flag(end) else end for name, end in flags.items()}
                for flags in (ended, cut)
            )
        return self._by_agent("observations", observations), given, ended, cut, self._infos(info)

    def render(self) -> Any:
        """A picture.

        Raises:
            NotImplementedError: it cannot draw here.
        """
        try:
            return self.env.render()
        except Exception as error:  # it may need a display, or a library that is not there
            line = " ".join(str(error).split())
            raise NotImplementedError(f"{self.env} cannot draw here: {line}") from None

    def close(self) -> None:
        """Close it."""
        self.env.close()

    def _is_by_agent(self, values: Any) -> bool:
        return is_sequence(values) and len(values) == len(self.possible_agents)

    def _by_agent(self, what: str, values: Any) -> Numbers:
        """What is handed over as a tuple, by agent."""
        count = len(self.possible_agents)
        if not is_sequence(values) or len(values) != count:
            found = f"{len(values)}" if is_sequence(values) else type(values).__name__
            raise ContractError(f"{self.env}: it has {count} agents, and gave {found} {what}")
        return dict(zip(self.possible_agents, values, strict=True))

    def _infos(self, info: Any) -> Numbers:
        """By agent: what is told of each alone, in tuples, and the numbers that are of all."""
        if self._is_by_agent(info):
            return dict(zip(self.possible_agents, info, strict=True))
        shared = info if isinstance(info, Mapping) else {}
        return {name: self._share(shared, i) for i, name in enumerate(self.possible_agents)}

    def _share(self, info: Mapping[str, Any], agent: int) -> dict[str, Any]:
        """What of a mapping is an agent's, at any depth."""
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
        """An agent's mask, where they are by agent, or one for all; lengths are looked at later."""
        if isinstance(mask, Mapping):
            return {name: self._mask(part, agent) for name, part in mask.items()}
        if self._is_by_agent(mask) and any(part is None or is_sequence(part) for part in mask):
            return mask[agent]
        return mask


def _is_flag(end: Any) -> bool:
    """Whether an end is told by what is true or false."""
    try:
        flag("the end", end)
    except BadValueError:
        return False
    return True


def _is_true(end: Any) -> bool:
    return end is True or (end is not False and _is_flag(end) and bool(end))


class TupleCopies(ParallelCopies):
    """Copies of such environments."""

    checker = ""  # PettingZoo's do not know tuples, and Gymnasium's no rewards by agent


def copies_of(
    make: Callable[[], gymnasium.Env[Any, Any]],
    num_envs: int,
    wrapping: Wrapping = NOTHING,
    forget: Callable[[Any], None] | None = None,
) -> ParallelCopies:
    """Copies of an environment that several agents share; `make` makes one. See `TupleEnv`."""
    return TupleCopies(lambda: TupleEnv(make(), forget), num_envs, wrapping)


def made_quietly(name: str, options: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """One that Gymnasium knows, without its checks, which are for a single agent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(name, disable_env_checker=True, **options)


def make_lbf(
    name: str, /, num_envs: int = 1, *, wrapping: Wrapping = NOTHING, **options: Any
) -> ParallelCopies:
    """Copies of level-based foraging (Papoudakis et al. 2021), `Foraging-8x8-2p-2f-coop-v3`."""
    return _make("lbf", "lbforaging", name, num_envs, wrapping, options, _without_places)


def _without_places(env: Any) -> None:
    """Let no player of foraging stand anywhere: new places are drawn from those that are free."""
    for player in env.players:
        player.position = None


def make_rware(
    name: str, /, num_envs: int = 1, *, wrapping: Wrapping = NOTHING, **options: Any
) -> ParallelCopies:
    """Copies of the robotic warehouse (Papoudakis et al. 2021): `rware-tiny-4ag-v2`, `tiny-4ag`."""
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
    """Copies of an environment that a package registers with Gymnasium.

    Raises:
        ConfigError: the package is missing, or knows no such environment.
    """
    os.environ.setdefault("PYGLET_HEADLESS", "1")
    try:
        __import__(package)
    except ImportError as error:
        raise ConfigError(
            f"{library}:{name} needs {package} ({error}): pip install 'remuda[worlds]'"
        ) from None

    try:
        kind = made_quietly(name, options)
        close(kind.close, kind)
        make = wrapping.around(lambda: made_quietly(name, options))
        return copies_of(make, num_envs, wrapping, forget)
    except (gymnasium.error.Error, TypeError, ValueError, AssertionError) as error:
        if where_raised(error, libraries=False):
            raise
        line = " ".join(str(error).split())
        raise ConfigError(f"{library}:{name} cannot be made: {line}") from None
