"""Compiled functions that reset and step all copies of a JAX world.

Arrays that leave a function are grouped, so that a turn needs few transfers: observations of agents
with equal spaces are one array, and so are all rewards and all flags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.jax_interfaces import JaxWorld, WorldStep, flat_observation
from remuda.envs.adapters.jax_library import compiler_options, quiet
from remuda.errors import UsageError
from remuda.system.compiling import compiling
from remuda.types import AgentSpec, Array, Bools, Integers

Metric = Callable[[Any, Any], Any]
"""Computes an episode metric from a copy's last state and its agents' returns [num_agents]."""


class Carry(NamedTuple):
    """The state of each copy between turns; all leaves begin with an axis of copies."""

    state: Any  # the library's state
    key: Any  # [2] uint32: the random key of the next step
    turns: Any  # int32: the steps of this episode
    returns: Any  # [num_agents] float32: the world's own rewards of this episode


class Views(NamedTuple):
    """All that agents observe, in groups of agents with equal spaces: [members, num_envs, ...]."""

    observations: tuple[Any, ...]
    masks: tuple[Any, ...]  # empty if no agent is masked
    critic_states: tuple[Any, ...]  # empty if the world has none


class Results(NamedTuple):
    """The results of a turn."""

    numbers: Any
    """[num_envs, columns] float32: rewards of all agents, their shaped rewards if any, metrics."""
    flags: Any  # [num_envs, 2, num_agents] bool: who is done, and who is so by the time limit alone


class Groups:
    """The agents of equal spaces, whose arrays are joined."""

    def __init__(self, agents: Sequence[AgentSpec]) -> None:
        self.observations = _alike([agent.observation_space for agent in agents])
        self.masks = _alike([agent.action_space if agent.masked else None for agent in agents])
        self.critic_states = _alike([agent.state_space for agent in agents])

    @staticmethod
    def places(groups: Sequence[Sequence[int]]) -> dict[int, tuple[int, int]]:
        """Return each agent's group and its number in it."""
        return {agent: (g, i) for g, group in enumerate(groups) for i, agent in enumerate(group)}


def _alike(keys: Sequence[spaces.Space[Any] | None]) -> list[list[int]]:
    groups: list[tuple[spaces.Space[Any], list[int]]] = []
    for agent, key in enumerate(keys):
        if key is None:
            continue
        group = next((members for other, members in groups if other == key), None)
        if group is None:
            groups.append((key, [agent]))
        else:
            group.append(agent)
    return [members for _, members in groups]


