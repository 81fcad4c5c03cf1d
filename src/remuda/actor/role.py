"""The recipe of the actor: what crosses to the process that plays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.config import Config
from remuda.envs.registry import make_env
from remuda.experience.ring import ExperienceRing
from remuda.policies.spec import PolicySpec
from remuda.publish.snapshot import PublishedWeights
from remuda.scoreboard import Play, Scoreboard
from remuda.streams import stream, torch_stream
from remuda.timeline import Timeline

if TYPE_CHECKING:
    from remuda.actor.actor import Actor, Seat
    from remuda.envs.vector_env import VectorEnv


@dataclass(frozen=True)
class ActorRole:
    """Builds the actor of a run: the game, a seat per agent, and where everything goes."""

    config: Config
    specs: tuple[PolicySpec, ...]
    rings: Mapping[str, ExperienceRing]
    published: PublishedWeights
    scoreboard: Scoreboard
    timeline: Timeline | None = None

    @property
    def name(self) -> str:
        """There is one actor."""
        return "actor"

    @property
    def parts(self) -> tuple[str, ...]:
        """The world as it is, where the schedule keeps everything at one moment."""
        return (self.name,) if self.config.exact else ()

    def build(self) -> Actor:
        """Make the game and its seats.

        The random streams are named by the turn at which this actor begins, so that the successor
        of one that died plays other episodes.
        """
        from remuda.actor.actor import Actor
        from remuda.experience.writer import ExperienceWriter
        from remuda.publish.snapshot import SnapshotReader

        config = self.config
        turn = int(self.scoreboard.play[Play.TURNS])
        env = make_env(config.game, config.env.num_envs, **config.env.options)
        seats = make_seats(
            env,
            self.specs,
            self.scoreboard,
            seed=config.seed,
            purpose=f"actor from turn {turn}",
            device=config.actor.device,
        )
        for seat in seats:
            seat.writer = ExperienceWriter(self.rings[seat.policy])
            if not self.parts:
                seat.writer.close_orphans()
        return Actor(
            env,
            seats,
            self.scoreboard.play,
            stream(config.seed, "env", turn),
            SnapshotReader(self.published),
            config.run.turns,
            self.parts,
            self.timeline,
            config.env.observe_together,
        )


def make_seats(
    env: VectorEnv,
    specs: tuple[PolicySpec, ...],
    scoreboard: Scoreboard,
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
        scoreboard: where each seat counts.
        seed: of the run.
        purpose: part of the name of each seat's random stream.
        device: of the networks.
        noisy: whether noisy layers explore; without, they act on their means.
    """
    from remuda.actor.actor import Seat
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
                row=scoreboard.policy(spec.name),
            )
        )
    return seats
