"""Play of a run's policies, or a scripted one, among those of another run, or a scripted one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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

    def setup(self, seed: int, sampled: bool) -> TournamentSetup:
        """Return a tournament whose only participant is the run."""
        return setup_of_snapshots(self.spec, {self.name: self.snapshots}, seed, sampled)


@dataclass(frozen=True)
class PlayedPolicy:
    """A scripted policy in a game."""

    name: str  # for tables and pictures
    policy: str
    env: EnvSpec
    taken: Mapping[str, str] = field(default_factory=dict)
    """Scripted policies that reserve seats, by agent."""

    def setup(self, seed: int, sampled: bool) -> TournamentSetup:
        """Return a tournament whose only participant is the policy."""
        members = tuple(
            () if agent.name in self.taken else (self.policy,) for agent in self.env.agents
        )
        participants = (Participant(self.name, members),)
        return TournamentSetup(self.env, participants, seed, sampled, taken=self.taken)


Played = PlayedRun | PlayedPolicy


def setup_of_focal(
    focal: Played,
    background: Played,
    counts: Sequence[int],
    seed: int = 0,
    sampled: bool | None = None,
) -> TournamentSetup:
    """Return the setup in which focal policies play their game among others.

    counts: numbers of focal seats. sampled: trained policies explore; None: `run.evaluate_sampled`
    of the focal run, else of the run in the background.
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
    setup = focal.setup(seed, sampled)
    (own,) = setup.participants
    (other,) = background.setup(seed, sampled).participants
    # seats of scripted policies in the focal run stay theirs
    members = tuple(
        some if seat else () for some, seat in zip(other.members, own.members, strict=True)
    )
    for agent, some in zip(setup.env.agents, members, strict=True):
        for each in some:
            name = each if isinstance(each, str) else f"{other.name}: {each.spec.name}"
            check_fits(setup.game, name, each, agent)
    participants = (own, replace(other, members=members))
    return replace(setup, participants=participants, focal=tuple(dict.fromkeys(counts)))


@naming_user_code()
def play_focal(setup: TournamentSetup, episodes: int, limits: Limits) -> FocalEvaluation:
    """Play `episodes` with each number of focal seats, in turns over all placements of them."""
    with open_tournament(setup, episodes) as opened:
        schedule = opened.schedule
        assert isinstance(schedule, FocalSchedule)
        by_count = [schedule.matches_of(count, episodes) for count in setup.focal]
        numbers = np.sort(np.concatenate(by_count))
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
