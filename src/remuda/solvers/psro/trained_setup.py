"""Checks of a double oracle with trained best responses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from remuda.analysis.trees.exact_play import WalkedGame, walked_of
from remuda.analysis.trees.trees import OVER
from remuda.envs.description import EnvSpec
from remuda.envs.registry import RANDOM
from remuda.errors import ConfigError
from remuda.policies.spec import PolicySpec
from remuda.population.run_spec import RunSpec
from remuda.solvers.exploit.matches import Lineup, play_lineups
from remuda.solvers.exploit.target import Target
from remuda.solvers.psro.games import check_played
from remuda.solvers.psro.iterations import Setup
from remuda.solvers.psro.meta_solvers import ZERO_SUM, check_zero_sum
from remuda.solvers.psro.oracle_game import name_of
from remuda.solvers.psro.oracles import SeatedTarget, config_of
from remuda.types import Numbers

TOLERANCE = 1e-4  # allowed spread of a constant sum, as a share of the payoffs' range
TRIED = 64  # matches that detect a game that is not zero-sum


def _walked(setup: Setup) -> WalkedGame | None:
    found = walked_of(setup.env)
    spec = _specs(setup)[0]
    known = not spec.memory and spec.config.n_frames == 1
    return None if found is None or found.tree.merged or not known else found


def _specs(setup: Setup) -> tuple[PolicySpec, ...]:
    nowhere = Path("target")
    targets = [SeatedTarget(seat, Target(setup.env, (), (), ()), nowhere) for seat in range(2)]
    config = config_of(setup.settings, targets, 0, Path("oracles"), 1.0)
    names = [name_of(number) for number in range(len(targets))]
    agents = zip(setup.env.agents, names, strict=True)
    seats = tuple(replace(each, name=name, team=name) for each, name in agents)
    return RunSpec(config, EnvSpec(config.game, {}, seats, ((0, 1),))).policies


def check_setup(setup: Setup) -> WalkedGame | None:
    """Check all settings before anything is written; return the game's tree if it is traversed."""
    check_played(setup.game)
    agents = setup.env.agents
    if len(agents) != 2:
        raise ConfigError(
            f"{setup.game} has {len(agents)} agents; oracles are trained for games of two"
        )
    walked = _walked(setup)
    meta_solver = setup.settings.meta_solver
    if meta_solver in ZERO_SUM:
        check_zero_sum(meta_solver, _returns(setup, walked).T, TOLERANCE)
    return walked


def _returns(setup: Setup, walked: WalkedGame | None) -> Numbers:
    """Return both players' returns [n, 2] at terminal nodes, or in a few matches without a tree."""
    if walked is not None:
        ends: Numbers = walked.tree.returns[walked.tree.players == OVER]
        return ends
    target = Target(setup.env, (RANDOM,), (1.0,), ((RANDOM, RANDOM),))
    return play_lineups(target, [Lineup(0, RANDOM)], TRIED, setup.settings.seed)[0]
