"""The recipe of an actor: what crosses to a process that plays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remuda.config import Config
from remuda.envs.registry import Game, find_game
from remuda.envs.worker_status import WorkerStatus
from remuda.envs.wrapped import SharedRewards, with_scripted
from remuda.experience.experience import Experience
from remuda.policies.initial import InitialWeights
from remuda.policies.spec import PolicySpec, kinds_of
from remuda.population.setup import seats_of, sits_once, teams_of
from remuda.population.table import Table
from remuda.publish.snapshot import PublishedWeights
from remuda.scoreboard import Play, Scoreboard
from remuda.streams import stream, torch_stream
from remuda.timeline import Timeline

if TYPE_CHECKING:
    from remuda.actor.actor import Actor
    from remuda.actor.fixed import Seat
    from remuda.actor.policy_group import PolicyGroup
    from remuda.actor.seats import Seats
    from remuda.envs.vector_env import VectorEnv
    from remuda.population.league import League


@dataclass(frozen=True)
class ActorRole:
    """Builds an actor of a run: the game, a seat per agent, and where everything goes."""

    config: Config
    specs: tuple[PolicySpec, ...]
    experience: Mapping[str, Experience]
    published: PublishedWeights
    scoreboard: Scoreboard
    copies: tuple[int, ...]
    """Copies of the game that each actor plays."""
    index: int = 0
    """Which of the actors this is."""
    table: Table | None = None
    """Of the population, where seats are dealt."""
    timeline: Timeline | None = None
    workers: WorkerStatus | None = None
    """Where its supervisor sees what the processes that step its copies do; None: nowhere."""
    initial: InitialWeights | None = None
    """What policies that are born without a parent begin with, where it is not random."""
    game: Game = field(init=False)
    """What is played, with its code where no process can import it."""

    def __post_init__(self) -> None:
        """Find the game in the process that knows it."""
        object.__setattr__(self, "game", find_game(self.config.game))

    @property
    def name(self) -> str:
        """`actor`; with several, `actor-0`, `actor-1`, and so on."""
        return "actor" if len(self.copies) == 1 else f"actor-{self.index}"

    @property
    def parts(self) -> tuple[str, ...]:
        """The world as it is, where the schedule keeps everything at one moment; and the league."""
        return (self.name,) if self.config.exact or self.table is not None else ()

    def build(self) -> Actor:
        """Make the game and its seats.

        The random streams are named by the actor, and by the turn at which it begins, so that the
        successor of one that died plays other episodes.
        """
        from remuda.actor.actor import Actor
        from remuda.publish.snapshot import SnapshotReader

        config, play = self.config, self.scoreboard.play(self.index)
        begins = f"{self.name} from turn {int(play[Play.TURNS])}"
        env = with_scripted(
            self.game,
            self._environment(self.copies[self.index]),
            config.env.scripted,
            stream(config.seed, "scripted", begins),
        )
        seats = self._dealt(env, begins) if self.table is not None else self._fixed(env, begins)
        return Actor(
            env,
            seats,
            play,
            stream(config.seed, "env", begins),
            SnapshotReader(self.published),
            config.run.turns,
            self.scoreboard.turns,
            self.parts,
            self.timeline,
            self.scoreboard.facts(self.index) if self.scoreboard.fact_names else None,
            exact=config.exact,
            check=config.env.check,
        )

    def let_go(self) -> None:
        """Nothing: learners sleep until there is something to train on."""

    def _fixed(self, env: VectorEnv, begins: str) -> Seats:
        from remuda.actor.fixed import FixedSeats
        from remuda.experience.writer import ExperienceWriter

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
                continue  # what it does is not what its policy chose
            seat.writer = ExperienceWriter(
                self.experience[seat.policy], self.index, len(env.agents)
            )
        return FixedSeats(env, seats, config.env.observe_together, self.scoreboard.mark)

    def _dealt(self, env: VectorEnv, begins: str) -> Seats:
        from remuda.actor.match_seats import MatchSeats
        from remuda.population.league import League
        from remuda.population.setup import make_director, make_matchmaker

        config = self.config
        assert self.table is not None
        names = [spec.name for spec in self.specs]
        league = League(
            self.table,
            make_matchmaker(config, env.agents, names),
            make_director(config.population),
            stream(config.seed, "matches", begins),
            env.num_envs,
            self._seats(env, names),
            teams_of(config.population, env.agents),
            sits_once(config, env.agents, names),
            [agent.name for agent in env.agents],
        )
        casts = make_casts(
            env,
            self.specs,
            league,
            self.experience,
            seed=config.seed,
            purpose=begins,
            device=config.actor.device,
        )
        rows = self.scoreboard.policies_of(self.index)
        together, mark = config.env.observe_together, self.scoreboard.mark
        return MatchSeats(
            env, casts, league, rows, together, config.seed, mark, initial=self.initial
        )

    def _seats(self, env: VectorEnv, names: Sequence[str]) -> dict[str, frozenset[int]]:
        """By name, the seats that a member may take, where it may not take all."""
        assert self.table is not None
        found = seats_of(self.config, env.agents, names)
        imported = {o.name: found[o.like] for o in self.table.origins if o.like in found}
        return {**found, **imported}

    def _environment(self, copies: int) -> VectorEnv:
        env = self.config.env
        game: VectorEnv
        first = sum(self.copies[: self.index])
        if env.workers == 1:
            game = self.game.make(copies, **env.options)
            game.check, game.first_copy = env.check, first
        else:
            from remuda.envs.workers import WorkerEnvs

            game = WorkerEnvs(
                self.game,
                copies,
                env.workers,
                check=env.check,
                first_copy=first,
                status=self.workers,
                **env.options,
            )
        if not env.share_rewards:
            return game
        return SharedRewards(game, env.share_rewards, teams_of(self.config.population, game.agents))


def make_casts(
    env: VectorEnv,
    specs: tuple[PolicySpec, ...],
    league: League,
    experience: Mapping[str, Experience],
    *,
    seed: int,
    purpose: str,
    device: str = "cpu",
    noisy: bool = True,
) -> list[PolicyGroup]:
    """Everybody who may sit at a game: policies with equal networks and seats in one stack.

    Args:
        env: the copies that are played.
        specs: the live policies.
        league: who deals the seats.
        experience: by policy, where it goes; empty: no policy learns.
        seed: of the run.
        purpose: part of the names of the random streams.
        device: of the networks.
        noisy: whether noisy layers explore; without, they act on their means.
    """
    from remuda.actor.batch_plan import STEP
    from remuda.actor.policy_group import Kind, PolicyGroup
    from remuda.experience.writer import BlockWriter
    from remuda.policies.acting import ActingStack

    table, alike = league.table, kinds_of(env.agents)
    kinds: dict[tuple[int, ...], Kind] = {}
    together: dict[tuple[Any, ...], list[int]] = {}
    for number, spec in enumerate(specs):
        kind_of = alike[seats_for(league, number)[0]]
        agents = tuple(agent for agent, kind in enumerate(alike) if kind == kind_of)
        if agents not in kinds:
            kinds[agents] = Kind(env, agents, spec)
        key = (agents, network_layout(spec), spec.config.entry.samples)
        together.setdefault(key, []).append(number)
    casts = []
    for (agents, *_), numbers in together.items():
        kind, live = kinds[agents], [specs[number] for number in numbers]
        # By place in the population, in order: whose network stands there.
        owners = sorted(
            [(number, specs[number]) for number in numbers]
            + [(place, spec) for spec in live for place in table.places_of(spec.name)]
            + [
                (place, spec)
                for place, origin in zip(table.imported_places, table.origins, strict=True)
                for spec in live
                if spec.name == origin.like
            ],
            key=lambda owner: owner[0],
        )
        places = [place for place, _ in owners]
        noise = [
            torch_stream(seed, purpose, "noise", spec.name, place)
            if noisy and spec.config.network.noisy
            else None
            for place, spec in owners
        ]
        width = -(-len(kind.seen_flat) // STEP) * STEP
        stack = ActingStack(live[0].network(), noise, width, device, gathered=True)
        blocks: dict[int, list[tuple[Experience, int]]] = {}
        for number, spec in zip(numbers, live, strict=True):
            if spec.name in experience:
                found = experience[spec.name]
                blocks.setdefault(id(found.block), []).append((found, places.index(number)))
        writers = [BlockWriter(block) for block in blocks.values()]
        random = stream(seed, purpose, "dealt", live[0].name)
        casts.append(PolicyGroup(kind, live, places, stack, writers, random, len(table.numbers)))
    return casts


def seats_for(league: League, number: int) -> list[int]:
    """The seats that a live policy may take."""
    allowed = league.seats.get(league.table.policies[number])
    return [seat for seat in range(league.table.seats) if allowed is None or seat in allowed]


def network_layout(spec: PolicySpec) -> tuple[object, ...]:
    """What networks must have in common to act as one stack."""
    network = spec.network()
    return (type(network), tuple(network.shapes.items()), network.config.model_dump_json())


def make_seats(
    env: VectorEnv,
    specs: tuple[PolicySpec, ...],
    scoreboard: Scoreboard,
    actor: int = 0,
    *,
    seed: int,
    purpose: str,
    device: str = "cpu",
    noisy: bool = True,
) -> list[Seat]:
    """A seat for each agent, policies with equal networks in one stack.

    Args:
        env: the copies that are played.
        specs: the policies, in the order of the agents.
        scoreboard: where each seat counts...
        actor: ...in the rows of this actor.
        seed: of the run.
        purpose: part of the name of each seat's random stream.
        device: of the networks.
        noisy: whether noisy layers explore; without, they act on their means.
    """
    from remuda.actor.fixed import Seat
    from remuda.actor.frames import FrameStack
    from remuda.policies.acting import ActingStack

    stacks: dict[tuple[object, ...], tuple[ActingStack, list[str]]] = {}
    for spec in specs:
        if network_layout(spec) not in stacks:
            names = [other.name for other in specs if network_layout(other) == network_layout(spec)]
            noise = [
                torch_stream(seed, purpose, "noise", name)
                if noisy and spec.config.network.noisy
                else None
                for name in names
            ]
            acting = ActingStack(spec.network(), noise, env.num_envs, device)
            stacks[network_layout(spec)] = (acting, names)
    seats = []
    for spec in specs:
        stack, names = stacks[network_layout(spec)]
        index = names.index(spec.name)
        seats.append(
            Seat(
                policy=spec.name,
                stack=stack,
                index=index,
                frames=FrameStack(stack.inputs[index], spec.observation_size),
                rule=spec.rule(),
                masked=spec.masked,
                random=stream(seed, purpose, spec.name),
                row=scoreboard.policy(spec.name, actor),
            )
        )
    return seats
