"""Checks of trained oracles' settings, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from remuda.analysis.trees.exact_play import WalkedGame, walked_of
from remuda.analysis.trees.trees import OVER
from remuda.envs.description import EnvSpec
from remuda.envs.registry import RANDOM, find_game
from remuda.errors import ConfigError
from remuda.evaluation.tournaments.entrants import Entrant, check_fits
from remuda.policies.spec import PolicySpec
from remuda.population.run_spec import RunSpec
from remuda.runs.run_directory import RunDirectory
from remuda.solvers.exploit.game import name_of
from remuda.solvers.exploit.matches import Lineup, play_lineups
from remuda.solvers.exploit.parse_target import of_run
from remuda.solvers.exploit.target import Target
from remuda.solvers.psro.iterations import Setup
from remuda.solvers.psro.meta_solvers import TOLERANCE, ZERO_SUM, check_players, check_zero_sum
from remuda.solvers.psro.oracles import SeatedTarget, config_of
from remuda.solvers.psro.populations import check_symmetric
from remuda.solvers.psro.settings import SCRIPTED
from remuda.training.saved.policies import SavedPolicies
from remuda.training.warm_start import differences
from remuda.types import Numbers

TRIED = 64  # matches that detect a game that is not zero-sum


def check_setup(setup: Setup, first: Sequence[Entrant] = ()) -> WalkedGame | None:
    """Check all settings before anything is written; return the game's tree if it is traversed.

    `first`: the first policies, unless they are random.
    """
    env, settings = setup.env, setup.settings
    seats, meta_solver = len(env.agents), settings.meta_solver
    if seats < 2:
        raise ConfigError(f"{setup.game} has one agent, and a double oracle needs two")
    check_players(meta_solver, seats)
    if settings.symmetric:
        _check_alike(env)
    for name in settings.scripted:
        find_game(setup.game).policy(name)
    walked, specs = walked_of(env), _specs(setup)
    specs += tuple(each.spec for each in first if not isinstance(each, str))
    if walked is not None and not _measures_exactly(setup, walked, specs):
        walked = None
    if meta_solver not in ZERO_SUM:
        return walked
    if walked is not None:
        returns: Numbers = walked.tree.returns[walked.tree.players == OVER]
    else:  # of a few matches
        target = Target(env, (RANDOM,), (1.0,), ((RANDOM,) * seats,))
        (returns,) = play_lineups(target, [Lineup(0, RANDOM)], TRIED, settings.seed)
        returns = returns[~np.isnan(returns).any(1)]  # without matches in which a seat is absent
    check_zero_sum(meta_solver, returns.T, TOLERANCE)
    return walked


def _check_alike(env: EnvSpec) -> None:
    """Raise a `ConfigError` unless a policy of one seat can play all others."""
    first = env.agents[0]
    for agent in env.agents[1:]:
        for what in ("action", "observation"):
            own, usual = (getattr(each, f"{what}_space") for each in (agent, first))
            if own != usual:
                raise ConfigError(
                    f"symmetric: {first.name} and {agent.name} of {env.game} have unlike "
                    f"{what}s ({usual} and {own}), so they cannot share policies; leave it out"
                )
        if agent.masked != first.masked:
            masked, free = (agent, first) if agent.masked else (first, agent)
            raise ConfigError(
                f"symmetric: {masked.name} of {env.game} has an action mask and {free.name} has "
                "none, so they cannot share policies; leave it out"
            )


def first_policies(setup: Setup) -> list[tuple[int, Entrant]]:
    """Return the policies of the run that the sets begin with, each with its role."""
    assert setup.settings.first is not None
    target = of_run(SavedPolicies(RunDirectory.open(setup.settings.first)))
    if target.game != setup.game or len(target.env.agents) != len(setup.env.agents):
        raise ConfigError(
            f"first: {setup.settings.first} is a run of {target.game} with "
            f"{len(target.env.agents)} agents, and {setup.game} has {len(setup.env.agents)} here; "
            "name a run of the same game"
        )
    found: dict[tuple[int, int], tuple[int, Entrant]] = {}
    for policies in target.players:
        for seat, (agent, policy) in enumerate(zip(setup.env.agents, policies, strict=True)):
            check_fits(setup.game, f"first: a policy of {setup.settings.first}", policy, agent)
            role = 0 if setup.settings.symmetric else seat
            found.setdefault((role, id(policy)), (role, policy))
    return list(found.values())


def check_warm(setup: Setup, first: Sequence[tuple[int, Entrant]]) -> None:
    """Raise a `ConfigError` unless warm candidates can begin with the weights of `first`."""
    settings, specs = setup.settings, _specs(setup)
    for role, policy in first if settings.warm and specs else ():
        if isinstance(policy, str):
            continue
        different = list(differences(policy.spec, specs[role * settings.candidates]))
        if different:
            raise ConfigError(
                f"warm: {policy.spec.name} of {settings.first} has another network than the "
                f"oracles here: {'; '.join(different)}. Pass the values from there, for example "
                "as --policy.network.activation, or leave out warm"
            )


def _measures_exactly(setup: Setup, walked: WalkedGame, specs: tuple[PolicySpec, ...]) -> bool:
    """Return whether gains can be computed from the networks."""
    if walked.tree.merged or setup.settings.scripted:
        return False
    if any(spec.memory or spec.config.n_frames != 1 for spec in specs):
        return False
    if setup.settings.symmetric:
        try:
            check_symmetric(walked.tree)
        except (
            ConfigError
        ):  # a policy may earn something else in another seat; matches shuffle them
            return False
    return True


def _specs(setup: Setup) -> tuple[PolicySpec, ...]:
    """Return the policies that oracles train, which checks their settings."""
    if setup.settings.oracle == SCRIPTED:
        return ()
    empty, seats = Target(setup.env, (), (), ()), range(len(setup.env.agents))
    targets = [SeatedTarget(seat, empty, Path("target"), seat) for seat in seats]
    config = config_of(setup.settings, targets, 0, Path("oracles"), 1.0)
    agents = tuple(
        replace(agent, name=name_of(number), team=name_of(number))
        for number, agent in enumerate(setup.env.agents)
    )
    return RunSpec(config, EnvSpec(config.game, {}, agents, (tuple(seats),))).policies
