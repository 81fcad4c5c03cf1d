"""Play of a run's policies among the policies of another run, or a scripted one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

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

    def setup(self, seed: int, sampled: bool) -> TournamentSetup:
        """Return a tournament whose only participant is the run."""
        return setup_of_snapshots(self.spec, {self.name: self.snapshots}, seed, sampled)


def setup_of_focal(
    focal: PlayedRun,
    background: PlayedRun | str,  # a run, or a scripted policy of the focal run's game
    counts: Sequence[int],
    seed: int = 0,
    sampled: bool | None = None,
) -> TournamentSetup:
    """Return the setup in which a run's policies play its game among others.

    counts: numbers of focal seats. sampled: explore; None: `run.evaluate_sampled` of the run.
    """
    if not counts or min(counts) < 0:
        raise UsageError("focal: name one or several numbers of seats, 0 or more, such as 1")
    if sampled is None:
        sampled = focal.spec.config.run.evaluate_sampled
    setup = focal.setup(seed, sampled)
    (own,) = setup.participants
    if isinstance(background, str):
        other = Participant(background, tuple((background,) for _ in own.members))
    else:
        _check_same_agents(focal, background)
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


def _check_same_agents(focal: PlayedRun, background: PlayedRun) -> None:
    own, other = focal.spec.env, background.spec.env
    if own.names != other.names:
        raise UsageError(
            f"background: {background.name} plays {other.game} with {', '.join(other.names)}, and "
            f"{focal.name} plays {own.game} with {', '.join(own.names)}; name a run with the same "
            "agents"
        )


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
