"""The actor's role: picklable data from which a process builds its actor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from remuda.config import Config
from remuda.config.hyperparameters import LiveHyperparameters
from remuda.envs.live_options import LiveEnvOptions
from remuda.envs.registry import CRITIC, PACKED, Game, find_game
from remuda.envs.workers.process import WorkerStatus
from remuda.experience.experience import Experience
from remuda.policies.initial import InitialWeights
from remuda.policies.spec import PolicySpec
from remuda.population.members.table import Table
from remuda.population.run_spec import RunSpec
from remuda.publish.weight_store import WeightStore
from remuda.system.rng import make_rng, seed_libraries
from remuda.system.scoreboard import Play, Scoreboard
from remuda.system.timeline import Timeline

if TYPE_CHECKING:
    from remuda.actor.actor import Actor
    from remuda.actor.scripted_seats import ScriptedSeats
    from remuda.actor.seats import Seats
    from remuda.envs.vector_env import VectorEnv
    from remuda.population.dealing.lead import Dealer


@dataclass(frozen=True)
class ActorRole:
    """The data from which a process builds an actor: its environment, seats and experience."""

    spec: RunSpec
    specs: tuple[PolicySpec, ...]
    experience: Mapping[str, Experience]
    published: WeightStore
    scoreboard: Scoreboard
    copies: tuple[int, ...]  # number of environment copies of each actor
    index: int = 0  # of this actor
    table: Table | None = None  # the population; None: seats are fixed
    timeline: Timeline | None = None
    # shows the supervisor the worker processes that step the copies
    workers: WorkerStatus | None = None
    changes: LiveHyperparameters | None = None  # hyperparameter changes; used by fixed seats
    options: LiveEnvOptions | None = None  # changes of the environment's options
    # initial weights of policies born without a parent, if not random
    initial: InitialWeights | None = None
    game: Game = field(init=False)  # with the environment's pickled code if it cannot be imported

    def __post_init__(self) -> None:
        object.__setattr__(self, "game", find_game(self.spec.env.game))

    @property
    def config(self) -> Config:
        return self.spec.config

    @property
    def name(self) -> str:
        return "actor" if len(self.copies) == 1 else f"actor-{self.index}"

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the actor's checkpoint parts; none if seats are fixed and the run is not exact.

        The first actor's part is always `actor`, so that a run may resume with another number of
        actors.
        """
        if not self.config.exact and self.table is None:
            return ()
        return (self.name,) if self.index else ("actor",)

    def build(self) -> Actor:
        """Build the environment and its seats.

        Random generators depend on actor and turn, so that a restarted actor plays other episodes.
        """
        from remuda.actor.actor import Actor

        config, play, begins = self.config, self.scoreboard.play(self.index), self._begins
        seed_libraries(config.seed, begins, "made")
        env = self.make_env()
        scripted = self._scripted(env, begins)
        seed_libraries(config.seed, begins)  # making the environment may have reseeded them
        make_seats = self._fixed if self.table is None else self._dealt
        seats = make_seats(env, begins, scripted)
        return Actor(
            env,
            seats,
            play,
            make_rng(config.seed, "env", begins),
            self.published.reader(),
            config.run.turns,
            self.scoreboard.turns,
            self.parts,
            self.timeline,
            self.scoreboard.episode_totals(self.index) if self.scoreboard.episode_metrics else None,
            exact=config.exact,
            check=config.env.check,
            on_note=partial(self.scoreboard.note, actor=self.index),
            options=self.options,
            reported=self.spec.reported_agents,
        )

    @property
    def _begins(self) -> str:
        return f"{self.name} from turn {int(self.scoreboard.play(self.index)[Play.TURNS])}"

    def on_process_death(self) -> None:
        """Do nothing: learners sleep until new steps arrive."""

    def _scripted(self, env: VectorEnv, begins: str) -> ScriptedSeats | None:
        from remuda.actor.scripted_seats import (
            ScriptedSeats,
            dealt_members,
            load_scripted,
            reserved_members,
        )

        config = self.config
        rng = make_rng(config.seed, "scripted", begins)
        members = reserved_members(self.game, env, config.env.scripted, rng)
        if self.table is not None:
            found = load_scripted(self.game, config.population.scripted, config.env.workers)
            purpose, slots = (begins, "scripted"), self.table.slots
            members += dealt_members(found, slots, env.num_agents, config.seed, purpose)
        return ScriptedSeats(env, members) if members else None

    def _fixed(self, env: VectorEnv, begins: str, scripted: ScriptedSeats | None) -> Seats:
        from remuda.actor.fixed_seats import FixedSeats
        from remuda.actor.make_seats import make_seats
        from remuda.actor.shared_rewards import FixedShares

        config = self.config
        seats = make_seats(
            env,
            self.specs,
            self.scoreboard,
            self.index,
            seed=config.seed,
            purpose=begins,
            device=config.actor.device,
        )
        for spec, seat in zip(env.agents, seats, strict=True):
            if spec.name in config.env.scripted:
                continue  # a scripted policy plays this agent
            seat.experience = self.experience[seat.policy]
        shares = FixedShares(
            [seat.policy for seat in seats],
            {spec.name: spec.config.share_rewards for spec in self.specs},
            self.changes,
        )
        return FixedSeats(env, seats, self.scoreboard.mark, shares, scripted)

    def _dealt(self, env: VectorEnv, begins: str, scripted: ScriptedSeats | None) -> Seats:
        from remuda.actor.make_seats import make_policy_groups
        from remuda.actor.match_seats import MatchSeats

        config = self.config
        assert self.table is not None
        league = self._league(env, begins)
        policy_groups = make_policy_groups(
            env,
            self.specs,
            league,
            self.experience,
            seed=config.seed,
            purpose=begins,
            device=config.actor.device,
            actor=self.index,
        )
        rows = self.scoreboard.policies_of(self.index)
        return MatchSeats(
            env,
            policy_groups,
            league,
            rows,
            config.seed,
            self.scoreboard.mark,
            initial=self.initial,
            scripted=scripted,
            parents=self.published.reader(),
        )

    def _league(self, env: VectorEnv, begins: str) -> Dealer:
        """Return this actor's dealer of seats; the first actor's also rates the results of all."""
        from remuda.population.dealing.follower import FollowingLeague
        from remuda.population.dealing.lead import League
        from remuda.population.setup import make_director, make_matchmaker, sits_once

        config, table = self.config, self.table
        assert table is not None
        roster = self.spec.roster
        matchmaker = make_matchmaker(config.population, roster)
        matches = make_rng(config.seed, "matches", begins)
        league_options = (
            env.num_envs,
            roster.with_imported(table.slots.origins),
            sits_once(config.population, roster),
            config.population.memory,
            [env.episode_metrics.index(n) for n in config.population.evolution.episode_metrics],
        )
        if self.index:
            return FollowingLeague(table, self.index, matchmaker, matches, *league_options)
        evolution = None
        if config.population.evolution.on:
            from remuda.population.evolution.setup import make_evolution

            evolution = make_evolution(config, self.specs, roster)
        director = make_director(
            config.population,
            [evolution] if evolution is not None else [],
            make_rng(config.seed, "director", begins),
        )
        return League(table, matchmaker, director, matches, *league_options)

    def make_env(self) -> VectorEnv:
        """Make this actor's copies of the environment, in this process or in worker processes."""
        env = self.config.env
        game: VectorEnv
        copies, first = self.copies[self.index], sum(self.copies[: self.index])
        options = dict(env.made_with)
        critics = [spec.critic for spec in self.specs if spec.critic is not None]
        if critics:
            options[CRITIC] = critics[0].kind
        if any(spec.packing is not None for spec in self.specs):
            options[PACKED] = True
        if env.workers == 1:
            game = self.game.make(copies, **options)
            game.check, game.first_copy = env.check, first
        else:
            from remuda.envs.workers.pool import WorkerEnvs

            game = WorkerEnvs(
                self.game,
                copies,
                env.workers,
                check=env.check,
                first_copy=first,
                status=self.workers,
                options=options,
                stream=(self.config.seed, self._begins),
            )
        return game
