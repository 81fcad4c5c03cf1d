"""Checks of a run before anything is allocated: its environment, policies and memory."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from remuda.actor.scripted_seats import load_scripted, reserved_members
from remuda.assembly.memory_plan import check_memory, copy_size, size_of_arrays
from remuda.config import Config
from remuda.config.unused_settings import unused_settings
from remuda.envs.adapters.lasting_state import lasting_state
from remuda.envs.closing import note
from remuda.envs.description import EnvSpec
from remuda.envs.registry import find_game, make_env
from remuda.envs.vector_env import VectorEnv
from remuda.policies.compatibility import check_births, shares_of, space_notes
from remuda.policies.spec import PolicySpec
from remuda.population.evolution.setup import check_evolution, with_first_numbers
from remuda.population.run_spec import RunSpec
from remuda.population.setup import check_population
from remuda.runtime.layout import Layout, make_layout


@dataclass(frozen=True)
class Prepared:
    """The environment and policies of a run, before anything is allocated."""

    spec: RunSpec
    specs: tuple[PolicySpec, ...]  # its policies, with initial values of evolving hyperparameters
    layout: Layout  # chosen by cores and memory; a trial may change it
    copy_size: int  # bytes of one more environment copy

    def notes(self, config: Config, explicit_keys: Collection[str], resumed: bool) -> list[str]:
        names = [spec.name for spec in self.specs]
        unused = unused_settings(config, explicit_keys, resumed, names)
        beyond = minibatch_warnings(config, self.specs, len(self.spec.agents))
        return [*space_notes(self.specs), *unused, *beyond]

    def check_memory(self, layout: Layout) -> None:
        check_memory(self.spec, self.specs, layout, self.copy_size)


def prepare(config: Config) -> Prepared:
    """Inspect the environment and the policies of a run."""
    directory = os.getcwd()
    try:
        with closing(make_env(config.game, 1, **config.env.made_with)) as env:
            prepared, one = _inspected(config, env), size_of_arrays(env)
            if lasting := lasting_state(env):
                note(lasting)
        if config.env.num_envs == 1:
            return prepared
        with closing(make_env(config.game, 2, **config.env.made_with)) as env:
            two = size_of_arrays(env)
        return replace(prepared, copy_size=copy_size(one, two, prepared.spec.agents))
    finally:
        os.chdir(directory)  # the environment may have changed it


def _inspected(config: Config, env: VectorEnv) -> Prepared:
    """Inspect a run with one environment copy; `copy_size` of the result is 0."""
    spec = RunSpec(config, EnvSpec.of_env(config.game, config.env.made_with, env))
    specs = spec.policies
    if config.population.dealt:
        check_population(config, spec.roster)
        check_births(config, specs)
        check_evolution(config, specs, spec.roster, env.episode_metrics)
        specs = with_first_numbers(config, specs)
    shares_of(specs)
    game = find_game(config.game)
    reserved_members(game, env, config.env.scripted, np.random.default_rng(0))
    load_scripted(game, config.population.scripted, config.env.workers)
    cores = 1 if config.cluster.used else None  # another layout is made when nodes are known
    devices = [policy.config.device for policy in specs]
    layout = make_layout(config, len(specs), own_devices=devices, cores=cores)
    return Prepared(spec, specs, layout, 0)


def minibatch_warnings(config: Config, specs: Sequence[PolicySpec], seats: int) -> list[str]:
    """Return a warning for each `ppo.minibatches` that exceeds the steps of an update.

    A minibatch has at least one step, or one sequence if the network is recurrent.
    """
    warnings: dict[str, str] = {}
    for spec in specs:
        policy, parts = spec.config, spec.config.ppo.minibatches
        if not policy.rollout_length or parts is None:
            continue
        length, steps = policy.stored.segment_length, policy.rollout_length
        each = -(-steps // length) if spec.memory else steps
        streams = config.env.num_envs * (seats if config.population.dealt else 1)
        if policy.experience.group:  # the policy also trains on steps of others in its group
            streams *= sum(s.config.experience.group == policy.experience.group for s in specs)
        played = 0.0 if policy.learning_mode == "off_policy" else 1.0
        available = int(each * streams * (played + policy.replays))
        if policy.replays:  # segments are drawn whole, so the last may exceed the rollout
            available += 1 if spec.memory else length
        if parts <= available:
            continue
        own = config.policies.get(spec.name, {}).get("ppo", {})
        section = f"policies.{spec.name}" if "minibatches" in own else "policy"
        what = f"{available:,} steps"
        if spec.memory:
            sequences = f"{available:,} sequences of {min(steps, length):,} steps"
            what = f"{sequences}, unless episodes are shorter"
        warnings[section] = (
            f"{section}.ppo.minibatches is {parts:,}, but an update has at most {what}, and each "
            f"minibatch needs at least one; lower it, or raise {section}.ppo.rollout_length or "
            "env.num_envs"
        )
    return list(warnings.values())
