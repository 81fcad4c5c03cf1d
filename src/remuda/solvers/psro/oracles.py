"""Train best responses (oracles) to mixtures of frozen policies, for all roles in one stack.

Each iteration is one ordinary run in the game `AgainstTargets`. Its policies are the candidates for
all targets. Candidates differ in their initial weights and exploration
(`remuda.solvers.exploit.training`). Scripted policies may be candidates too. The best candidate for
each target is selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from remuda.analysis.payoffs.returns import mean_of
from remuda.config import Config, overlay
from remuda.envs.description import EnvSpec
from remuda.envs.registry import RANDOM
from remuda.evaluation.tournaments.entrants import Entrant, Player
from remuda.solvers.exploit.game import name_of
from remuda.solvers.exploit.matches import Lineup, play_lineups
from remuda.solvers.exploit.target import Target
from remuda.solvers.exploit.training import response_config, ways_to_act
from remuda.solvers.psro.meta_strategy import SUPPORT
from remuda.solvers.psro.settings import PsroSettings
from remuda.types import Numbers

Named = tuple[str, Entrant]  # a policy and its name
Shares = Sequence[tuple[Entrant, float]]  # a mixture: policies and their probabilities


@dataclass(frozen=True)
class SeatedTarget:
    """The policies that an oracle meets in one seat."""

    player: int  # the oracle's seat
    target: Target
    file: Path
    group: int  # oracles of a group play in the seats of all of its targets


def seated_target(
    env: EnvSpec,
    player: int,
    by_seat: Sequence[Sequence[Named]],
    others: Numbers,
    file: Path,
    group: int = 0,
) -> SeatedTarget:
    """Return the joint distribution of the other seats' policies to which a player responds.

    `by_seat`: the policies of each seat; `others`: [n_j, ...] joint probabilities of the policies
    in all seats but the player's.
    """
    seats = [seat for seat in range(len(by_seat)) if seat != player]
    return SeatedTarget(player, joint_target(env, seats, by_seat, others), file, group)


def joint_target(
    env: EnvSpec, seats: Sequence[int], by_seat: Sequence[Sequence[Named]], joint: Numbers
) -> Target:
    """Return the target that draws the policies of some seats from joint probabilities.

    `by_seat`: the policies of each seat; `joint`: [n_j, ...] of the policies in `seats`. The other
    seats play at random.
    """
    joint = np.where(joint > SUPPORT, joint, 0.0)
    cells = np.argwhere(joint)
    shares = joint[tuple(cells.T)]
    names, line_ups = [], []
    for cell in cells.tolist():
        drawn = {seat: by_seat[seat][index] for seat, index in zip(seats, cell, strict=True)}
        names.append(" + ".join(name for name, _ in drawn.values()))
        line_ups.append(tuple(drawn.get(seat, (RANDOM, RANDOM))[1] for seat in range(len(by_seat))))
    drawn_by = tuple((shares / shares.sum()).tolist())
    return Target(env, tuple(names), drawn_by, tuple(line_ups), together=True)


def groups_of(targets: Sequence[SeatedTarget]) -> list[list[int]]:
    """Return the indices of each group's targets."""
    found: dict[int, list[int]] = {}
    for number, each in enumerate(targets):
        found.setdefault(each.group, []).append(number)
    return list(found.values())


def config_of(
    settings: PsroSettings,
    targets: Sequence[SeatedTarget],
    seed: int,
    directory: Path,
    scale: float,
    sources: Sequence[str] = (),
) -> Config:
    """Return the run config of one iteration's oracles.

    `sources`: by group, the policy with whose weights `settings.warm` candidates begin, as in
    `init_from`; empty: none does.
    """
    groups, candidates = groups_of(targets), range(settings.candidates)
    names = [[candidate_name(group, i) for i in candidates] for group in range(len(groups))]
    seats = {
        name: [name_of(target) for target in group]
        for group, each in zip(groups, names, strict=True)
        for name in each
    }
    options = {
        "targets": [str(each.file) for each in targets],
        "seats": [each.player for each in targets],
    }
    run = {"turns": settings.turns, "seconds": settings.seconds, "directory": str(directory)}
    config = response_config(settings, options, names, seed, scale, run, seats)
    warm = {
        name: {"init_from": source}
        for own, source in zip(names, sources, strict=False)
        for name in own[: settings.warm]
        if source
    }
    return config.model_copy(update={"policies": overlay(config.policies, warm)})


def candidate_name(group: int, number: int) -> str:
    """Return a candidate's name in the run."""
    return f"oracle_{group}_{number}"


def choose(
    targets: Sequence[SeatedTarget],
    trained: Mapping[str, Player],
    scripted: Sequence[Sequence[str]],
    incumbents: Sequence[Shares],
    settings: PsroSettings,
    seeds: Sequence[int],
) -> list[tuple[Entrant, float]]:
    """Return the best candidate of each group, and what it earns more than the incumbents.

    Candidates and incumbents play the same matches. The difference is biased upwards (a maximum).
    Without any candidate it is -inf.

    `scripted`: the scripted candidates of each group; `incumbents`: the mixture of policies that
    candidates of each group have to beat.
    """
    found: list[tuple[Entrant, float]] = []
    for number, group in enumerate(groups_of(targets)):
        agent = targets[group[0]].target.env.agents[targets[group[0]].player]
        ways: list[Entrant] = list(scripted[number])
        for i in range(settings.candidates if trained else 0):
            player = replace(trained[candidate_name(number, i)], agent=agent)
            ways += [way for _, way in ways_to_act(player)]
        if not ways:
            found.append((RANDOM, -np.inf))
            continue
        known, shares = zip(*incumbents[number], strict=True)
        means = np.zeros(len(ways) + len(known))
        for index in group:
            each = targets[index]
            lineups = [Lineup(each.player, policy) for policy in (*ways, *known)]
            played = play_lineups(each.target, lineups, settings.trials, seeds[index])
            means += [mean_of(returns[:, each.player]) / len(group) for returns in played]
        more = np.nan_to_num(means[: len(ways)] - means[len(ways) :] @ shares, nan=-np.inf)
        best = int(more.argmax())
        found.append((ways[best], float(more[best])))
    return found
