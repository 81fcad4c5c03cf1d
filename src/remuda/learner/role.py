"""The picklable recipe of a learner process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from remuda.checkpoint.names import file_name
from remuda.experience.experience import Experience
from remuda.hyperparameters import with_values
from remuda.live_hyperparameters import LiveHyperparameters
from remuda.memory.waiting import Wakeup
from remuda.policies.initial import InitialWeights
from remuda.policies.spec import PolicySpec
from remuda.population.table import Table
from remuda.publish.snapshot import Snapshot
from remuda.publish.training_state import BEGUN
from remuda.publish.weight_store import WeightStore
from remuda.rng import make_rng, torch_rng
from remuda.scoreboard import Scoreboard
from remuda.timeline import Timeline

if TYPE_CHECKING:
    from remuda.experience.replay import Replay
    from remuda.learner.group import LearnerGroup
    from remuda.learner.learner import Learner, PolicyTrainer
    from remuda.learner.rehearsal import Rehearsal
    from remuda.policies.algorithms.algorithm import Algorithm
    from remuda.population.learner_births import LearnerBirths


@dataclass(frozen=True)
class LearnerRole:
    """Builds the learners that share a process, each from its policy's published weights.

    Random generators are named by the update at which a learner starts.
    """

    seed: int
    specs: tuple[PolicySpec, ...]
    devices: tuple[str, ...]  # by policy, in the order of `specs`
    experience: Mapping[str, Experience]  # of its policies, and of all that they share theirs with
    published: WeightStore
    scoreboard: Scoreboard
    wakeup: Wakeup
    timeline: Timeline | None = None
    saves_experience: bool = False
    # seconds that a stack waits for the rest of its policies once some are ready
    patience: float = 0.0
    exact: bool = False  # whether every step must be trained on
    table: Table | None = None  # of the population, where policies may be born during the run
    # by policy, the others whose experience it learns from too
    shares: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    initial: InitialWeights | None = None  # initial optimizer states
    changes: LiveHyperparameters | None = None  # changes of hyperparameters during the run

    @property
    def parts(self) -> tuple[str, ...]:
        """Return a checkpoint part for each policy."""
        return tuple(file_name(spec.name) for spec in self.specs)

    @property
    def name(self) -> str:
        """Return a name after its policies: `learner-agent_0`, or `learner-agent_0..agent_6`."""
        first, last = self.parts[0], self.parts[-1]
        return f"learner-{first}" if first == last else f"learner-{first}..{last}"

    def build(self) -> LearnerGroup:
        """Build the learners, with everything compiled that they will need."""
        from remuda.learner.rehearsal import rehearse
        from remuda.population.learner_births import LearnerBirths

        births = LearnerBirths(self.table, [spec.name for spec in self.specs])
        rehearse(
            self._stacks(births),
            lambda policy: self.experience[policy].block is not None,
            lambda rehearsal: self._in_small(rehearsal).group(),
        )
        return self.group()

    def _in_small(self, rehearsal: Rehearsal) -> LearnerRole:
        """Return this role with only what the warm-up needs."""
        names = [spec.name for spec in rehearsal.specs]
        return replace(
            self,
            specs=rehearsal.specs,
            devices=(rehearsal.device,) * len(names),
            experience=dict(zip(names, rehearsal.experience, strict=True)),
            published=rehearsal.published,
            scoreboard=rehearsal.scoreboard,
            wakeup=Wakeup(),
            timeline=None,
            saves_experience=False,
            patience=0.0,
            table=None,
            shares={},
            initial=None,
            changes=None,
        )

    def group(self) -> LearnerGroup:
        """Build the learners: one for each stack."""
        from remuda.learner.group import LearnerGroup
        from remuda.population.learner_births import LearnerBirths

        births = LearnerBirths(self.table, [spec.name for spec in self.specs])
        learners: list[Learner] = []
        for specs, device in self._stacks(births):
            make = self._by_rollouts if specs[0].config.rollout_length else self._by_replay
            learners.append(make(specs, device, births))
        return LearnerGroup(learners, self.wakeup, self.patience, births, self.changes)

    def on_process_death(self) -> None:
        """No learner is there to take experience: let actors write over it, and never wait.

        The words of a learner in its rings are its runtime's from its death to the start of its
        successor, which takes what comes from then on.
        """
        if not self.exact:
            for spec in self.specs:
                self.experience[spec.name].release()

    def _stacks(self, births: LearnerBirths) -> list[tuple[tuple[PolicySpec, ...], str]]:
        """Return the policies that are trained together, with their device.

        Each has the hyperparameters of the policy that has its place now.
        """
        stacks: dict[object, tuple[list[PolicySpec], str]] = {}
        for configured, device in zip(self.specs, self.devices, strict=True):
            config = with_values(configured.config, births.hyperparameters(configured.name))
            spec = replace(configured, config=config)
            stacks.setdefault((spec.specification, device), ([], device))[0].append(spec)
        return [(tuple(specs), device) for specs, device in stacks.values()]

    def _by_replay(
        self, specs: tuple[PolicySpec, ...], device: str, births: LearnerBirths
    ) -> Learner:
        from remuda.learner.replay import ReplayLearner
        from remuda.policies.spec import make_algorithm

        published = [self._newest(spec) for spec in specs]
        streams = [
            torch_rng(self.seed, "learner", spec.name, snapshot.learner_step)
            for spec, snapshot in zip(specs, published, strict=True)
        ]
        algorithm = make_algorithm(specs, streams, device)
        trainers = self._trainers(specs, algorithm, published, births)
        replays = [
            self._replay(spec, snapshot.learner_step)
            for spec, snapshot in zip(specs, published, strict=True)
        ]
        # Where a policy was born, other policies of its place played what came before.
        born = [births.generations[spec.name] > 0 for spec in specs]
        begun = [
            self.experience[spec.name].lost if is_born else 0
            for spec, is_born in zip(specs, born, strict=True)
        ]
        for k, snapshot in enumerate(published):
            if snapshot.training is not None:  # it may continue the schedule of its parent
                begun[k] = int(snapshot.training.numbers[BEGUN])
        return ReplayLearner(
            trainers,
            algorithm,
            replays,
            self.timeline,
            self.saves_experience,
            births.plays,
            begun,
            self._width,
        )

    def _replay(self, spec: PolicySpec, learner_step: int) -> Replay[Any]:
        """Return the replay of a policy whose learner starts after so many updates."""
        from remuda.experience.prioritised_replay import PrioritisedReplay, PrioritisedSequences
        from remuda.experience.sequence_replay import SequenceReplay
        from remuda.experience.transition_replay import TransitionReplay

        config = spec.config
        random = make_rng(self.seed, "replay", spec.name, learner_step)
        drawn = (self._sources(spec), config.n_steps, config.discount, random)
        alpha = config.experience.prioritised
        if alpha:
            return (PrioritisedSequences if spec.memory else PrioritisedReplay)(*drawn, alpha)
        return (SequenceReplay if spec.memory else TransitionReplay)(*drawn)

    def _by_rollouts(
        self, specs: tuple[PolicySpec, ...], device: str, births: LearnerBirths
    ) -> Learner:
        from remuda.experience.rollout_queue import RolloutQueue
        from remuda.experience.segment_replay import SegmentReplay
        from remuda.learner.rollouts import RolloutLearner
        from remuda.policies.spec import make_algorithm

        published = [self._newest(spec) for spec in specs]
        streams = [
            make_rng(self.seed, "learner", spec.name, snapshot.learner_step)
            for spec, snapshot in zip(specs, published, strict=True)
        ]
        algorithm = make_algorithm(specs, streams, device)
        trainers = self._trainers(specs, algorithm, published, births)
        rollouts = []
        for spec, snapshot in zip(specs, published, strict=True):
            past, config = None, spec.config
            if config.replays:
                random = make_rng(self.seed, "replay", spec.name, snapshot.learner_step)
                alone = config.learning_mode == "off_policy"
                past = SegmentReplay(self._sources(spec), random, config.replays, alone)
            own = self.experience[spec.name]
            rollouts.append(
                RolloutQueue(own, config.ppo.max_staleness, past=past, newest=not self.exact)
            )
        return RolloutLearner(
            trainers,
            algorithm,
            rollouts,
            self.timeline,
            self.saves_experience,
            births.plays,
            self._width,
        )

    @property
    def _width(self) -> int | None:
        """Return the most policies of one computation; None: as many as pay off.

        Products of a stack differ in the last bits from those of single policies. So in exact
        schedules each is trained alone: results then do not depend on which policies share a
        process.
        """
        return 1 if self.exact else None

    def _sources(self, spec: PolicySpec) -> list[Experience]:
        """Return the experience it learns from: its own first."""
        return [self.experience[name] for name in (spec.name, *self.shares.get(spec.name, ()))]

    def _newest(self, spec: PolicySpec) -> Snapshot:
        return self.published.reader().newest(spec.name, training=True)

    def _trainers(
        self,
        specs: Sequence[PolicySpec],
        algorithm: Algorithm,
        published: Sequence[Snapshot],
        births: LearnerBirths,
    ) -> list[PolicyTrainer]:
        """Return the policies of a stack, each with its published weights.

        An optimizer continues from its published state, if there is one. Else it starts with the
        moments of `init_optimizer` unless its policy was born later. A checkpoint replaces both.
        """
        import torch

        from remuda.learner.learner import PolicyTrainer
        from remuda.policies.stack import layout_checksum

        checksum = layout_checksum(algorithm.online.shapes)
        trainers = []
        for k, (spec, snapshot) in enumerate(zip(specs, published, strict=True)):
            algorithm.load(k, torch.from_numpy(snapshot.weights), snapshot.learner_step)
            if snapshot.training is not None:
                algorithm.take_over(k, snapshot.training)
            elif self.initial is not None and births.generations[spec.name] == 0:
                moments = self.initial.optimizer(spec.name)
                if moments is not None:
                    algorithm.optimizer.restore(k, moments)
            publisher = self.published.publisher(spec.name, checksum)
            row = self.scoreboard.learn(spec.name)
            trainers.append(PolicyTrainer(spec.name, spec.config, algorithm, k, publisher, row))
        return trainers
