"""The recipe of an actor: what crosses to a process that plays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.config import Config
from remuda.envs.registry import find_game, make_env
from remuda.envs.wrapped import SharedRewards, with_scripted
from remuda.experience.experience import Experience
from remuda.policies.spec import PolicySpec
from remuda.publish.snapshot import PublishedWeights
from remuda.scoreboard import Play, Scoreboard
from remuda.streams import stream, torch_stream
from remuda.timeline import Timeline

if TYPE_CHECKING:
    from remuda.actor.actor import Actor
    from remuda.actor.fixed import Seat
    from remuda.envs.vector_env import VectorEnv


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
    timeline: Timeline | None = None

    @property
    def name(self) -> str:
        """`actor`; with several, `actor-0`, `actor-1`, and so on."""
        return "actor" if len(self.copies) == 1 else f"actor-{self.index}"

    @property
    def parts(self) -> tuple[str, ...]:
        """The world as it is, where the schedule keeps everything at one moment."""
        return (self.name,) if self.config.exact else ()

    def build(self) -> Actor:
        """Make the game and its seats.

        The random streams are named by the actor, and by the turn at which it begins, so that the
        successor of one that died plays other episodes.
        """
        from remuda.actor.actor import Actor
        from remuda.actor.fixed import FixedSeats
        from remuda.experience.writer import ExperienceWriter
        from remuda.publish.snapshot import SnapshotReader

        config, play = self.config, self.scoreboard.play(self.index)
        begins = f"{self.name} from turn {int(play[Play.TURNS])}"
        env = with_scripted(
            find_game(config.game),
            self._environment(self.copies[self.index]),
            config.env.scripted,
            stream(config.seed, "scripted", begins),
        )
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
            seat.writer = ExperienceWriter(self.experience[seat.policy], self.index)
            if not self.parts:
                seat.writer.close_orphans()
        return Actor(
            env,
            FixedSeats(env, seats, config.env.observe_together),
            play,
            stream(config.seed, "env", begins),
            SnapshotReader(self.published),
            config.run.turns,
            self.scoreboard.turns,
            self.parts,
            self.timeline,
            self.scoreboard.facts(self.index) if self.scoreboard.fact_names else None,
        )

    def _environment(self, copies: int) -> VectorEnv:
        env = self.config.env
        game: VectorEnv
        if env.workers == 1:
            game = make_env(self.config.game, copies, **env.options)
        else:
            from remuda.envs.workers import WorkerEnvs

            game = WorkerEnvs(self.config.game, copies, env.workers, **env.options)
        return SharedRewards(game, env.share_rewards) if env.share_rewards else game


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

    def layout(spec: PolicySpec) -> tuple[object, ...]:
        network = spec.network()
        return (type(network), tuple(network.shapes.items()), network.config)

    stacks: dict[tuple[object, ...], tuple[ActingStack, list[str]]] = {}
    for spec in specs:
        if layout(spec) not in stacks:
            names = [other.name for other in specs if layout(other) == layout(spec)]
            noise = [
                torch_stream(seed, purpose, "noise", name)
                if noisy and spec.config.network.noisy
                else None
                for name in names
            ]
            acting = ActingStack(spec.network(), noise, env.num_envs, device)
            stacks[layout(spec)] = (acting, names)
    seats = []
    for spec in specs:
        stack, names = stacks[layout(spec)]
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
