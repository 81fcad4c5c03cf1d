"""The recipe of a learner process: the policies it trains, and where they live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.experience.ring import ExperienceRing
from remuda.memory.waiting import Wakeup
from remuda.policies.spec import PolicySpec
from remuda.publish.snapshot import PublishedWeights
from remuda.scoreboard import Scoreboard
from remuda.streams import stream, torch_stream
from remuda.timeline import Timeline

if TYPE_CHECKING:
    from remuda.learner.group import LearnerGroup
    from remuda.learner.learner import Learner


@dataclass(frozen=True)
class LearnerRole:
    """Builds the learners that share a process, each from its policy's published weights.

    The random streams are named by the update at which a learner begins.
    """

    seed: int
    specs: tuple[PolicySpec, ...]
    devices: tuple[str, ...]
    """By policy, in the order of `specs`."""
    rings: Mapping[str, ExperienceRing]
    published: PublishedWeights
    scoreboard: Scoreboard
    wakeup: Wakeup
    timeline: Timeline | None = None
    saves_replay: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """A part for each policy."""
        return tuple(spec.name for spec in self.specs)

    @property
    def name(self) -> str:
        """Named after its policies: `learner-agent_0`, or `learner-agent_0..agent_6`."""
        first, last = self.specs[0].name, self.specs[-1].name
        return f"learner-{first}" if first == last else f"learner-{first}..{last}"

    def build(self) -> LearnerGroup:
        """Make the learners."""
        from remuda.learner.group import LearnerGroup

        learners = [
            self._learner(spec, device)
            for spec, device in zip(self.specs, self.devices, strict=True)
        ]
        return LearnerGroup(learners, self.wakeup)

    def _learner(self, spec: PolicySpec, device: str) -> Learner:
        import torch

        from remuda.experience.replay import Replay
        from remuda.learner.learner import Learner
        from remuda.policies.stack import layout_checksum
        from remuda.publish.snapshot import Publisher, SnapshotReader

        published = SnapshotReader(self.published).newer()[spec.name]
        step = published.learner_step
        algorithm = spec.algorithm([torch_stream(self.seed, "learner", spec.name, step)], device)
        algorithm.load(0, torch.from_numpy(published.weights))
        algorithm.updates = step
        replay = Replay(
            self.rings[spec.name],
            spec.config.batch_size,
            spec.config.n_steps,
            spec.config.discount,
            stream(self.seed, "replay", spec.name, step),
        )
        checksum = layout_checksum(algorithm.network.shapes)
        publisher = Publisher(self.published, spec.name, checksum)
        return Learner(
            spec.name,
            spec.config,
            algorithm,
            replay,
            publisher,
            self.scoreboard.learn(spec.name),
            self.timeline,
            self.saves_replay,
        )
