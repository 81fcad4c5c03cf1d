"""Runs whose policies were cloned from trajectories."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from remuda.config import Config, load_config
from remuda.config.algorithm_registry import BUILT_IN
from remuda.envs.batches import map_parts
from remuda.errors import ConfigError, UsageError
from remuda.evaluation.trajectories import HOW, AgentTrajectories, Trajectories
from remuda.policies.imitation import CloningSettings, Demonstrations, clone_behaviour
from remuda.policies.spec import PolicySpec, alike, first_weights
from remuda.population.run_spec import RunSpec
from remuda.publish.snapshot import Snapshot
from remuda.runs.run_directory import RunDirectory, write_file
from remuda.runs.saved_weights import save_weights
from remuda.runtime.host import threads
from remuda.system.rng import torch_rng
from remuda.types import Floats

CLONED = tuple(name for name, entry in BUILT_IN.items() if not entry.quantiles)
"""Algorithms whose networks can be cloned."""


def clone_run(
    data: Sequence[Trajectories],
    agents: Sequence[str] | None,
    policy: Mapping[str, Any],
    directory: Path | None,
    settings: CloningSettings,
) -> Path:
    """Clone the pooled steps of some agents into one network; return the run directory.

    The run saves the weights under the names of all these agents. Other agents play at random in
    it. None: all agents.
    """
    names = _agents_of(data, agents)
    config = _config(data[0], names, policy, directory, settings.seed)
    spec = RunSpec(config, data[0].env)
    if directory is not None:
        RunDirectory.refuse_taken(directory)
    cloned = next(each for each in spec.policies if each.name == names[0])
    _check_network(cloned)
    with threads(1):  # small networks are faster so, and a seed gives the same weights
        weights = clone_behaviour(cloned, _demonstrations(data, names, cloned), settings)
    if not np.isfinite(weights).all():
        raise UsageError(
            "the clone's weights are not finite; use a smaller learning_rate, or check that the "
            "observations are finite"
        )
    run = RunDirectory.create(config, spec)
    try:
        snapshots = _snapshots(spec, names, weights, settings)
        # First, so that a directory with weights says what it is.
        about = {"data": [each.run for each in data], "agents": names, **vars(settings)}
        write_file(run.imitation, json.dumps(about, indent=2).encode())
        save_weights(run, spec.policies, snapshots, spec.env.changed)
    finally:
        run.unlock()
    return run.path


def _agents_of(data: Sequence[Trajectories], agents: Sequence[str] | None) -> tuple[str, ...]:
    """Return the agents to clone, after checks that one network can play all of them."""
    first = data[0]
    for other in data[1:]:
        if other.game != first.game:
            raise UsageError(f"data: trajectories of {first.game} and of {other.game}; pass one")
        if other.env != first.env or other.settings != first.settings:
            raise UsageError(
                f"data: {other.run} and {first.run} have different options or spaces of "
                f"{first.game}; clone them one by one"
            )
    names = tuple(first if agents is None else agents)
    for name in names:
        if name not in first:
            raise UsageError(
                f"agents: {first.game} has no agent {name!r}; it has {', '.join(first)}"
            )
        if not alike(first.spec_of(names[0]), first.spec_of(name)):
            raise UsageError(
                f"{names[0]} and {name} have different observations or actions, so one network "
                f"cannot play both; name one, as in agents={names[0]!r}"
            )
    if not names or not any(len(each[name]) for each in data for name in names):
        raise UsageError(f"data: no step of {', '.join(names) or 'any agent'}; {HOW}")
    return names


def _config(
    data: Trajectories,
    names: Sequence[str],
    policy: Mapping[str, Any],
    directory: Path | None,
    seed: int,
) -> Config:
    others = [name for name in data if name not in names]
    return load_config(
        {
            "game": data.game,
            "seed": seed,
            "env": {**data.settings, "scripted": dict.fromkeys(others, "random")},
            "policy": policy,
            "run": {"directory": directory},
        }
    )


def _check_network(spec: PolicySpec) -> None:
    algorithm = spec.config.algorithm
    if algorithm not in CLONED:
        raise ConfigError(
            f"policy.algorithm {algorithm} cannot be cloned, because actions do not determine its "
            f"outputs; use one of {', '.join(CLONED)}"
        )
    if spec.memory:
        raise ConfigError(
            "policy.network: a recurrent network cannot be cloned, because cloning learns from "
            "single steps; remove policy.network.recurrent, or stack observations with n_frames"
        )


def _demonstrations(
    data: Sequence[Trajectories], names: Sequence[str], spec: PolicySpec
) -> Demonstrations:
    observations, actions, masks, firsts, count = [], [], [], [], 0
    for each in data:
        for name in names:
            steps, spaces = each[name], each.spaces(name)
            observations.append(_rows(each, name, steps, spec))
            actions.append(spaces.policy_actions(steps.actions))
            if steps.masks is not None:
                masks.append(steps.masks)
            firsts.append(count + np.repeat(steps.starts, steps.lengths))
            count += len(steps)
    return Demonstrations(
        np.concatenate(observations),
        np.concatenate(actions),
        np.concatenate(masks) if masks else None,
        np.concatenate(firsts),
    )


def _rows(data: Trajectories, name: str, steps: AgentTrajectories, spec: PolicySpec) -> Any:
    """Return an agent's observations as the policy's network takes them: [T, *shape]."""
    spaces = data.spaces(name)
    shape = (len(steps), *spec.observation)
    if not len(steps):
        return np.zeros(shape, spec.dtype)
    if spaces.is_array:
        return np.asarray(steps.observations, spec.dtype).reshape(shape)
    plain = map_parts(np.asarray, steps.observations)
    return spaces.flatten(plain)[0].reshape(shape)


def _snapshots(
    spec: RunSpec, names: Sequence[str], weights: Floats, settings: CloningSettings
) -> dict[str, Snapshot]:
    """Return the snapshots of all policies; those that are not cloned have random weights."""
    found = {}
    for each in spec.policies:
        own = weights
        if each.name not in names:
            own = first_weights(each, torch_rng(settings.seed, "weights", each.name))
        found[each.name] = Snapshot(own, 0, 0, 0.0)
    return found
