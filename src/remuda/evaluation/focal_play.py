"""Play of a run's policies, or a scripted one, among those of another run, or a scripted one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from remuda.envs.description import EnvSpec
from remuda.errors import UsageError
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.engine import open_tournament
from remuda.evaluation.tournaments.entrants import (
    Participant,
    TournamentSetup,
    check_fits,
    setup_of_snapshots,
)
from remuda.evaluation.tournaments.focal import FocalEvaluation, FocalSchedule, returns_with
from remuda.population.run_spec import RunSpec
from remuda.publish.snapshot import Snapshot
from remuda.system.user_errors import naming_user_code


@dataclass(frozen=True)
class PlayedRun:
    """The policies of a run."""

    name: str
    spec: RunSpec
    snapshots: Mapping[str, Snapshot]

    @property
    def env(self) -> EnvSpec:
        return self.spec.env

    @property
    def scripted(self) -> Mapping[str, str]:
        return self.spec.config.env.scripted

    def setup(self, seed: int, sampled: bool) -> TournamentSetup:
        """Return a tournament whose only participant is the run."""
        return setup_of_snapshots(self.spec, {self.name: self.snapshots}, seed, sampled)


@dataclass(frozen=True)
class PlayedPolicy:
    """A scripted policy in a game."""

    name: str  # for tables and pictures
    policy: str
    env: EnvSpec

    @property
    def scripted(self) -> Mapping[str, str]:
        return {}

    def setup(self, seed: int, sampled: bool) -> TournamentSetup:
        """Return a tournament whose only participant is the policy."""
        participants = (Participant(self.name, ((self.policy,),) * len(self.env.agents)),)
        return TournamentSetup(self.env, participants, seed, sampled)


Played = PlayedRun | PlayedPolicy


def setup_of_focal(
    focal: Played,
    background: Played,
    counts: Sequence[int],
    seed: int = 0,
    sampled: bool | None = None,
) -> TournamentSetup:
    """Return the setup in which focal policies play their game among others.

    Seats that a scripted policy reserves in either run stay reserved. counts: numbers of focal
    seats. sampled: trained policies explore; None: `run.evaluate_sampled` of the focal run, else of
    the run in the background.
    """
    if not counts or min(counts) < 0:
        raise UsageError("focal: name one or several numbers of seats, 0 or more, such as 1")
    if focal.env.names != background.env.names:
        raise UsageError(
            f"background: {background.name} plays {background.env.game} with "
            f"{', '.join(background.env.names)}, and {focal.name} plays {focal.env.game} with "
            f"{', '.join(focal.env.names)}; name a run with the same agents"
        )
    runs = [each for each in (focal, background) if isinstance(each, PlayedRun)]
    if sampled is None:
        sampled = bool(runs) and runs[0].spec.config.run.evaluate_sampled
    setup, taken = focal.setup(seed, sampled), _reserved(focal, background)
    free = [agent for agent in setup.env.names if agent not in taken]
    if len(free) == 1:
        reserved = ", and env.scripted reserves all others" if taken else ""
        raise UsageError(
            f"background: {free[0]} is the only agent of {setup.game}{reserved}, so no seat is "
            "left for a background; evaluate without one"
        )
    (other,) = background.setup(seed, sampled).participants
    for agent, some in zip(setup.env.agents, other.members, strict=True):
        for each in (taken[agent.name],) if agent.name in taken else some:
            name = each if isinstance(each, str) else f"{other.name}: {each.spec.name}"
            check_fits(setup.game, name, each, agent)
    participants = tuple(
        Participant(
            side.name,
            tuple(
                () if agent in taken else some
                for agent, some in zip(setup.env.names, side.members, strict=True)
            ),
        )
        for side in (*setup.participants, other)
    )
    focal_seats = tuple(dict.fromkeys(counts))
    return replace(setup, participants=participants, taken=taken, focal=focal_seats)


def _reserved(focal: Played, background: Played) -> dict[str, str]:
    """Return the scripted policies that reserve seats on either side, by agent."""
    own, others = focal.scripted, background.scripted
    for agent in sorted(own.keys() & others.keys()):
        if own[agent] != others[agent]:
            raise UsageError(
                f"background: {agent} always plays {own[agent]} in {focal.name}, and "
                f"{others[agent]} in {background.name} (env.scripted); name a run where {agent} "
                "learns, or plays the same"
            )
    return {**own, **others}


@naming_user_code()
def play_focal(setup: TournamentSetup, episodes: int, limits: Limits) -> FocalEvaluation:
    """Play `episodes` with each number of focal seats, in turns over all placements of them.

    The numbers take turns, too, so that all have equally many episodes if play is cut.
    """
    with open_tournament(setup, episodes) as opened:
        schedule = opened.schedule
        assert isinstance(schedule, FocalSchedule)
        by_count = [schedule.matches_of(count, episodes) for count in setup.focal]
        numbers = np.stack(by_count, axis=1).ravel()
        cut = opened.play(numbers, limits, len(numbers))
        played = opened.results.played()
    focal, background = setup.participants
    return FocalEvaluation(
        setup.game,
        focal.name,
        background.name,
        len(schedule.dealt),
        tuple(returns_with(schedule, count, *played) for count in setup.focal),
        episodes,
        cut,
        setup.taken,
    )
