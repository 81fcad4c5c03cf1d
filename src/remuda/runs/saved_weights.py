"""Weights that a run saved at its end or in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from remuda.config import Config
from remuda.envs.live_options import in_force
from remuda.errors import CheckpointError, RunDirectoryError
from remuda.policies.spec import PolicySpec
from remuda.policies.stack import ParameterStack, layout_size
from remuda.population.members.table_parts import NO_POLICY, POLICY
from remuda.population.roster import copies_of, unborn
from remuda.population.run_spec import RunSpec
from remuda.publish.snapshot import Snapshot
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.fitting import fitting
from remuda.system.checkpoint.names import COORDINATOR, file_name
from remuda.system.version import __version__
from remuda.types import Floats, State

ENV_OPTIONS = "env_options"  # the key of these options in the metadata of final weights


def save_weights(
    run: RunDirectory,
    specs: Sequence[PolicySpec],
    snapshots: Mapping[str, Snapshot],
    env_options: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write the final weights; `env_options`: the changed environment options in force."""
    for spec in specs:
        snapshot = snapshots[spec.name]
        stack = ParameterStack(spec.network().shapes, 1)
        with torch.no_grad():
            stack.flat[0].copy_(torch.from_numpy(snapshot.weights))
        tensors = {name: view[0].numpy().copy() for name, view in stack.parameters.items()}
        metadata = {
            "version": str(snapshot.version),
            "learner_step": str(snapshot.learner_step),
            "policies": "\n".join(spec.name for spec in specs),  # all policies of this save
            ENV_OPTIONS: json.dumps(dict(env_options)),
            "remuda": __version__,
        }
        run.save_weights(spec.name, tensors, metadata)
    run.keep_weights([spec.name for spec in specs])


def load_run(
    run: RunDirectory, checkpoint: int | str = "final"
) -> tuple[RunSpec, dict[str, Snapshot]]:
    """Return the resolved settings of a run, and the snapshots of its policies.

    Environments of these settings start with the options in force when the weights were saved.
    """
    spec = run.spec()
    snapshots = load_snapshots(run, spec, checkpoint)
    return spec_at(run, spec, checkpoint), snapshots


def spec_at(run: RunDirectory, spec: RunSpec, checkpoint: int | str = "final") -> RunSpec:
    """Return the run with the environment options in force when these weights were saved."""
    return spec.with_options(env_options_at(run, spec, checkpoint))


def env_options_at(
    run: RunDirectory, spec: RunSpec, checkpoint: int | str = "final"
) -> dict[str, Any]:
    """Return the changed environment options in force when weights were saved."""
    if not spec.env.changeable_options:
        return {}
    number = find_checkpoint(run, spec, checkpoint)
    if number is not None:
        saved = run.checkpoints.read(number, COORDINATOR)
        # The turns when the state was read: the manifest may count fewer.
        return in_force(saved.get("env_options", "[]"), int(saved["turns"]))
    for policy in _ended_with(run, spec):
        if run.has_weights(policy.name):
            found: dict[str, Any] = json.loads(
                run.load_weights(policy.name)[1].get(ENV_OPTIONS, "{}")
            )
            return found
    return {}


def load_snapshots(
    run: RunDirectory, spec: RunSpec, checkpoint: int | str = "final"
) -> dict[str, Snapshot]:
    number = find_checkpoint(run, spec, checkpoint)
    return _at_the_end(run, spec) if number is None else published(run, spec, number)


def final_weights(run: RunDirectory, spec: RunSpec) -> dict[str, Snapshot] | None:
    """Return the final weights of a run by policy; None if any is missing or damaged."""
    try:
        return _at_the_end(run, spec)
    except RunDirectoryError:
        return None


def _at_the_end(run: RunDirectory, spec: RunSpec) -> dict[str, Snapshot]:
    snapshots = {}
    for policy in _ended_with(run, spec):
        tensors, metadata = run.load_weights(policy.name)
        snapshots[policy.name] = Snapshot(
            weights=_flatten(policy, tensors, run),
            version=_count(metadata, "version"),
            learner_step=_count(metadata, "learner_step"),
            epsilon=0.0,
        )
    return snapshots


def _ended_with(run: RunDirectory, spec: RunSpec) -> tuple[PolicySpec, ...]:
    """Return the policies whose weights must exist at the end of a run."""
    config, specs = spec.config, spec.policies
    if not config.population.dealt:
        return specs
    saved = run.saved_policies([each.name for each in specs])
    if not saved:
        return tuple(each for each in specs if each.name not in unborn(config))
    return tuple(each for each in specs if each.name in saved)


def find_checkpoint(run: RunDirectory, spec: RunSpec, checkpoint: int | str) -> int | None:
    """Return the number of the checkpoint; None for the final weights."""
    numbers = run.checkpoints.numbers()
    if checkpoint == "final":
        ended = all(run.has_weights(policy.name) for policy in _ended_with(run, spec))
        return None if ended or not numbers else numbers[-1]
    if checkpoint == "best":
        best = run.checkpoints.best()
        if best is None and not numbers:
            raise CheckpointError(f"{run.path} has no best checkpoint: it has no checkpoint")
        return numbers[-1] if best is None else int(best["checkpoint"])
    if checkpoint not in numbers:
        known = ", ".join(str(number) for number in numbers) or "none"
        raise CheckpointError(f"{run.path} has no checkpoint {checkpoint}; it has {known}")
    return int(checkpoint)


def published(run: RunDirectory, spec: RunSpec, number: int) -> dict[str, Snapshot]:
    """Return the weights that were published at a checkpoint, of the policies that played then."""
    found = run.checkpoints.read(number, COORDINATOR)
    saved, population = found["published"], found["population"]
    snapshots, config, specs = {}, spec.config, spec.policies
    for slot, policy in enumerate(specs):
        if policy.name not in saved:
            continue
        if config.population.dealt and not _plays(config, population, slot, len(specs)):
            continue
        like: Floats = np.zeros(layout_size(policy.network().shapes), np.float32)
        state = saved[policy.name]
        weights = fitting(state, "weights", like)
        snapshots[policy.name] = Snapshot(weights, state["version"], state["learner_step"], 0.0)
    return snapshots


def _plays(config: Config, population: State, slot: int, policies: int) -> bool:
    """Return whether a slot's policy or its stand-in was in a population."""
    slots, copies = [slot], copies_of(config.population)
    if config.population.has_stand_ins:  # the stand-in is the last of the slot's copies
        slots.append(policies + (slot + 1) * copies - 1)
    is_present = population["identity"][:, POLICY] != NO_POLICY
    is_present &= population["leaving"] == 0
    return bool(is_present[slots].any())


def _count(metadata: Mapping[str, str], name: str) -> int:
    found = metadata.get(name, "")
    return int(found) if found.isdecimal() else 0


def _flatten(spec: PolicySpec, tensors: Mapping[str, Floats], run: RunDirectory) -> Floats:
    shapes = spec.network().shapes
    for name, shape in shapes.items():
        found = tensors[name].shape if name in tensors else "nothing"
        if found != shape:
            raise RunDirectoryError(
                f"{run.weights / file_name(spec.name)}.safetensors does not fit the run's "
                f"configuration: {name} should be {shape} and is {found}"
            )
    flat: Floats = np.concatenate([tensors[name].ravel() for name in shapes]).astype(np.float32)
    return flat