class JaxSteps:
    """The compiled functions of a world, for a number of copies.

    1. A copy's episode depends on its seed and actions alone. Its reset uses the second half of
       `split(PRNGKey(seed))`, and each step the second half of the next `split` of the first.
    2. A turn is one call: actions enter as one array, and results leave as few.
    """

    def __init__(
        self,
        world: JaxWorld,
        agents: Sequence[AgentSpec],
        metrics: Sequence[Metric],
        num_envs: int,
    ) -> None:
        import jax

        self._ready: Callable[[Any], Any] = jax.block_until_ready
        self._world, self._agents, self._metrics = world, agents, metrics
        self._groups = Groups(agents)
        self._like: Any = None  # shapes and dtypes of a copy's state after a step
        self._key_kinds: list[Any] = []  # of each leaf of the state; None: it is no random key
        self._called: set[tuple[int, int]] = set()  # functions that are compiled, with their sizes
        self.columns = Columns(agents)
        self.num_envs = num_envs
        # Episodes that end one by one are restarted in small batches, and those that end
        # together in one.
        self._batches = sorted({max(1, num_envs // 8), num_envs})
        jit = partial(jax.jit, compiler_options=compiler_options())
        self._start = jit(jax.vmap(self._start_one, out_axes=(0, 1)))
        self._put = jit(
            lambda carry, at, new: jax.tree.map(lambda old, own: old.at[at].set(own), carry, new)
        )
        self._step = jit(self._step_all)

    @property
    def env(self) -> Any:
        """The library's environment."""
        return self._world.env

    def start(self, seeds: Integers) -> tuple[Carry, Views]:
        """Start an episode in every copy."""
        carry, views = self._call(self._start, len(seeds), _keys(seeds))
        return carry, views

    def restart(
        self, carry: Carry, seeds: Integers, mask: Bools
    ) -> tuple[Carry, list[tuple[Integers, Views]]]:
        """Restart the copies in `mask`; return the carry, and for batches of copies their views."""
        which = np.flatnonzero(mask)
        found: list[tuple[Integers, Views]] = []
        for copies in self._batched(which):
            padded = np.resize(copies, next(n for n in self._batches if n >= len(copies)))
            new, views = self._call(self._start, len(padded), _keys(seeds[padded]))
            carry = self._call(self._put, len(padded), carry, padded.astype(np.int32), new)
            found.append((copies, views))
        return carry, found

    def step(self, carry: Carry, actions: Array) -> tuple[Carry, Views, Results]:
        """Step all copies: `actions` is [num_envs, columns]."""
        after, views, results = self._call(self._step, self.num_envs, carry, actions)
        return after, views, results

    def warm_up(self) -> None:
        """Compile all functions."""
        carry, _ = self.start(np.zeros(self.num_envs, np.int64))
        for size in self._batches:
            mask = np.arange(self.num_envs) < size
            self.restart(carry, np.zeros(self.num_envs, np.int64), mask)
        self.step(carry, np.zeros((self.num_envs, self.columns.size), self.columns.dtype))

    def _call(self, function: Any, size: int, *args: Any) -> Any:
        """Call a function, and report the first call of each size, which compiles it."""
        if (id(function), size) in self._called:
            return function(*args)
        with quiet(), compiling(), enough_memory(size):
            found = self._ready(function(*args))
        self._called.add((id(function), size))
        return found

    def _batched(self, which: Integers) -> Iterator[Integers]:
        small = self._batches[0]
        if len(which) > 2 * small:
            yield which
            return
        for first in range(0, len(which), small):
            yield which[first : first + small]

    def _start_one(self, words: Any) -> tuple[Carry, Views]:
        import jax
        import jax.numpy as jnp

        key, own = jax.random.split(words)
        observations, state, critic_states = self._world.reset(own)
        if self._like is None:
            self._like = jax.eval_shape(self._world.step, own, state, self._no_actions()).state
            self._key_kinds = [
                jax.random.key_impl(leaf) if is_key(leaf) else None
                for leaf in jax.tree.leaves(state)
            ]
        count = len(self._agents)
        carry = Carry(self._stored(state), key, jnp.int32(0), jnp.zeros(count, jnp.float32))
        return carry, self._views(observations, critic_states, state)

    def _stored(self, state: Any) -> Any:
        """Return a state with the dtypes that steps return, so that one function steps all.

        Random keys become their words, which are plain arrays.
        """
        import jax
        from jax import lax

        def stored(leaf: Any, like: Any) -> Any:
            if is_key(like):
                return jax.random.key_data(leaf)
            return lax.convert_element_type(leaf, like.dtype)

        return jax.tree.map(stored, state, self._like)

    def state_of(self, stored: Any) -> Any:
        """Return the library's state of one copy, from that of a `Carry`."""
        import jax

        leaves, tree = jax.tree.flatten(stored)
        own = [
            leaf if kind is None else jax.random.wrap_key_data(leaf, impl=kind)
            for leaf, kind in zip(leaves, self._key_kinds, strict=True)
        ]
        return jax.tree.unflatten(tree, own)

    def _no_actions(self) -> list[Any]:
        import jax.numpy as jnp

        return self.columns.split(jnp.zeros(self.columns.size, self.columns.dtype))

    def _step_all(self, carry: Carry, actions: Any) -> tuple[Carry, Views, Results]:
        import jax
        import jax.numpy as jnp

        after, views, step, own = jax.vmap(self._step_one, out_axes=(0, 1, 0, 0))(carry, actions)
        world, ends = self._world, step.ends
        if world.is_endless:
            truncated = ends
        elif world.limit is None:
            truncated = jnp.zeros_like(ends)
        else:
            cut = step.over & (after.turns >= world.limit)

            def by_rules() -> Any:
                chosen = jax.vmap(self.columns.split)(actions)
                return jax.vmap(self._ends_by_rules)(own, carry.state, chosen)

            # Only a step at the time limit is repeated without it.
            ended = jax.lax.cond(cut.any(), by_rules, lambda: jnp.ones_like(ends))
            truncated = ends & cut[:, None] & ~ended
        numbers = [step.rewards]
        if step.shaped_rewards is not None:
            numbers.append(step.shaped_rewards)
        for metric in self._metrics:
            values = jax.vmap(metric)(after.state, after.returns)
            numbers.append(values.astype(jnp.float32)[:, None])
        results = Results(jnp.concatenate(numbers, axis=1), jnp.stack([ends, truncated], axis=1))
        return after, views, results

    def _step_one(self, carry: Carry, actions: Any) -> tuple[Carry, Views, WorldStep, Any]:
        import jax

        key, own = jax.random.split(carry.key)
        step = self._world.step(own, self.state_of(carry.state), self.columns.split(actions))
        after = Carry(self._stored(step.state), key, carry.turns + 1, carry.returns + step.rewards)
        views = self._views(step.observations, step.critic_states, step.state)
        return after, views, step._replace(observations=(), state=(), critic_states=None), own

    def _ends_by_rules(self, key: Any, stored: Any, actions: Any) -> Any:
        return self._world.ends_by_rules(key, self.state_of(stored), actions)

    def _views(self, observations: Any, critic_states: Any, state: Any) -> Views:
        import jax.numpy as jnp

        world, agents, groups = self._world, self._agents, self._groups

        def observed(agent: int) -> Any:
            spec = agents[agent]
            space = spec.env_observation_space or spec.observation_space
            flat = flat_observation(space, observations[agent], spec.observation_space.dtype)
            return flat.reshape(spec.observation_space.shape)

        masks = (world.masks(state) if groups.masks else None) or ()
        return Views(
            tuple(jnp.stack([observed(agent) for agent in own]) for own in groups.observations),
            tuple(
                jnp.stack([masks[agent].astype(jnp.bool_) for agent in own]) for own in groups.masks
            ),
            tuple(
                jnp.stack([critic_states[agent] for agent in own]) for own in groups.critic_states
            ),
        )


def is_key(leaf: Any) -> bool:
    """Return whether a leaf of a state holds typed random keys, as of `jax.random.key`."""
    import jax

    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and bool(jax.numpy.issubdtype(dtype, jax.dtypes.prng_key))


@contextmanager
def enough_memory(copies: int) -> Iterator[None]:
    """Report in one line that the arrays of this many copies cannot be allocated."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise UsageError(
            f"there is not enough memory for env.num_envs = {copies:,}: the arrays of the world "
            "cannot be allocated; lower it, or choose a smaller world"
        ) from error


class Columns:
    """The columns of an array with the actions of all agents: [num_envs, size]."""

    def __init__(self, agents: Sequence[AgentSpec]) -> None:
        self._spaces = [agent.action_space for agent in agents]
        ends = np.cumsum([int(np.prod(space.shape or (), dtype=int)) for space in self._spaces])
        self._slices = [
            slice(int(end) - int(np.prod(space.shape or (), dtype=int)), int(end))
            for end, space in zip(ends, self._spaces, strict=True)
        ]
        self.size = int(ends[-1])
        is_continuous = any(isinstance(space, spaces.Box) for space in self._spaces)
        self.dtype = np.dtype(np.float32 if is_continuous else np.int32)

    def write(self, agent: int, actions: Array, out: Array) -> None:
        """Write one agent's actions, within their bounds, into the array of all."""
        space, own = self._spaces[agent], out[:, self._slices[agent]]
        own[...] = actions.reshape(own.shape)
        if isinstance(space, spaces.Box):
            np.clip(own, space.low.ravel(), space.high.ravel(), out=own)

    def split(self, row: Any) -> list[Any]:
        """Return each agent's action of one copy's row, as traced arrays."""
        found = []
        for space, own in zip(self._spaces, self._slices, strict=True):
            dtype = np.float32 if isinstance(space, spaces.Box) else np.int32
            found.append(row[own].reshape(space.shape or ()).astype(dtype))
        return found


def _keys(seeds: Integers) -> Array:
    """Return the words of `jax.random.PRNGKey` of each seed: [num_envs, 2] uint32."""
    words = seeds.astype(np.uint64)
    return np.stack([words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)], 1).astype(np.uint32)
