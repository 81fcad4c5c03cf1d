"""JaxMARL's and gymnax's interfaces of one environment copy, as one interface of pure functions.

All functions are traced: they work on one copy, and `jax_steps.py` maps them over all copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces

from remuda.errors import ConfigError, ContractError

NO_LIMIT = 2**30  # steps: the limit of an environment copy whose episodes have no time limit
ALL, WORLD_STATE, SHAPED = "__all__", "world_state", "shaped_reward"  # keys of JaxMARL
LARGEST_BYTE = 254
"""Upper bound of bytes in a grid. With 255, a `Box` of bytes means pixels, and networks divide
pixels by 255."""


class WorldStep(NamedTuple):
    """The outcome of one step of one copy; agents are in the order of `JaxWorld.agents`."""

    observations: tuple[Any, ...]  # of each agent
    state: Any
    rewards: Any  # [num_agents] float32
    ends: Any  # [num_agents] bool: the agent is done, or the episode of all agents ends
    over: Any  # bool: the episode of all agents ends
    shaped_rewards: Any  # [num_agents] float32; None: the world has none
    critic_states: Any  # what centralised critics observe, of each agent; None: nothing


class JaxWorld(Protocol):
    """One copy of a JAX world, as pure functions that `jax.jit` and `jax.vmap` can trace."""

    env: Any  # the library's environment
    agents: tuple[str, ...]
    limit: int | None
    """The steps after which an episode is cut off; None: it ends by the rules alone."""
    is_endless: bool
    """True if its rules end no episode, so that every end is the time limit."""

    def observation_space(self, agent: int) -> Any:
        """Return the library's observation space."""

    def action_space(self, agent: int) -> Any:
        """Return the library's action space."""

    def reset(self, key: Any) -> tuple[tuple[Any, ...], Any, Any]:
        """Return observations, state, and what centralised critics observe, or None."""

    def step(self, key: Any, state: Any, actions: Sequence[Any]) -> WorldStep:
        """Step once, without an automatic reset."""

    def ends_by_rules(self, key: Any, state: Any, actions: Sequence[Any]) -> Any:
        """Return [num_agents] bool: who is done after this step if there is no time limit."""

    def masks(self, state: Any) -> tuple[Any, ...] | None:
        """Return the allowed actions of each agent; None: all."""


class MarlWorld:
    """An environment with JaxMARL's interface, `MultiAgentEnv`.

    1. `step_env` is called instead of `step`, which resets and hides the final observation.
    2. Worlds of one fixed length (`num_outer_steps`: coin game, STORM) are endless: the length is
       their time limit. In others, a step in a copy without `max_steps` shows whether the rules
       would have ended the episode too. A limit in another attribute is one of the rules.
    3. Returned values have a part for each agent; each reward and each end is one number.
    """

    agents: tuple[str, ...]
    limit: int | None
    is_endless: bool

    def __init__(self, env: Any) -> None:
        self.env = env
        for name, does in (("reset", "starts an episode"), ("step_env", "steps without a reset")):
            if _overrides(env, name) is None:
                raise ContractError(
                    f"{type(env).__name__} has no method {name}, which {does}; write it as "
                    "JaxMARL's MultiAgentEnv describes it"
                )
        self._keys = list(env.agents)
        self.agents = tuple(map(str, self._keys))
        self.is_endless = hasattr(env, "num_outer_steps") and not hasattr(env, "max_steps")
        self.limit = _limit_of(env, "max_steps")
        self._unlimited = None if self.limit is None else _without_limit(env)
        self._masks = _overrides(env, "get_avail_actions") or _overrides(env, "get_legal_moves")

    def observation_space(self, agent: int) -> Any:
        return self.env.observation_space(self._keys[agent])

    def action_space(self, agent: int) -> Any:
        return self.env.action_space(self._keys[agent])

    def reset(self, key: Any) -> tuple[tuple[Any, ...], Any, Any]:
        observations, state = self.env.reset(key)
        return self._observed(observations), state, self._critic_states(observations, state)

    def step(self, key: Any, state: Any, actions: Sequence[Any]) -> WorldStep:
        import jax.numpy as jnp

        observations, after, rewards, dones, info = self._step(self.env, key, state, actions)
        shaped = info.get(SHAPED) if isinstance(info, Mapping) else None
        return WorldStep(
            self._observed(observations),
            after,
            self._numbers(rewards, "rewards"),
            self._ends(dones),
            jnp.bool_(dones[ALL]).reshape(()),
            None if shaped is None else self._numbers(shaped, f"info[{SHAPED!r}]"),
            self._critic_states(observations, after),
        )

    def ends_by_rules(self, key: Any, state: Any, actions: Sequence[Any]) -> Any:
        return self._ends(self._step(self._unlimited, key, state, actions)[3])

    def masks(self, state: Any) -> tuple[Any, ...] | None:
        if self._masks is None:
            return None
        return self._by_agent(self._masks(state), "available actions")

    def _step(self, env: Any, key: Any, state: Any, actions: Sequence[Any]) -> Any:
        return env.step_env(key, state, dict(zip(self._keys, actions, strict=True)))

    def _ends(self, dones: Mapping[Any, Any]) -> Any:
        import jax.numpy as jnp

        if not isinstance(dones, Mapping) or ALL not in dones:
            raise ContractError(
                f"step_env returns dones without {ALL!r}: add it, true where the episode of all "
                "agents ends"
            )
        over = _one_number(dones[ALL], f"dones[{ALL!r}]").astype(jnp.bool_)
        own = [_of_agent(dones, key, over) for key in self._keys]
        return jnp.stack([_one_number(each, "dones").astype(jnp.bool_) | over for each in own])

    def _numbers(self, values: Any, what: str) -> Any:
        """Return one number of each agent: [num_agents] float32."""
        import jax.numpy as jnp

        return jnp.stack([_one_number(own, what) for own in self._by_agent(values, what)]).astype(
            jnp.float32
        )

    def _observed(self, observations: Any) -> tuple[Any, ...]:
        return self._by_agent(observations, "observations")

    def _by_agent(self, values: Any, what: str) -> tuple[Any, ...]:
        """Return each agent's part of a value: of a mapping, a sequence or an array."""
        if isinstance(values, Mapping):
            if "inventory" in values:  # STORM
                return tuple(_of_storm(values, i) for i in range(len(self._keys)))
            missing = [key for key in self._keys if _of_agent(values, key, None) is None]
            if missing:
                raise ContractError(
                    f"its {what} have no key {missing[0]!r}, but {', '.join(map(repr, values))}; "
                    f"allowed is a key for each agent: {', '.join(map(repr, self._keys))}"
                )
            return tuple(_of_agent(values, key, None) for key in self._keys)
        if _length(values) != len(self._keys):
            raise ContractError(
                f"its {what} are {_shown(values)}; allowed is a dictionary with a key for each "
                f"agent, or an array of all {len(self._keys)} agents"
            )
        return tuple(values[i] for i in range(len(self._keys)))

    def _critic_states(self, observations: Any, state: Any) -> Any:
        """Return each agent's state; some worlds have one array for all, others one for each."""
        import jax.numpy as jnp

        found = observations.get(WORLD_STATE) if isinstance(observations, Mapping) else None
        if found is None:
            if not hasattr(self.env, "get_world_state"):
                return None
            found = self.env.get_world_state(state)
        if getattr(found, "ndim", 0) == 1:
            return (jnp.float32(found),) * len(self.agents)
        return tuple(jnp.float32(own).ravel() for own in self._by_agent(found, "world states"))


