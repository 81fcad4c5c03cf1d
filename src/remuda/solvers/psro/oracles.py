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
from remuda.config import Config, load_config
from remuda.envs.description import EnvSpec
from remuda.evaluation.tournaments.entrants import Entrant, Player
from remuda.solvers.exploit.matches import Lineup, play_lineups
from remuda.solvers.exploit.settings import ExploitSettings
from remuda.solvers.exploit.target import Target
from remuda.solvers.exploit.training import exploiter_config, ways_to_act
from remuda.solvers.psro.oracle_game import name_of
from remuda.solvers.psro.settings import PsroSettings
from remuda.types import Numbers

GAME = "remuda.solvers.psro.oracle_game:AgainstTargets"


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
    count = settings.candidates
    shared = settings.model_dump(include={"policy", "num_envs", "schedule", "turns"})
    exploiters = ExploitSettings.model_validate({**shared, "exploiters": count, "seed": seed})
    # Start from the settings of one seat's exploiters, and repeat them for every target.
    config = exploiter_config(exploiters, targets[0].file, 0, directory, scale)
    tree = config.model_dump(mode="json", exclude_unset=True)
    candidates = list(tree["population"]["policies"])
    varied = tree.get("policies", {})
    names = {
        candidate_name(number, i): varied.get(candidates[i], {})
        for number in range(len(targets))
        for i in range(count)
    }
    tree |= {
        "game": GAME,
        "policies": {name: each for name, each in names.items() if each},
        "population": {
            "policies": list(names),
            "matchmaker": "random",
            "seats": {
                candidate_name(number, i): [name_of(number)]
                for number in range(len(targets))
                for i in range(count)
            },
        },
    }
    tree["env"]["options"] = {
        "targets": [str(each.file) for each in targets],
        "seats": [each.player for each in targets],
    }
    tree["run"]["seconds"] = settings.seconds
    return load_config(tree)


def candidate_name(target: int, number: int) -> str:
    """Return a candidate's name in the run."""
    return f"oracle_{target}_{number}"


@dataclass(frozen=True)
class Response:
    """The best candidate for a target."""

    player: int
    who: Player
    earned: float  # return in the trial matches; biased upwards, because it is a maximum of means


def choose(
    targets: Sequence[SeatedTarget],
    players: Mapping[str, Player],
    settings: PsroSettings,
    seeds: Sequence[int],
) -> list[Response]:
    """Return the candidate with the highest return against each target in fresh matches."""
    found = []
    for number, (each, seed) in enumerate(zip(targets, seeds, strict=True)):
        agent = each.target.env.agents[each.player]
        ways: list[Player] = []
        for i in range(settings.candidates):
            player = replace(players[candidate_name(number, i)], agent=agent)
            ways += [way for _, way in ways_to_act(player)]
        lineups = [Lineup(each.player, response) for response in ways]
        played = play_lineups(each.target, lineups, settings.trials, seed)
        earned = [mean_of(returns[:, each.player]) for returns in played]
        best = int(np.nan_to_num(earned, nan=-np.inf).argmax())
        found.append(Response(each.player, ways[best], earned[best]))
    return found
