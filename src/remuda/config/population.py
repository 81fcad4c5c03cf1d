"""The configuration of a population: who exists, and who plays whom."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)

from remuda.config.evolution import EvolutionConfig
from remuda.config.plain import Options
from remuda.config.sections import Only, Section, Share

BIRTHS = Only(
    when=lambda config: config.population.births.every is not None, needs="population.births.every"
)
"""Marks what births by rating go by."""
PLACES = Only(
    when=lambda config: (
        config.population.births.every is not None or bool(config.population.director)
    ),
    needs="population.births.every or population.director",
)
"""Marks what is for policies that are born."""
SNAPSHOTS = Only(
    when=lambda config: config.population.snapshots.on,
    needs="population.snapshots.every or population.snapshots.win_rate",
)
"""Marks what holds for frozen copies."""


class TeamConfig(Section):
    """A team of a population."""

    policies: tuple[str, ...]
    """The policies that play for it."""
    agents: tuple[str, ...] = ()
    """The agents whose seats are its own. None: those that the game puts into a team of this
    name."""


class SnapshotsConfig(Section):
    """Frozen copies of what policies were, which play on and do not learn."""

    every: PositiveInt | None = None
    """Versions between two copies of a policy. None: not by versions."""
    win_rate: Annotated[
        Share | None,
        Only(
            when=lambda config: config.population.matchmaker != "fixed",
            needs="a population.matchmaker other than fixed",
        ),
    ] = None
    """A policy is copied once it wins this share of its matches against its copies, draws halved.
    None: not by wins."""
    games: Annotated[
        PositiveInt,
        Only(
            when=lambda config: config.population.snapshots.win_rate is not None,
            needs="population.snapshots.win_rate",
        ),
    ] = 100
    """Matches against its copies that a win rate must stand on."""
    keep: Annotated[
        PositiveInt,
        SNAPSHOTS,
    ] = 10
    """The most copies of a policy that play at a time."""
    share: Annotated[
        Share | None,
        Only(
            when=lambda config: (
                config.population.has_frozen and config.population.matchmaker != "fixed"
            ),
            needs="population.snapshots.every, population.snapshots.win_rate or "
            "population.members_from, and a population.matchmaker other than fixed",
        ),
    ] = None
    """The share of seats that frozen copies take in a match, besides one that is always a live
    policy's. None: 0.5, or with `self_play` what `population.newest` leaves."""
    drop: Annotated[
        Literal["oldest", "weakest", "crowded"],
        SNAPSHOTS,
    ] = "oldest"
    """Which of them makes room for a new one: the `oldest`, the `weakest` by rating, or the most
    `crowded`: whose neighbours in time are closest, so that the rest spans the whole past."""

    @property
    def on(self) -> bool:
        """Whether there are any."""
        return self.every is not None or self.win_rate is not None


class BirthsConfig(Section):
    """Policies that are born, and retire, while the run goes on."""

    places: Annotated[NonNegativeInt, PLACES] = 0
    """Places for policies that are born later, `born_0`, `born_1` and so on. Each has a learner,
    asleep while it is empty, and the memory of its experience. The place of a policy that has
    retired is empty too."""
    every: Annotated[
        PositiveInt | None,
        Only(
            when=lambda config: config.population.births.places > 0,
            needs="population.births.places",
        ),
    ] = None
    """Matches between two births: a copy of the highest-rated policy begins in an empty place, and
    the lowest-rated one retires once that plays; both of those that may take every seat. None:
    births are for your own director."""
    games: Annotated[NonNegativeInt, BIRTHS] = 200
    """Games that a policy has played before it is judged."""
    confidence: Annotated[float, Field(ge=0.0, lt=1.0), BIRTHS] = 0.95
    """How probable it must be, by their ratings, that the highest-rated policy is better than the
    lowest-rated one, before that is replaced; allowing for their being picked out of many. Looked
    at anew every `every` matches."""


class PopulationConfig(Section):
    """Who plays whom. Without it, every agent of the game has a policy of its own."""

    matchmaker: str = "fixed"
    """`fixed`: the same seats for good. `random`: all seatings are equally likely. `round_robin`:
    every combination on every seat, in turn. `fitness`: equals by rating. `self_play`: against
    itself and its frozen copies. `prioritized`: against those one loses to. `teams`: the policies
    of one team against another's. Or your own, as `module:Class`."""
    policies: PositiveInt | tuple[str, ...] | None = None
    """How many policies there are, or their names. None: one for each agent, of its name; with
    `self_play`: one. `fixed`: agents take them in turn, so that with 1 all share one."""
    seats: Annotated[
        dict[str, tuple[str, ...]],
        Only(
            when=lambda config: config.population.dealt,
            needs="population.policies or another population.matchmaker",
        ),
    ] = {}
    """By policy, the agents whose seats it may take, where it may not take all. A matchmaker that
    seats it elsewhere, such as `fixed`, is refused."""
    teams: dict[str, TeamConfig] = {}
    """By team: `policies`, and the `agents` whose seats are its own."""
    newest: Annotated[
        Share,
        Only(
            when=lambda config: (
                config.population.matchmaker == "self_play"
                and config.population.has_frozen
                and config.population.snapshots.share is None
            ),
            needs="population.matchmaker self_play, one of population.snapshots.every, "
            "population.snapshots.win_rate and population.members_from, and "
            "population.snapshots.share None",
        ),
    ] = 0.5
    """`self_play`: the share of the other seats that the live weights take; frozen copies take the
    rest, unless `population.snapshots.share` says how many."""
    window: Annotated[
        PositiveFloat,
        Only(
            when=lambda config: config.population.matchmaker == "fitness",
            needs="population.matchmaker fitness",
        ),
    ] = 4.0
    """`fitness`: the most that two ratings in a match may differ by; ratings begin at 25."""
    weighting: Annotated[
        Literal["hard", "even"],
        Only(
            when=lambda config: config.population.matchmaker == "prioritized",
            needs="population.matchmaker prioritized",
        ),
    ] = "hard"
    """`prioritized`: by the chance to lose to them, squared, or `even`: by the chance to lose times
    the chance to win."""
    options: Annotated[
        Options,
        Only(
            when=lambda config: ":" in config.population.matchmaker,
            needs="a population.matchmaker of your own, as module:Class",
        ),
    ] = {}
    """Parameters of your own matchmaker by name."""
    snapshots: SnapshotsConfig = SnapshotsConfig()
    """Frozen copies."""
    members_from: tuple[str, ...] = ()
    """Policies of other runs that play as fixed opponents, each `RUN:policy`, with a version or
    not, as of `policy.init_from`. They take seats as frozen copies do, in their share
    (`population.snapshots.share`), and need the network of a policy that may sit there."""
    births: BirthsConfig = BirthsConfig()
    """Births and retirements."""
    evolution: EvolutionConfig = EvolutionConfig()
    """Policies that take over from better ones, with other hyperparameters."""
    director: str = ""
    """Your own, as `module:Class`, which commands who is frozen, is born and retires, besides what
    `snapshots` and `births` do."""

    @property
    def has_frozen(self) -> bool:
        """Whether members that do not learn may take seats."""
        return self.snapshots.on or bool(self.members_from)

    @property
    def dealt(self) -> bool:
        """Whether seats are dealt anew for each match, instead of every agent keeping its own."""
        return (
            self.matchmaker != "fixed"
            or self.policies is not None
            or self.has_frozen
            or bool(self.teams)
            or self.births.places > 0
            or bool(self.director)
            or self.evolution.on
        )
