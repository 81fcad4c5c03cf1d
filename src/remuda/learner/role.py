"""The role of a learner process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from remuda.config.hyperparameters import LiveHyperparameters, with_values
from remuda.experience.experience import Experience
from remuda.experience.priorities import PrioritisedReplay, PrioritisedSequences
from remuda.experience.replay import Replay, TransitionReplay
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import SegmentReplay
from remuda.experience.sequence_replay import SequenceReplay
from remuda.policies.initial import InitialWeights
from remuda.policies.spec import PolicySpec, make_algorithm
from remuda.population.births.inheritance import LearnerBirths
from remuda.population.members.table import Table
from remuda.publish.snapshot import Snapshot
from remuda.publish.training_state import BEGUN
from remuda.publish.weight_store import WeightStore
from remuda.system.checkpoint.names import file_name
from remuda.system.memory.waiting import Wakeup
from remuda.system.rng import make_rng, torch_rng
from remuda.system.scoreboard import Scoreboard
from remuda.system.timeline import Timeline

if TYPE_CHECKING:
    from remuda.learner.group import LearnerGroup
    from remuda.learner.learner import Learner, PolicyTrainer
    from remuda.policies.algorithms.algorithm import Algorithm


@dataclass(frozen=True)
class LearnerRole:
    """Picklable data from which a process builds its learners."""

    seed: int
    specs: tuple[PolicySpec, ...]
    devices: tuple[str, ...]  # by policy, in the order of `specs`
    experience: Mapping[str, Experience]  # by policy, including the policies in `shares`
    published: WeightStore
    scoreboard: Scoreboard
    wakeup: Wakeup
    timeline: Timeline | None = None
    saves_experience: bool = False
    # seconds that a stack with a ready policy waits for its other policies
    patience: float = 0.0
    exact: bool = False  # whether the schedule is reproducible, so that no step may be skipped
    table: Table | None = None  # the population, if it may get newborns
    # by policy, the other policies whose experience it also learns from
    shares: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    initial: InitialWeights | None = None  # initial optimizer states
    changes: LiveHyperparameters | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(file_name(spec.name) for spec in self.specs)

    @property
    def name(self) -> str:
        """Return a name with its first and last policy, such as `learner-agent_0..agent_6`."""
        first, last = self.parts[0], self.parts[-1]
        return f"learner-{first}" if first == last else f"learner-{first}..{last}"

    def build(self) -> LearnerGroup:
        """Build the learners and compile all functions that they need."""
        from remuda.learner.warm_up import warm_up

        births = LearnerBirths(self.table, [spec.name for spec in self.specs])
        warm_up(lambda **changes: replace(self, **changes).group(), self._stacks(births))
        return self.group()

    def group(self) -> LearnerGroup:
        from remuda.learner.group import LearnerGroup

        births = LearnerBirths(self.table, [spec.name for spec in self.specs])
        learners = [self._learner(specs, device, births) for specs, device in self._stacks(births)]
        return LearnerGroup(learners, self.wakeup, self.patience, births, self.changes)

    def on_process_death(self) -> None:
        """Let actors overwrite steps without waiting until the learner restarts, unless `exact`."""
        if not self.exact:
            for spec in self.specs:
                self.experience[spec.name].release()

    def _stacks(self, births: LearnerBirths) -> list[tuple[tuple[PolicySpec, ...], str]]:
        """Return each group of policies that are trained together, with their device."""
        stacks: dict[object, tuple[list[PolicySpec], str]] = {}
        for configured, device in zip(self.specs, self.devices, strict=True):
            config = with_values(configured.config, births.hyperparameters(configured.name))
            spec = replace(configured, config=config)
            stacks.setdefault((spec.specification, device), ([], device))[0].append(spec)
        return [(tuple(specs), device) for specs, device in stacks.values()]

    def _learner(
        self, specs: tuple[PolicySpec, ...], device: str, births: LearnerBirths
    ) -> Learner:
        from remuda.learner.replay import ReplayLearner
        from remuda.learner.rollouts import RolloutLearner

        by_rollouts = specs[0].config.rollout_length > 0
        published = self.published  # one reader each: its snapshot is valid until it reads again
        pairs = [(spec, published.reader().newest(spec.name, training=True)) for spec in specs]
        seeded: Callable[..., Any] = make_rng if by_rollouts else torch_rng
        rngs = [seeded(self.seed, "learner", spec.name, s.learner_step) for spec, s in pairs]
        algorithm = make_algorithm(specs, rngs, device)
        trainers = self._trainers(pairs, algorithm, births)
        options = (self.timeline, self.saves_experience, births.plays)
        if by_rollouts:
            rollouts = [self._rollouts(spec, snapshot.learner_step) for spec, snapshot in pairs]
            return RolloutLearner(trainers, algorithm, rollouts, *options, self._width)
        replays = [self._replay(spec, snapshot.learner_step) for spec, snapshot in pairs]
        begun = [self._begun(spec, snapshot, births) for spec, snapshot in pairs]
        return ReplayLearner(trainers, algorithm, replays, *options, begun, self._width)

    def _begun(self, spec: PolicySpec, snapshot: Snapshot, births: LearnerBirths) -> int:
        if snapshot.training is not None:  # the policy may continue its parent's schedule
            return int(snapshot.training.numbers[BEGUN])
        # A newborn starts after the steps of the slot's earlier policies, which count as lost.
        return self.experience[spec.name].lost if births.generations[spec.name] > 0 else 0

    def _replay(self, spec: PolicySpec, learner_step: int) -> Replay[Any]:
        config = spec.config
        rng = make_rng(self.seed, "replay", spec.name, learner_step)
        drawn = (self._sources(spec), config.n_steps, config.discount, rng)
        alpha = config.experience.prioritised
        if alpha:
            return (PrioritisedSequences if spec.memory else PrioritisedReplay)(*drawn, alpha)
        return (SequenceReplay if spec.memory else TransitionReplay)(*drawn)

    def _rollouts(self, spec: PolicySpec, learner_step: int) -> RolloutQueue:
        past, config = None, spec.config
        if config.replays:
            rng = make_rng(self.seed, "replay", spec.name, learner_step)
            only_replayed = config.learning_mode == "off_policy"
            past = SegmentReplay(self._sources(spec), rng, config.replays, only_replayed)
        own = self.experience[spec.name]
        return RolloutQueue(own, config.ppo.max_staleness, past=past, newest=not self.exact)

    @property
    def _width(self) -> int | None:
        """Return the maximum number of policies per computation; None: no limit.

        Matrix products of a stack differ in the last bits from those of single policies. So
        reproducible schedules (`exact`) train each policy separately.
        """
        return 1 if self.exact else None

    def _sources(self, spec: PolicySpec) -> list[Experience]:
        return [self.experience[name] for name in (spec.name, *self.shares.get(spec.name, ()))]

    def _trainers(
        self,
        pairs: Sequence[tuple[PolicySpec, Snapshot]],
        algorithm: Algorithm,
        births: LearnerBirths,
    ) -> list[PolicyTrainer]:
        """Return the trainers of a stack, each with its published weights.

        An optimizer continues from its published state. If no state was published, it starts from
        `init_optimizer`, unless its policy is a newborn. A checkpoint overrides both.
        """
        import torch

        from remuda.learner.learner import PolicyTrainer
        from remuda.policies.stack import layout_checksum

        checksum = layout_checksum(algorithm.online.shapes)
        trainers = []
        for k, (spec, snapshot) in enumerate(pairs):
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