class GymnaxWorld:
    """An environment of one agent with gymnax's interface, `Environment`."""

    agents: tuple[str, ...] = ("agent_0",)
    limit: int | None
    is_endless: bool = False

    def __init__(self, env: Any) -> None:
        self.env = env
        self._params = env.default_params
        self.limit = _limit_of(self._params, "max_steps_in_episode")
        if self.limit is not None:
            self._unlimited = self._params.replace(max_steps_in_episode=NO_LIMIT)

    def observation_space(self, agent: int) -> Any:  # noqa: ARG002
        return self.env.observation_space(self._params)

    def action_space(self, agent: int) -> Any:  # noqa: ARG002
        return self.env.action_space(self._params)

    def reset(self, key: Any) -> tuple[tuple[Any, ...], Any, Any]:
        observation, state = self.env.reset_env(key, self._params)
        return (observation,), state, None

    def step(self, key: Any, state: Any, actions: Sequence[Any]) -> WorldStep:
        import jax.numpy as jnp

        observation, after, reward, done, _ = self.env.step_env(
            key, state, actions[0], self._params
        )
        over = _one_number(done, "done").astype(jnp.bool_)
        rewards = _one_number(reward, "reward").astype(jnp.float32)[None]
        return WorldStep((observation,), after, rewards, over[None], over, None, None)

    def ends_by_rules(self, key: Any, state: Any, actions: Sequence[Any]) -> Any:
        import jax.numpy as jnp

        return jnp.bool_(self.env.step_env(key, state, actions[0], self._unlimited)[3]).reshape(1)

    def masks(self, state: Any) -> tuple[Any, ...] | None:  # noqa: ARG002
        return None


def _limit_of(owner: Any, name: str) -> int | None:
    """Return the time limit in an attribute, or None."""
    steps = getattr(owner, name, None)
    if steps is None:
        return None
    try:
        limit = float(steps)
    except (TypeError, ValueError):
        limit = 0.0
    if limit < 1 or not limit.is_integer():
        raise ConfigError(
            f"{name} of {type(owner).__name__} is {steps!r}; allowed is a whole number of steps, "
            "at least 1, or None"
        )
    return int(limit)


def _without_limit(env: Any) -> Any:
    """Return a copy of an environment, and of the one that it wraps, without a time limit.

    Its class overrides `max_steps`, whether this is an attribute of the object, of the class, or a
    property.
    """
    kind = type(env)
    unlimited: Any = object.__new__(type(kind.__name__, (kind,), {"max_steps": NO_LIMIT}))
    own = {name: value for name, value in vars(env).items() if name != "max_steps"}
    for name, inner in own.items():
        if hasattr(inner, "step_env") and hasattr(inner, "max_steps"):
            own[name] = _without_limit(inner)
    vars(unlimited).update(own)
    return unlimited


