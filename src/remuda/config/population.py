"""The configuration of a population: its policies and its matchmaking."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)

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


def _check_direction(sharing: Any) -> Any:
    """Refuse a mapping from policies to lists of agents."""
    for name, agents in sharing.items() if isinstance(sharing, dict) else ():
        if isinstance(agents, list | tuple) and agents:
            raise ValueError(
                f"{name} is {agents!r}; the keys are agents or patterns, and the values are names "
                f"of policies, as in {{{agents[0]!r}: {name!r}}}"
            )
    return sharing


FEW = at_most(10_000, "since each needs a learner and memory for its experience")
"""The most policies: each needs a name, a learner and memory."""
DEALT = Only(
    when=lambda config: config.population.dealt,
    needs="a population: population.policies, or a population.matchmaker other than fixed",
)
BIRTHS = Only(needs="population.births.every")
SLOTS = Only(needs="population.births.every or population.director")
SNAPSHOTS = Only(
    when=lambda config: config.population.keeps_copies,
    needs="population.snapshots.every, population.snapshots.win_rate, population.director or "
    "population.matchmaker league",
)
MIXED = Only(needs="population.matchmaker mixed")
PRIORITIZED = Only(
    when=lambda config: config.population.deals("prioritized"),
    needs="population.matchmaker prioritized, or a share of it in population.shares",
)


class TeamConfig(Section):
    """A team of a population."""

    policies: tuple[Reference, ...]
    """The policies that play for the team. Those named in `population.scripted` or
    `population.members_from` never learn, and take seats like frozen copies (see
    `population.snapshots.share`); they play for no other team."""
    agents: tuple[str, ...] = ()
    """The agents whose seats belong to the team. Empty: the agents that the environment assigns to
    a team of this name."""


class SnapshotsConfig(Section):
    """Frozen copies of earlier policies, which play but do not learn."""

    every: Count | None = None
    """Versions between two frozen copies of a policy. None: no copies by versions."""
    win_rate: Annotated[
        Share | None,
        Only(
            when=lambda config: config.population.matchmaker != "fixed",
            needs="a population.matchmaker other than fixed",
        ),
    ] = None
    """Copy a policy once it wins this share of its matches against its copies, a draw counting
    half. None: no copies by win rate."""
    games: Annotated[
        Count,
        Only(
            when=lambda config: config.population.snapshots.win_rate is not None,
            needs="population.snapshots.win_rate",
        ),
    ] = 100
    """Matches of a policy against its copies before `win_rate` applies."""
    keep: Annotated[Size, SNAPSHOTS] = 10
    """Maximum frozen copies of a policy that play at a time."""
    share: Annotated[
        Share | None,
        Only(
            when=lambda config: (
                config.population.has_frozen
                and config.population.matchmaker not in ("fixed", "league")
            ),
            needs="population.snapshots.every, population.snapshots.win_rate, "
            "population.director, population.members_from or population.scripted, and a "
            "population.matchmaker other than fixed and league",
        ),
    ] = None
    """The share of seats that frozen copies take in a match, apart from one seat, which a live
    policy always takes. None: 0.5, or with `self_play` 1 - `population.newest`."""
    drop: Annotated[Literal["oldest", "weakest", "crowded"], SNAPSHOTS] = "oldest"
    """The copy that is dropped for a new one: the `oldest`, the `weakest` by rating, or the most
    `crowded`, whose neighbours in time are closest, so that the other copies span the whole past.
    """

    @property
    def on(self) -> bool:
        return self.every is not None or self.win_rate is not None


class BirthsConfig(Section):
    """Policies that are born and retire during the run."""

    slots: Annotated[NonNegativeInt, FEW, SLOTS] = 0
    """Slots for policies born later, `born_0`, `born_1` and so on. Each has a learner, idle while
    the slot is empty, and memory for experience. A retired policy also leaves its slot empty."""
    every: Annotated[Count | None, Only(needs="population.births.slots")] = None
    """Matches between two births: a copy of the highest-rated policy starts in an empty slot, and
    the lowest-rated policy retires once the newborn plays. Only policies that may take every seat
    are considered. None: only your own director orders births."""
    games: Annotated[CountOrNone, BIRTHS] = 200
    """Games that a policy must have played to be considered."""
    confidence: Annotated[float, Field(ge=0.0, lt=1.0), BIRTHS] = 0.95
    """Required probability, from the ratings, that the highest-rated policy is better than the
    lowest-rated one. It is corrected for the number of policies, and tested every `every` matches.
    """


class LeagueConfig(Section):
    """Main agents, and exploiters that search for their weaknesses.

    Vinyals et al. 2019, "Grandmaster level in StarCraft II using multi-agent reinforcement
    learning".
    """

    main: Annotated[PositiveInt, FEW] | tuple[str, ...] = 1
    """The number of main agents, `main_0` and so on, or their names. They are never reset."""
    main_exploiters: Annotated[NonNegativeInt, FEW] | tuple[str, ...] = 1
    """The number of exploiters that play only against the main agents, `main_exploiter_0` and so
    on, or their names. They are reset whenever they are copied."""
    league_exploiters: Annotated[NonNegativeInt, FEW] | tuple[str, ...] = 1
    """The number of exploiters that play against all frozen copies of the league,
    `league_exploiter_0` and so on, or their names."""
    self_play: Share = 0.5
    """The share of a main agent's matches against current main agents."""
    prioritized: Share = 0.35
    """The share of a main agent's matches against frozen copies of the whole league, weighted by
    the squared probability of losing to them (PFSP)."""
    verification: Share = 0.15
    """The share of a main agent's matches against copies of main exploiters and of main agents that
    it has started to lose to; if there are none, self-play. The three shares add up to 1."""
    main_share: Share | None = None
    """The share of all matches that are arranged for main agents, which take turns; exploiters take
    turns in the rest. If all slots of one group are empty, the other gets all matches. None: all
    learners take turns equally."""
    learn_from: Literal["all", "own"] = "all"
    """Policies of the league learn from `all` matches that they play, or only from their `own`,
    those arranged for them, as in the paper. With `own`, a main agent learns from an exploiter only
    once the exploiter is copied."""
    after: Count = 20
    """Minimum versions between two copies caused by wins."""
    timeout: Count = 80
    """Versions after which a policy is copied regardless of wins."""
    win_rate: Share = 0.7
    """Copy a policy once it wins more than this share of its matches against each relevant
    opponent, a draw counting half: current main agents for a main exploiter, all frozen copies for
    the others."""
    games: CountOrNone = 100
    """Matches against all these opponents together before `win_rate` applies."""
    reset: Annotated[
        Share, Only(needs="population.matchmaker league, and population.league.league_exploiters")
    ] = 0.25
    """Probability that a league exploiter is reset when it is copied."""

    @property
    def roles(self) -> dict[str, tuple[str, ...]]:
        """The policies of each role (`main`, `main_exploiter`, `league_exploiter`)."""
        members = {
            "main": self.main,
            "main_exploiter": self.main_exploiters,
            "league_exploiter": self.league_exploiters,
        }
        return {
            role: tuple(f"{role}_{i}" for i in range(found)) if isinstance(found, int) else found
            for role, found in members.items()
        }

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of all policies, the main agents first."""
        return tuple(name for names in self.roles.values() for name in names)


class PopulationConfig(Section):
    """The policies and their opponents. By default each agent has its own policy."""

    matchmaker: str = "fixed"
    """`fixed`: each policy always plays the same seats. `random`: all seatings are equally likely.
    `round_robin`: every combination on every seat, in turn. `fitness`: opponents of similar rating.
    `self_play`: against itself and its frozen copies. `prioritized`: against opponents that it
    loses to (PFSP). `teams`: the policies of one team against another's. `mixed`: several of these,
    by `population.shares`. `league`: main agents and exploiters, by `population.league`. Or your
    own, as `module:Class`."""
    policies: Annotated[PositiveInt, FEW] | tuple[str, ...] | None = None
    """The number of policies, or their names. None: one for each agent, named after it; with
    `self_play` or `mixed`: one; `league` defines its own. With `fixed`, they are assigned to the
    agents in turn; with 1 policy, all agents share it. See `sharing` to choose by agent."""
    sharing: Annotated[dict[str, str], BeforeValidator(_check_direction)] = {}
    """Parameter sharing on fixed seats: the policy of each agent, by its name or a pattern, as in
    `{"hunter_*": hunters}`. The first match decides; other agents have their own policies. Agents
    that share a policy need equal spaces. Returns are reported by agent, and there are no ratings.
    """
    seats: Annotated[
        dict[str, tuple[str, ...]],
        Only(
            when=lambda config: config.population.dealt,
            needs="population.policies or another population.matchmaker",
        ),
    ] = {}
    """For a policy, the agents whose seats it may take, if not all. A matchmaker that assigns the
    policy to other seats, such as `fixed`, is refused."""
    teams: dict[str, TeamConfig] = {}
    """Teams: their `policies`, and the `agents` whose seats belong to them."""
    shares: Annotated[dict[str, Share], MIXED] = {}
    """`mixed`: the share of a policy's matches arranged by each matchmaker: `self_play`,
    `prioritized`, `random` and `verification`, adding up to 1."""
    policy_shares: Annotated[dict[str, dict[str, Share]], MIXED] = {}
    """`mixed`: overrides of `shares` for single policies."""
    league: Annotated[LeagueConfig, Only(needs="population.matchmaker league")] = LeagueConfig()
    """Members of a league, and when they are copied."""
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
    """Half-life of results, in matches of a policy, in the win rates that select its opponents.
    Recent results then count more. None: all results count the same."""
    newest: Annotated[
        Share,
        Only(
            when=lambda config: (
                config.population.deals("self_play")
                and config.population.has_frozen
                and config.population.snapshots.share is None
            ),
            needs="population.matchmaker self_play, or a share of it in population.shares, one of "
            "population.snapshots.every, population.snapshots.win_rate, population.director, "
            "population.members_from and population.scripted, and population.snapshots.share None",
        ),
    ] = 0.5
    """`self_play`: the share of opponent seats for the live weights; frozen copies take the rest,
    unless `population.snapshots.share` is set."""
    window: Annotated[Count, Only(needs="population.matchmaker fitness")] = 4
    """`fitness`: the number of policies with the nearest ratings that a policy may meet, and as
    many frozen ones. It also meets all whose ratings do not differ significantly from its own."""
    weighting: Annotated[Literal["hard", "even", "capped", "uniform"], PRIORITIZED] = "hard"
    """`hard`: weight opponents by the squared probability of losing to them; `even`: by the
    probability of losing times that of winning; `capped`: by the probability of losing, at most
    0.5; `uniform`: equally."""
    options: Annotated[
        Options,
        Only(
            when=lambda config: ":" in config.population.matchmaker,
            needs="your own population.matchmaker, as module:Class",
        ),
    ] = {}
    """Parameters of a custom matchmaker."""
    snapshots: SnapshotsConfig = SnapshotsConfig()
    """Frozen copies."""
    members_from: tuple[Reference, ...] = ()
    """Policies of other runs that play as fixed opponents, each as `RUN:policy` with an optional
    version, as in `policy.init_from`. They explore as at the end of their run; append `+greedy` for
    greedy actions. They take seats like frozen copies (see `population.snapshots.share`), and need
    the same network as a policy that may take these seats."""
    births: BirthsConfig = BirthsConfig()
    """Births and retirements."""
    evolution: EvolutionConfig = EvolutionConfig()
    """Replacement of weak policies by better ones, with new hyperparameters (PBT)."""
    director: str = ""
    """Your own director, as `module:Class`, which orders copies, births and retirements in addition
    to `snapshots` and `births`."""
    scripted: dict[str, str] = {}
    """Hand-written members that never learn: `random`, one that `remuda games GAME` lists, or your
    own as `module:callable`, or as `module:Class`, called without arguments. They take seats like
    frozen copies (see `population.snapshots.share`), on all seats or those in `population.seats`.
    """

    @property
    def learning_in_teams(self) -> tuple[str, ...]:
        """The policies of the teams that learn: neither scripted nor of another run."""
        fixed = {*self.scripted, *self.members_from}
        return tuple(n for team in self.teams.values() for n in team.policies if n not in fixed)

    def team_of(self, member: str) -> str:
        """Return the team that lists a member; empty: none."""
        return next((team for team, own in self.teams.items() if member in own.policies), "")

    @property
    def keeps_copies(self) -> bool:
        return self.snapshots.on or self.matchmaker == "league" or bool(self.director)

    @property
    def has_births(self) -> bool:
        births = self.births.slots > 0 or self.births.every is not None or self.evolution.on
        return births or bool(self.director) or self.matchmaker == "league"

    @property
    def has_stand_ins(self) -> bool:
        """Return whether a copy may play for a policy while another is born in its slot."""
        return self.evolution.on or self.matchmaker == "league"

    @property
    def has_frozen(self) -> bool:
        """Return whether members that do not learn may take seats."""
        return self.keeps_copies or bool(self.members_from) or bool(self.scripted)

    def deals(self, *matchmakers: str) -> bool:
        """Return whether one of these matchmakers is used, directly or within `mixed`."""
        if self.matchmaker != "mixed":
            return self.matchmaker in matchmakers
        shares = (self.shares, *self.policy_shares.values())
        return any(share.get(name) for share in shares for name in matchmakers)

    @property
    def dealt(self) -> bool:
        """Return whether a matchmaker assigns the seats of each match, instead of fixed seats."""
        return (
            self.matchmaker != "fixed"
            or bool(self.sharing)
            or self.policies is not None
            or self.has_frozen
            or bool(self.teams)
            or self.births.slots > 0
            or bool(self.director)
            or self.evolution.on
        )

    @property
    def rated(self) -> bool:
        """Return whether matches are recorded and rated; with `sharing` they never differ."""
        return self.dealt and not self.sharing


class AnalysisConfig(Section):
    """Analysis of a population during a run, from the results of its matches."""

    every: NonNegativeFloat | None = 60.0
    """Seconds between two analyses of the payoffs between members: equilibrium, support, diversity,
    cycles. A low-priority process computes them, and the run never waits for it. 0 or None: no
    analysis."""
    members: Annotated[
        int,
        Field(ge=2, le=512),
        Only(
            when=lambda config: config.population.rated and bool(config.analysis.every),
            needs="a population, and analysis.every",
        ),
    ] = 64
    """Maximum members in an analysis: learning policies first, then frozen copies, the newest of
    each policy in turn. Several roles take turns, and each has at least one member."""
