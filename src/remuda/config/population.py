"""The configuration of a population: who exists, and who plays whom."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from remuda.config.evolution import EvolutionConfig
from remuda.config.plain import Options
from remuda.config.sections import (
    Count,
    CountOrNone,
    Only,
    Reference,
    Section,
    Share,
    Size,
    at_most,
)

FEW = at_most(10_000, "each with a learner and the memory of its experience; give fewer")
"""How many policies there may be: names, learners and memory are made for each."""
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
    when=lambda config: config.population.keeps_copies,
    needs="population.snapshots.every, population.snapshots.win_rate or population.matchmaker "
    "league",
)
"""Marks what holds for frozen copies."""
MIXED = Only(
    when=lambda config: config.population.matchmaker == "mixed",
    needs="population.matchmaker mixed",
)
"""Marks what says how matchmakers are combined."""
LEAGUE = Only(
    when=lambda config: config.population.matchmaker == "league",
    needs="population.matchmaker league",
)
"""Marks what holds for a league of main agents and exploiters."""
PRIORITIZED = Only(
    when=lambda config: config.population.deals("prioritized"),
    needs="population.matchmaker prioritized, or a share of it in population.shares",
)
"""Marks what opponents are weighed by."""


class TeamConfig(Section):
    """A team of a population."""

    policies: tuple[str, ...]
    """The policies that play for it."""
    agents: tuple[str, ...] = ()
    """The agents whose seats are its own. None: those that the game puts into a team of this
    name."""


class SnapshotsConfig(Section):
    """Frozen copies of what policies were, which play on and do not learn."""

    every: Count | None = None
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
        Count,
        Only(
            when=lambda config: config.population.snapshots.win_rate is not None,
            needs="population.snapshots.win_rate",
        ),
    ] = 100
    """Matches against its copies that a win rate must stand on."""
    keep: Annotated[
        Size,
        SNAPSHOTS,
    ] = 10
    """The most copies of a policy that play at a time."""
    share: Annotated[
        Share | None,
        Only(
            when=lambda config: (
                config.population.has_frozen
                and config.population.matchmaker not in ("fixed", "league")
            ),
            needs="population.snapshots.every, population.snapshots.win_rate, "
            "population.members_from or population.scripted, and a population.matchmaker other "
            "than fixed and league",
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

    places: Annotated[NonNegativeInt, FEW, PLACES] = 0
    """Places for policies that are born later, `born_0`, `born_1` and so on. Each has a learner,
    asleep while it is empty, and the memory of its experience. The place of a policy that has
    retired is empty too."""
    every: Annotated[
        Count | None,
        Only(
            when=lambda config: config.population.births.places > 0,
            needs="population.births.places",
        ),
    ] = None
    """Matches between two births: a copy of the highest-rated policy begins in an empty place, and
    the lowest-rated one retires once that plays; both of those that may take every seat. None:
    births are for your own director."""
    games: Annotated[CountOrNone, BIRTHS] = 200
    """Games that a policy has played before it is judged."""
    confidence: Annotated[float, Field(ge=0.0, lt=1.0), BIRTHS] = 0.95
    """How probable it must be, by their ratings, that the highest-rated policy is better than the
    lowest-rated one, before that is replaced; allowing for their being picked out of many. Looked
    at anew every `every` matches."""


class LeagueConfig(Section):
    """Main agents, and exploiters that look for what these lose to.

    Vinyals et al. 2019, "Grandmaster level in StarCraft II using multi-agent reinforcement
    learning".
    """

    main: Annotated[PositiveInt, FEW] | tuple[str, ...] = 1
    """How many main agents there are, `main_0` and so on, or their names. They never begin anew."""
    main_exploiters: Annotated[NonNegativeInt, FEW] | tuple[str, ...] = 1
    """How many play against the main agents alone, `main_exploiter_0` and so on, or their names.
    They begin anew whenever they are copied."""
    league_exploiters: Annotated[NonNegativeInt, FEW] | tuple[str, ...] = 1
    """How many play against all frozen copies of the league, `league_exploiter_0` and so on, or
    their names."""
    self_play: Share = 0.5
    """The share of a main agent's matches that are against main agents as they are now."""
    prioritized: Share = 0.35
    """The share of a main agent's matches that are against frozen copies of the whole league, by
    the chance to lose to them, squared."""
    verification: Share = 0.15
    """The share of a main agent's matches that are against copies of main exploiters and of main
    agents that it has come to lose to; where there are none, it is self-play. The three add up to
    1."""
    main_share: Share | None = None
    """The share of all matches that are dealt for main agents, who take turns in them; exploiters
    take turns in the rest. While the places of the ones are all empty, the others have all matches.
    None: all learners take turns alike."""
    learn_from: Literal["all", "own"] = "all"
    """What policies of the league learn from: `all` matches that they play, or their `own` alone,
    which are those that are dealt for them, as in the paper. In another's match a policy plays then
    as it is, so that a main agent learns from an exploiter only once that is copied."""
    after: Count = 20
    """Versions that a policy learns, at least, before it is copied because of what it wins."""
    timeout: Count = 80
    """Versions after which it is copied, whatever it wins."""
    win_rate: Share = 0.7
    """A policy is copied once it wins more than this share of its matches against each of those
    that count, draws halved: live main agents for a main exploiter, all frozen copies for the
    others."""
    games: CountOrNone = 100
    """Matches against them, all together, that this must stand on."""
    reset: Annotated[
        Share,
        Only(
            when=lambda config: (
                config.population.matchmaker == "league"
                and bool(config.population.league.league_exploiters)
            ),
            needs="population.matchmaker league, and population.league.league_exploiters",
        ),
    ] = 0.25
    """The probability that a league exploiter begins anew when it is copied."""

    @property
    def roles(self) -> dict[str, tuple[str, ...]]:
        """By role (`main`, `main_exploiter`, `league_exploiter`), the policies that have it."""
        asked = {
            "main": self.main,
            "main_exploiter": self.main_exploiters,
            "league_exploiter": self.league_exploiters,
        }
        return {
            role: tuple(f"{role}_{i}" for i in range(found)) if isinstance(found, int) else found
            for role, found in asked.items()
        }

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of all of them, the main agents first."""
        return tuple(name for names in self.roles.values() for name in names)


class PopulationConfig(Section):
    """Who plays whom. Without it, every agent of the game has a policy of its own."""

    matchmaker: str = "fixed"
    """`fixed`: the same seats for good. `random`: all seatings are equally likely. `round_robin`:
    every combination on every seat, in turn. `fitness`: equals by rating. `self_play`: against
    itself and its frozen copies. `prioritized`: against those one loses to. `teams`: the policies
    of one team against another's. `mixed`: several of these, by `population.shares`. `league`:
    main agents and exploiters, by `population.league`. Or your own, as `module:Class`."""
    policies: Annotated[PositiveInt, FEW] | tuple[str, ...] | None = None
    """How many policies there are, or their names. None: one for each agent, of its name; with
    `self_play` or `mixed`: one; `league` has its own. `fixed`: agents take them in turn, so that
    with 1 all share one."""
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
    shares: Annotated[dict[str, Share], MIXED] = {}
    """`mixed`: by matchmaker, the share of a policy's matches that it deals: of `self_play`,
    `prioritized`, `random` and `verification`, which add up to 1."""
    policy_shares: Annotated[dict[str, dict[str, Share]], MIXED] = {}
    """`mixed`: the same by policy, for those that have shares of their own."""
    league: Annotated[LeagueConfig, LEAGUE] = LeagueConfig()
    """Who is in a league, and when they are copied."""
    memory: Annotated[
        PositiveFloat | None,
        Only(
            when=lambda config: (
                config.population.matchmaker == "league"
                or config.population.deals("prioritized", "verification")
                or ":" in config.population.matchmaker
                or bool(config.population.director)
            ),
            needs="population.matchmaker prioritized, mixed or league",
        ),
    ] = None
    """Matches of a policy after which a result of its counts half in the win rates that its
    opponents are chosen by, so that it is judged as it is now. None: all count alike."""
    newest: Annotated[
        Share,
        Only(
            when=lambda config: (
                config.population.deals("self_play")
                and config.population.has_frozen
                and config.population.snapshots.share is None
            ),
            needs="population.matchmaker self_play, or a share of it in population.shares, one of "
            "population.snapshots.every, population.snapshots.win_rate, population.members_from "
            "and population.scripted, and population.snapshots.share None",
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
    """`fitness`: the most that two ratings in a match may differ by; ratings begin at 25. A policy
    with too few others in this window meets the closest ratings."""
    weighting: Annotated[
        Literal["hard", "even", "capped", "uniform"],
        PRIORITIZED,
    ] = "hard"
    """`prioritized`: by the chance to lose to them, squared; `even`: by the chance to lose times
    the chance to win; `capped`: by the chance to lose, which counts as 0.5 at most; `uniform`: all
    alike."""
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
    members_from: tuple[Reference, ...] = ()
    """Policies of other runs that play as fixed opponents, each `RUN:policy`, with a version or
    not, as of `policy.init_from`; with `+greedy` behind it one takes its best action each time
    instead of exploring as it did when its run ended. They take seats as frozen copies do, in
    their share (`population.snapshots.share`), and need the network of a policy that may sit
    there."""
    births: BirthsConfig = BirthsConfig()
    """Births and retirements."""
    evolution: EvolutionConfig = EvolutionConfig()
    """Policies that take over from better ones, with other hyperparameters."""
    director: str = ""
    """Your own, as `module:Class`, which commands who is frozen, is born and retires, besides what
    `snapshots` and `births` do."""
    scripted: dict[str, str] = {}
    """Members that are written by hand and never learn, by the name that each gets: `random`, one
    of the game's own (`remuda games GAME`), or yours as `module:callable`, or as `module:Class`,
    made with nothing. They take seats as frozen copies do, in their share
    (`population.snapshots.share`): all, or those of `population.seats`."""

    @property
    def keeps_copies(self) -> bool:
        """Whether frozen copies are kept of what policies were."""
        return self.snapshots.on or self.matchmaker == "league"

    @property
    def has_births(self) -> bool:
        """Whether policies may begin while the run goes on."""
        births = self.births.places > 0 or self.births.every is not None or self.evolution.on
        return births or bool(self.director) or self.matchmaker == "league"

    @property
    def has_stand_ins(self) -> bool:
        """Whether a copy of a policy may play while another is born in its place."""
        return self.evolution.on or self.matchmaker == "league"

    @property
    def has_frozen(self) -> bool:
        """Whether members that do not learn may take seats."""
        return self.keeps_copies or bool(self.members_from) or bool(self.scripted)

    def deals(self, *matchmakers: str) -> bool:
        """Whether one of these deals matches, alone or as a part of `mixed`."""
        if self.matchmaker != "mixed":
            return self.matchmaker in matchmakers
        shares = (self.shares, *self.policy_shares.values())
        return any(share.get(name) for share in shares for name in matchmakers)

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