def _overrides(env: Any, name: str) -> Any:
    """Return a method that JaxMARL's base class does not have or does not implement, or None.

    STORM and the coin game assign methods to the object.
    """
    if name in vars(env):
        return getattr(env, name)
    method = getattr(type(env), name, None)
    base = next((kind for kind in type(env).__mro__ if kind.__name__ == "MultiAgentEnv"), None)
    if method is None or method is getattr(base, name, None):
        return None
    return getattr(env, name)


def _of_agent(values: Mapping[Any, Any], key: Any, default: Any) -> Any:
    return values.get(key, values.get(f"agent_{key}", default))


def _of_storm(values: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return one agent's part of STORM's mapping of arrays of all agents.

    In inventories, agents are the last axis.
    """
    return {
        name: part[..., index] if name == "inventory" else part[index]
        for name, part in values.items()
    }


def _length(values: Any) -> int:
    """Return the length of a sequence, or of an array's first axis; 0 for a number."""
    return (
        0 if getattr(values, "shape", None) == () or not hasattr(values, "__len__") else len(values)
    )


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" if shape is None else f"an array of shape {tuple(shape)}"


def _one_number(value: Any, what: str) -> Any:
    """Return an array of one number as a scalar."""
    import jax.numpy as jnp

    array = jnp.asarray(value)
    if array.size != 1:
        raise ContractError(
            f"its {what} hold an array of shape {array.shape}; allowed is one number for each agent"
        )
    return array.reshape(())


def gym_space(space: Any, example: Any, name: str) -> spaces.Space[Any]:
    """Return Gymnasium's form of an observation space.

    Some worlds declare other shapes and bounds than they return, so the shape is that of `example`,
    the shapes and dtypes of a returned observation. Floats have no bounds, for the same reason, and
    integers become floats unless they are bytes or booleans: others may exceed their bounds.
    """
    import jax.numpy as jnp

    if isinstance(example, Mapping | tuple | list):
        is_named = isinstance(example, Mapping)
        own: dict[Any, Any] = dict(example) if is_named else dict(enumerate(example))
        inner = space if isinstance(space, Mapping) else getattr(space, "spaces", None)
        inner = inner if is_named or inner is None else dict(enumerate(inner))
        parts = {
            key: gym_space((inner or {}).get(key), part, f"{name}, part {key}")
            for key, part in own.items()
        }
        return spaces.Dict(parts) if is_named else spaces.Tuple(list(parts.values()))
    shape = tuple(map(int, example.shape)) or (1,)
    dtype = np.dtype(example.dtype)
    if not jnp.issubdtype(dtype, jnp.number) and dtype.kind != "b":
        raise ConfigError(f"{name} is {dtype}, which no policy observes; allowed are numbers")
    if hasattr(space, "n") and not example.shape:
        return spaces.Discrete(int(space.n))
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape, np.uint8)
    if dtype != np.uint8:
        return spaces.Box(-np.inf, np.inf, shape, np.float32)
    high = int(np.max(np.asarray(getattr(space, "high", LARGEST_BYTE))))
    if not 0 < high <= LARGEST_BYTE and np.dtype(space.dtype) != np.uint8:
        high = LARGEST_BYTE  # numbers of a grid, not pixels
    return spaces.Box(0, high, shape, np.uint8)


def gym_action_space(space: Any, name: str) -> spaces.Space[Any]:
    """Return Gymnasium's form of an action space."""
    if hasattr(space, "num_categories"):
        return spaces.MultiDiscrete(np.asarray(space.num_categories, np.int64))
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    if hasattr(space, "low"):
        shape = tuple(map(int, space.shape))
        low, high = (
            np.broadcast_to(np.asarray(end, np.float32), shape) for end in (space.low, space.high)
        )
        return spaces.Box(low, high, shape, np.float32)
    raise ConfigError(
        f"the actions of {name} are a {type(space).__name__}; allowed are Discrete, MultiDiscrete "
        "and Box"
    )


def flat_observation(space: spaces.Space[Any], value: Any, dtype: Any) -> Any:
    """Return a traced observation as an array in the policy's observation space."""
    import jax
    import jax.numpy as jnp

    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        parts = [flat_observation(own, value[key], dtype).ravel() for key, own in inner]
        return jnp.concatenate(parts)
    if isinstance(space, spaces.Discrete):
        return jax.nn.one_hot(value, int(space.n), dtype=dtype)
    return jnp.asarray(value).reshape(space.shape).astype(dtype)


def one_hots(space: spaces.Space[Any]) -> list[tuple[slice, int]]:
    """Return the places of one-hot numbers in a flat observation, with their numbers of values."""
    if isinstance(space, spaces.Discrete):
        return [(slice(0, int(space.n)), int(space.n))]
    found, start = [], 0
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        for own in inner:
            found += [
                (slice(start + place.start, start + place.stop), values)
                for place, values in one_hots(own)
            ]
            start += spaces.flatdim(own)
    return found
