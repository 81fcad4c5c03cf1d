"""The recipe of a learner process: the policies it trains, and where they live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.experience.experience import Experience
from remuda.memory.waiting import Wakeup
from remuda.policies.spec import PolicySpec
from remuda.publish.snapshot import PublishedWeights, Snapshot
from remuda.scoreboard import Scoreboard
from remuda.streams import stream, torch_stream
from remuda.timeline import Timeline

if TYPE_CHECKING:
    from remuda.learner.group import LearnerGroup
    from remuda.learner.learner import Learner, Student
    from remuda.policies.algorithms.algorithm import Algorithm


@dataclass(frozen=True)
class LearnerRole:
    """Builds the learners that share a process, each from its policy's published weights.

    The random streams are named by the update at which a learner begins.
    """

    seed: int
    specs: tuple[PolicySpec, ...]
    devices: tuple[str, ...]
    """By policy, in the order of `specs`."""
    experience: Mapping[str, Experience]
    published: PublishedWeights
    scoreboard: Scoreboard
    wakeup: Wakeup
    timeline: Timeline | None = None
    saves_experience: bool = False
    patience: float = 0.0
    """Seconds that a stack waits for the rest of its policies once some are ready."""

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
        """Make the learners: one for each on-policy stack, one for each other policy."""
        from remuda.learner.group import LearnerGroup

        learners: list[Learner] = []
        for specs, device in self._stacks():
            if specs[0].config.on_policy:
                learners.append(self._on_policy(specs, device))
            else:
                learners.append(self._off_policy(specs[0], device))
        return LearnerGroup(learners, self.wakeup, self.patience)

    def _stacks(self) -> list[tuple[tuple[PolicySpec, ...], str]]:
        """The policies that are trained together, with their device."""
        stacks: dict[object, tuple[list[PolicySpec], str]] = {}
        for spec, device in zip(self.specs, self.devices, strict=True):
            alone = not spec.config.on_policy
            key = spec.name if alone else (spec.specification, device)
            stacks.setdefault(key, ([], device))[0].append(spec)
        return [(tuple(specs), device) for specs, device in stacks.values()]

    def _off_policy(self, spec: PolicySpec, device: str) -> Learner:
        import torch

        from remuda.experience.replay import Replay
        from remuda.learner.off_policy import OffPolicyLearner

        published = self._newest(spec)
        step = published.learner_step
        streams = [torch_stream(self.seed, "learner", spec.name, step)]
        algorithm = spec.value_learner(streams, device)
        algorithm.load(0, torch.from_numpy(published.weights), step)
        replay = Replay(
            self.experience[spec.name],
            spec.config.batch_size,
            spec.config.n_steps,
            spec.config.discount,
            stream(self.seed, "replay", spec.name, step),
        )
        student = self._student(spec, algorithm, 0)
        return OffPolicyLearner(student, algorithm, replay, self.timeline, self.saves_experience)

    def _on_policy(self, specs: tuple[PolicySpec, ...], device: str) -> Learner:
        import torch

        from remuda.experience.rollouts import Rollouts
        from remuda.learner.on_policy import OnPolicyLearner
        from remuda.policies.spec import ppo

        published = [self._newest(spec) for spec in specs]
        streams = [
            stream(self.seed, "learner", spec.name, snapshot.learner_step)
            for spec, snapshot in zip(specs, published, strict=True)
        ]
        algorithm = ppo(specs, streams, device)
        for k, snapshot in enumerate(published):
            algorithm.load(k, torch.from_numpy(snapshot.weights), snapshot.learner_step)
        students = [self._student(spec, algorithm, k) for k, spec in enumerate(specs)]
        rollouts = [
            Rollouts(self.experience[spec.name], spec.config.ppo.max_staleness) for spec in specs
        ]
        return OnPolicyLearner(students, algorithm, rollouts, self.timeline, self.saves_experience)

    def _newest(self, spec: PolicySpec) -> Snapshot:
        from remuda.publish.snapshot import SnapshotReader

        return SnapshotReader(self.published).newer()[spec.name]

    def _student(self, spec: PolicySpec, algorithm: Algorithm, index: int) -> Student:
        from remuda.learner.learner import Student
        from remuda.policies.stack import layout_checksum
        from remuda.publish.snapshot import Publisher

        publisher = Publisher(self.published, spec.name, layout_checksum(algorithm.online.shapes))
        row = self.scoreboard.learn(spec.name)
        return Student(spec.name, spec.config, algorithm, index, publisher, row)
