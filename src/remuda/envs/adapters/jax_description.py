"""Descriptions of JAX worlds: their agents and metrics, without a step.

A process that only describes a world, such as a run's coordinator, must not import JAX, which takes
memory, threads and seconds. So another process imports it and returns the description.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing import current_process
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.jax_interfaces import (
    GymnaxWorld,
    JaxWorld,
    MarlWorld,
    gym_action_space,
    gym_space,
)
from remuda.envs.adapters.jax_library import make_world, options_of, quiet
from remuda.envs.adapters.jax_metrics import metrics_of
from remuda.envs.adapters.jax_steps import is_key
from remuda.envs.adapters.spaces import observation_converter
from remuda.errors import ConfigError, ContractError, RemudaError
from remuda.system.processes.process import interpreter
from remuda.system.user_errors import where_raised
from remuda.types import AgentSpec


@dataclass(frozen=True)
class WorldSpec:
    """The description of a JAX world."""

    agents: tuple[AgentSpec, ...]
    episode_metrics: tuple[str, ...]
    has_shaped_rewards: bool
    copy_bytes: int  # of the state of one copy
    options: Mapping[str, Any] = field(default_factory=dict)  # of a named world, with defaults


def world_of(env: Any) -> JaxWorld:
    """Return the common interface of a library's environment."""
    return MarlWorld(env) if hasattr(env, "num_agents") else GymnaxWorld(env)


def describe(world: JaxWorld, name: str) -> WorldSpec:
    """Describe a world by tracing a reset and a step, which compiles and computes nothing."""
    try:
        with quiet():
            return _describe(world, name)
    except ContractError as error:
        raise ContractError(f"{name}: {error}") from None
    except RemudaError:
        raise
    except Exception as error:  # code of the library or of the user, traced by JAX
        line = (str(error).strip() or "no message").splitlines()[0]
        where = where_raised(error) or f"{type(error).__name__}: {line}"
        raise ContractError(f"{name} cannot be traced by JAX: {where}") from error


def _describe(world: JaxWorld, name: str) -> WorldSpec:
    import jax

    shaped: Any = jax.ShapeDtypeStruct
    key = shaped((2,), np.uint32)
    acts = [gym_action_space(world.action_space(i), name) for i in range(len(world.agents))]
    chosen = [
        shaped(space.shape or (), np.float32 if isinstance(space, spaces.Box) else np.int32)
        for space in acts
    ]
    observations, state, critic_states = jax.eval_shape(world.reset, key)
    step = jax.eval_shape(world.step, key, state, chosen)
    masks = jax.eval_shape(world.masks, state)
    require_alike("state", state, step.state)
    agents = []
    for i, agent in enumerate(world.agents):
        require_alike(f"observation of {agent}", observations[i], step.observations[i])
        observed = gym_space(
            world.observation_space(i), observations[i], f"{name}: the observation of {agent}"
        )
        box = observation_converter(observed).space
        acting = acts[i]
        is_masked = masks is not None and isinstance(acting, spaces.Discrete)
        if masks is not None and isinstance(acting, spaces.Discrete):
            require_one_flag_each(agent, masks[i], int(acting.n))
        agents.append(
            AgentSpec(
                agent,
                box,
                acts[i],
                team=_team_of(world, agent),
                masked=is_masked,
                layout="hwc" if len(box.shape) == 3 else "",
                env_observation_space=None if observed is box else observed,
                state_space=None
                if critic_states is None
                else spaces.Box(-np.inf, np.inf, critic_states[i].shape, np.float32),
            )
        )
    size = sum(
        int(np.prod(leaf.shape)) * int(leaf.dtype.itemsize)
        for leaf in jax.tree.leaves((state, observations, critic_states))
    )
    metrics = tuple(metrics_of(world.env))
    return WorldSpec(tuple(agents), metrics, step.shaped_rewards is not None, size)


def require_one_flag_each(agent: str, mask: Any, actions: int) -> None:
    """Refuse a mask of another length than the number of actions."""
    if mask.shape != (actions,):
        raise ContractError(
            f"the available actions of {agent} have the shape {mask.shape}; allowed is one flag "
            f"for each of its actions: ({actions},)"
        )


def require_alike(what: str, reset: Any, step: Any) -> None:
    """Refuse a value that a step returns with other parts or shapes than a reset."""
    import jax

    structures: list[Any] = [jax.tree.structure(own) for own in (reset, step)]
    if structures[0] != structures[1]:
        forms = tuple(
            f"a {type(own).__name__} of {len(jax.tree.leaves(own))}" for own in (reset, step)
        )
        raise ContractError(
            f"the {what} has other parts after reset ({forms[0]} arrays) than after step_env "
            f"({forms[1]}); allowed is the same type with the same parts"
        )
    parts, others = (jax.tree_util.tree_flatten_with_path(own)[0] for own in (reset, step))
    for (path, own), (_, other) in zip(parts, others, strict=True):
        if own.shape != other.shape or is_key(own) != is_key(other):
            raise ContractError(
                f"the {what}{jax.tree_util.keystr(path)} is {own.dtype} of shape {own.shape} after "
                f"reset, and {other.dtype} of shape {other.shape} after step_env; allowed is the "
                "same shape"
            )


def _team_of(world: JaxWorld, agent: str) -> str:
    """Return the side of a unit in SMAX, `ally` or `enemy`; other worlds declare no teams."""
    return agent.partition("_")[0] if hasattr(world.env, "num_allies") else ""


def describe_by_name(name: str, options: Mapping[str, Any]) -> WorldSpec:
    """Describe a world of JaxMARL, in another process unless this one plays or has JAX.

    Processes that Remuda started play; each has its own name.
    """
    if "jax" in sys.modules or current_process().name != "MainProcess":
        return _describe_named(name, options)
    return _described(name, pickle.dumps(dict(options)))


def _describe_named(name: str, options: Mapping[str, Any]) -> WorldSpec:
    world = world_of(make_world(name, options))
    try:
        spec = describe(world, f"jaxmarl:{name}")
    except ContractError as error:
        if not options:
            raise
        raise ConfigError(f"env.options.{', '.join(options)}: {error}") from None
    return replace(spec, options=options_of(name))


@cache
def _described(name: str, options: bytes) -> WorldSpec:
    """Describe a world in another process; each description is made once."""
    found = subprocess.run(
        interpreter(f"from {__name__} import _answer; _answer()"),
        input=pickle.dumps((name, pickle.loads(options))),
        capture_output=True,
        check=False,
    )
    if found.returncode:
        lines = found.stderr.decode(errors="replace").strip().splitlines()
        raise ConfigError(f"jaxmarl:{name} cannot be made: {lines[-1] if lines else 'no reason'}")
    answer = pickle.loads(found.stdout)
    if isinstance(answer, RemudaError):
        raise answer
    assert isinstance(answer, WorldSpec)
    return answer


def _answer() -> None:
    """Read a world's name and options from standard input, and write its description."""
    name, options = pickle.load(sys.stdin.buffer)
    descriptor = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    try:
        answer: object = _describe_named(name, options)
    except RemudaError as error:
        error.__cause__ = error.__context__ = None
        answer = error
    with os.fdopen(descriptor, "wb") as file:
        file.write(pickle.dumps(answer))
