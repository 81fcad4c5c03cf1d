"""What is asked of a double oracle with trained best responses, and whether it can be so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.analysis.exact_play import WalkedGame, walked_game
from remuda.analysis.trees import OVER
from remuda.double_oracle.games import check_played
from remuda.double_oracle.meta_solvers import ZERO_SUM, check_zero_sum
from remuda.double_oracle.oracle_game import name_of
from remuda.double_oracle.oracles import OracleSettings, SeatedTarget, config_of
from remuda.envs.registry import RANDOM, make_env
from remuda.errors import ConfigError, UsageError
from remuda.exploiting.matches import Lineup, play_lineups
from remuda.exploiting.target import Target, agents_of
from remuda.policies.spec import PolicySpec, policy_specs

Numbers = npt.NDArray[np.float64]
MATCHES = 2000
"""Of each pair of policies, before more of those follow on which the mixtures hang."""
TOLERANCE = 1e-4
"""By this share of their range sums of returns may miss a constant: returns are rounded."""
TRIED = 64
"""Matches by which a game is told that is not zero-sum."""


@dataclass(frozen=True)
class TrainedSetup:
    """What is asked: all that the iterations follow from, but for how long training takes."""

    game: str
    options: Mapping[str, Any]
    meta_solver: str = "nash"
    seed: int = 0
    matches: int = MATCHES
    oracles: OracleSettings = field(default_factory=OracleSettings)

    @property
    def algorithm(self) -> str:
        """Of the oracles."""
        return str(self.oracles.policy.get("algorithm", "ppo"))

    def description(self) -> dict[str, Any]:
        """It as plain data."""
        return {
            "oracle": self.algorithm,
            "game": self.game,
            "options": dict(self.options),
            "meta_solver": self.meta_solver,
            "seed": self.seed,
            "matches": self.matches,
            "oracles": self.oracles.plain(),
        }

    @staticmethod
    def of(description: Mapping[str, Any]) -> TrainedSetup:
        """What a description says."""
        return TrainedSetup(
            description["game"],
            description["options"],
            description["meta_solver"],
            description["seed"],
            description["matches"],
            OracleSettings.of(description["oracles"]),
        )


def _walked(setup: TrainedSetup) -> WalkedGame | None:
    env = make_env(setup.game, 1, **setup.options)
    found = walked_game(setup.game, env)
    env.close()
    spec = _specs(setup)[0]
    known = not spec.memory and spec.config.n_frames == 1
    return None if found is None or found.tree.merged or not known else found


def _specs(setup: TrainedSetup) -> list[PolicySpec]:
    """What oracles are.

    Raises:
        ConfigError: they cannot be so.
    """
    agents = agents_of(setup.game, setup.options)
    nowhere = Path("target")
    targets = [SeatedTarget(seat, Target(setup.game, {}, (), (), ()), nowhere) for seat in range(2)]
    config = config_of(setup.oracles, targets, setup.seed, Path("oracles"), 1.0)
    names = [name_of(number) for number in range(len(agents))]
    seats = [replace(each, name=n, team=n) for each, n in zip(agents, names, strict=True)]
    return list(policy_specs(config, seats))


def check_setup(setup: TrainedSetup) -> WalkedGame | None:
    """Look whether all can be so, before anything is written.

    Returns:
        The game's tree, if mixtures are policies of it and networks tell what they do there.

    Raises:
        ConfigError: the game or the oracles cannot be so.
        UsageError: a number that cannot be, or a meta-solver that is not for this game.
    """
    check_played(setup.game)
    agents = agents_of(setup.game, setup.options)
    if len(agents) != 2:
        raise ConfigError(
            f"{setup.game} has {len(agents)} agents; oracles are trained for games of two"
        )
    oracles = setup.oracles
    for name, value, least in (
        ("matches", setup.matches, 2),
        ("candidates", oracles.candidates, 1),
        ("trials", oracles.trials, 2),
        ("seed", setup.seed, 0),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{name}: a whole number, {least} at least; this is {value!r}")
    if oracles.seconds is None and oracles.turns is None:
        raise UsageError("say how long oracles are trained: seconds, or turns")
    walked = _walked(setup)
    if setup.meta_solver in ZERO_SUM:
        check_zero_sum(setup.meta_solver, _returns(setup, walked).T, TOLERANCE)
    return walked


def _returns(setup: TrainedSetup, walked: WalkedGame | None) -> Numbers:
    """[n, 2]: what both earn at the ends of the game, or where it is not walked in a few matches.

    So a game that is not zero-sum is found out before anything is trained.
    """
    if walked is not None:
        ends: Numbers = walked.tree.returns[walked.tree.players == OVER]
        return ends
    target = Target(setup.game, dict(setup.options), (RANDOM,), (1.0,), ((RANDOM, RANDOM),))
    return play_lineups(target, [Lineup(0, RANDOM)], TRIED, setup.seed)[0]
