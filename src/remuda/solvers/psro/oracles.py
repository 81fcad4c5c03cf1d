"""Train best responses (oracles) to mixtures of frozen policies, for all players in one stack.

Each iteration is one ordinary run in the game `AgainstTargets`. Its policies are the candidates for
all targets. Candidates differ in their initial weights and exploration
(`remuda.solvers.exploit.training`). The best candidate for each target is selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from remuda.analysis.payoffs.returns import mean_of
from remuda.config import Config
from remuda.envs.description import EnvSpec
from remuda.evaluation.tournaments.entrants import Entrant, Player
from remuda.solvers.exploit.game import name_of
from remuda.solvers.exploit.matches import Lineup, play_lineups
from remuda.solvers.exploit.target import Target
from remuda.solvers.exploit.training import response_config, ways_to_act
from remuda.solvers.psro.settings import PsroSettings
from remuda.types import Numbers


@dataclass(frozen=True)
class SeatedTarget:
    """A mixture of one player's policies, which is the target of the other player's oracle."""

    player: int  # the oracle's seat
    target: Target
    file: Path


def seated_target(
    env: EnvSpec,
    player: int,
    others: Sequence[tuple[str, Entrant]],
    shares: Numbers,
    own: Entrant,
    file: Path,
) -> SeatedTarget:
    """Return the mixture that a player of a two-player game responds to."""
    kept = np.flatnonzero(shares > 0.0)
    seats = [(own, others[i][1]) if player == 0 else (others[i][1], own) for i in kept.tolist()]
    names = tuple(others[i][0] for i in kept.tolist())
    drawn = tuple((shares[kept] / shares[kept].sum()).tolist())
    return SeatedTarget(player, Target(env, names, drawn, tuple(seats)), file)


def config_of(
    settings: PsroSettings,
    targets: Sequence[SeatedTarget],
    seed: int,
    directory: Path,
    scale: float,
) -> Config:
    """Return the run config of one iteration's oracles."""
    candidates = range(settings.candidates)
    names = [[candidate_name(target, i) for i in candidates] for target in range(len(targets))]
    seats = {name: [name_of(target)] for target, each in enumerate(names) for name in each}
    options = {
        "targets": [str(each.file) for each in targets],
        "seats": [each.player for each in targets],
    }
    run = {"turns": settings.turns, "seconds": settings.seconds, "directory": str(directory)}
    return response_config(settings, options, names, seed, scale, run, seats)


def candidate_name(target: int, number: int) -> str:
    """Return a candidate's name in the run."""
    return f"oracle_{target}_{number}"


def choose(
    targets: Sequence[SeatedTarget],
    players: Mapping[str, Player],
    settings: PsroSettings,
    seeds: Sequence[int],
) -> list[tuple[Player, float]]:
    """Return the best candidate against each target, and its return, biased upwards (a maximum)."""
    found = []
    for number, (each, seed) in enumerate(zip(targets, seeds, strict=True)):
        agent = each.target.env.agents[each.player]
        ways: list[Player] = []
        for i in range(settings.candidates):
            player = replace(players[candidate_name(number, i)], agent=agent)
            ways += [way for _, way in ways_to_act(player)]
        lineups = [Lineup(each.player, response) for response in ways]
        played = play_lineups(each.target, lineups, settings.trials, seed)
        means = [mean_of(returns[:, each.player]) for returns in played]
        best = int(np.nan_to_num(means, nan=-np.inf).argmax())
        found.append((ways[best], means[best]))
    return found
