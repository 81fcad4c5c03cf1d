"""The settings of a double oracle with trained best responses, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from remuda.analysis.trees.exact_play import WalkedGame, walked_of
from remuda.analysis.trees.trees import OVER
from remuda.envs.registry import RANDOM
from remuda.errors import ConfigError, UsageError
from remuda.policies.spec import PolicySpec
from remuda.population.run_spec import policy_of
from remuda.solvers.exploit.matches import Lineup, play_lineups
from remuda.solvers.exploit.target import Target
from remuda.solvers.exploit.training import check_whole
from remuda.solvers.psro.games import check_played
from remuda.solvers.psro.iterations import Setup
from remuda.solvers.psro.meta_solvers import ZERO_SUM, check_zero_sum
from remuda.solvers.psro.oracle_game import name_of
from remuda.solvers.psro.oracles import OracleSettings, SeatedTarget, config_of
from remuda.types import Numbers

MATCHES = 2000  # matches of each new pair; pairs in the mixtures play more
TOLERANCE = 1e-4  # allowed spread of a constant sum, as a share of the payoffs' range
TRIED = 64  # matches that detect a game that is not zero-sum


@dataclass(frozen=True)
class TrainedSetup(Setup):
    """All settings that determine the iterations, except the limits of the run."""

    seed: int = 0
    matches: int = MATCHES
    oracles: OracleSettings = field(default_factory=OracleSettings)

    @property
    def oracle(self) -> str:
        return str(self.oracles.policy.get("algorithm", "ppo"))

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Self:
        return super().of({**description, "oracles": OracleSettings(**description["oracles"])})


def _walked(setup: TrainedSetup) -> WalkedGame | None:
    found = walked_of(setup.env)
    spec = _specs(setup)[0]
    known = not spec.memory and spec.config.n_frames == 1
    return None if found is None or found.tree.merged or not known else found


def _specs(setup: TrainedSetup) -> list[PolicySpec]:
    agents = setup.env.agents
    nowhere = Path("target")
    targets = [SeatedTarget(seat, Target(setup.env, (), (), ()), nowhere) for seat in range(2)]
    config = config_of(setup.oracles, targets, setup.seed, Path("oracles"), 1.0)
    names = [name_of(number) for number in range(len(agents))]
    seats = [replace(each, name=n, team=n) for each, n in zip(agents, names, strict=True)]
    return [policy_of(config, seat) for seat in seats]


def check_setup(setup: TrainedSetup) -> WalkedGame | None:
    """Check all settings before anything is written; return the game's tree if it is traversed."""
    check_played(setup.game)
    agents = setup.env.agents
    if len(agents) != 2:
        raise ConfigError(
            f"{setup.game} has {len(agents)} agents; oracles are trained for games of two"
        )
    oracles = setup.oracles
    check_whole("matches", setup.matches, 2)
    check_whole("candidates", oracles.candidates, 1)
    check_whole("trials", oracles.trials, 2)
    check_whole("seed", setup.seed, 0)
    if oracles.seconds is None and oracles.turns is None:
        raise UsageError("set `seconds` or `turns`: how long the oracles train")
    walked = _walked(setup)
    if setup.meta_solver in ZERO_SUM:
        check_zero_sum(setup.meta_solver, _returns(setup, walked).T, TOLERANCE)
    return walked


def _returns(setup: TrainedSetup, walked: WalkedGame | None) -> Numbers:
    """Return both players' returns [n, 2] at terminal nodes, or in a few matches without a tree."""
    if walked is not None:
        ends: Numbers = walked.tree.returns[walked.tree.players == OVER]
        return ends
    target = Target(setup.env, (RANDOM,), (1.0,), ((RANDOM, RANDOM),))
    return play_lineups(target, [Lineup(0, RANDOM)], TRIED, setup.seed)[0]
