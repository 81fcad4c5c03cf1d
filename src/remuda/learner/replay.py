"""A learner that trains a stack of policies on replayed samples (DQN, IQN, SAC)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from remuda.experience.experience import NEVER
from remuda.experience.replay import Replay
from remuda.experience.ring import OTHERS
from remuda.learner.batches import batches_for
from remuda.learner.learner import Learner, PolicyTrainer, runs
from remuda.policies.algorithms.transition_algorithm import TransitionAlgorithm
from remuda.population.members.births import Newborn
from remuda.publish.training_state import BEGUN, EXPLORED
from remuda.system.checkpoint.fitting import MOST, Range, branch, whole
from remuda.system.scoreboard import Learn
from remuda.system.timeline import Span, Timeline
from remuda.types import State

ACTOR_SUMS = (
    *(Learn.POLICY_LOSS_SUM, Learn.VALUE_LOSS_SUM, Learn.ENTROPY_SUM, Learn.TEMPERATURE_SUM),
)  # the sums that the fields of `ActorMetrics` are added to
FIRST_BETA = 0.4  # exponent of importance weights when training starts (Schaul et al. 2016)


class ReplayLearner(Learner):
    """A trainer of K policies of equal specifications as one batched computation.

    A policy's updates never exceed its replay ratio. Due policies that are neighbours in the stack
    are trained together.
    """

    def __init__(
        self,
        trainers: Sequence[PolicyTrainer],
        algorithm: TransitionAlgorithm,
        replays: Sequence[Replay[Any]],
        timeline: Timeline | None = None,
        saves_experience: bool = False,
        plays: Callable[[str], bool] = lambda _: True,
        begun: Sequence[int] | None = None,
        width: int | None = None,  # maximum policies per computation, at most the algorithm's limit
    ) -> None:
        self._width = len(trainers) if width is None else width
        super().__init__(trainers, timeline, saves_experience, plays)
        self.algorithm = algorithm
        self.replays = replays  # by policy
        config = trainers[0].config
        self._budget = BatchBudget(config.batch_size, config.time_budget)
        # whether any replay is prioritised
        self._weighed = any(s.config.experience.prioritised for s in trainers)
        self._batches = batches_for(replays, config.batch_size, self._weighed)
        # by policy, the number of steps written when its exploration started to decay
        self._begun = list(begun or [0] * len(trainers))
        # by policy, whether it is alive, as last published to actors
        self._alive = [plays(trainer.name) for trainer in trainers]
        self._last = [0] * len(trainers)  # by policy, the samples of its last update
        self._scales = np.array([[s.config.reward_scale] for s in trainers], np.float32)
        for k in range(len(trainers)):
            # A previous learner may have died after an update, before it published the progress.
            self._consume(k, self._batches.largest)

    def steps_needed(self, policy: int) -> int:
        """Return the number of collected steps at which a policy's next update is due."""
        trainer, experience = self.trainers[policy], self.replays[policy].experience
        fresh = experience.lost + trainer.config.experience.learning_starts
        return max(_steps_paid(trainer, trainer.row[Learn.SAMPLES]), fresh)

    def epsilon(self, policy: int) -> float:
        """Return the current exploration rate, which decays linearly with collected steps."""
        config = self.trainers[policy].config
        if config.entry.samples:
            return config.last_epsilon
        exploration = config.exploration
        return exploration.start + self._decayed(policy) * (exploration.end - exploration.start)

    def beta(self, policy: int) -> float:
        """Return the exponent of importance weights, which rises to 1 while exploration decays.

        Early in training, while targets still move, less correction is better (Schaul et al. 2016,
        section 3.4).
        """
        return FIRST_BETA + self._decayed(policy) * (1.0 - FIRST_BETA)

    def _decayed(self, policy: int) -> float:
        """Return the finished share of the exploration decay, from 0 to 1."""
        decay_steps = self.trainers[policy].config.exploration.decay_steps
        return min(self.explored(policy) / decay_steps, 1.0)

    def explored(self, policy: int) -> int:
        return self.replays[policy].experience.written - self._begun[policy]

    def update(self) -> None:
        for first, end in runs(self._ready(), min(self.algorithm.width, self._width)):
            self._train(first, end)

    def _train(self, first: int, end: int) -> None:
        size, start = self._budget.size, time.perf_counter()
        drawn = np.zeros(len(self.trainers), np.bool_)
        for k in range(first, end):
            # `sample` returns False if the ring was just cleared for a newborn (a new policy).
            drawn[k] = self._batches.sample(k, size, self.beta(k))
        self._count_time(Span.SAMPLE, Learn.SECONDS_SAMPLE, range(first, end), start)
        for stretch in runs(drawn, end - first):
            self._step(*stretch, size)

    def _step(self, first: int, end: int, size: int) -> None:
        members, start = range(first, end), time.perf_counter()
        transitions = self._batches.moved(first, end, size, self._scales, self.algorithm.device)
        learned = self.algorithm.update(transitions, first, end)
        metrics = torch.stack((*learned[:3], *(learned.actor or ())), 1).cpu().tolist()
        errors = learned.errors.cpu().numpy() if self._weighed else None
        updated = self._count_time(Span.UPDATE, Learn.SECONDS_UPDATE, members, start)
        self._budget.spent(updated - start)
        for k, found in zip(members, metrics, strict=True):
            if self._accept(k, found, size) and errors is not None:
                self.replays[k].learn(errors[k - first])
        self._count_time(Span.PUBLISH, Learn.SECONDS_PUBLISH, members, updated)

    def _accept(self, policy: int, metrics: Sequence[float], size: int) -> bool:
        """Count a policy's update and publish if due, or undo it; return whether it was finite.

        `metrics` are the loss, the gradient norm, the value, and any `ActorMetrics`.
        """
        trainer, replay = self.trainers[policy], self.replays[policy]
        loss, norm, value, *actor = metrics
        row, versions = trainer.row, self._batches.versions(policy, size)
        accepted = trainer.accept(loss)
        if accepted:
            row[Learn.SAMPLES] += len(versions)
            if trainer.is_due():
                self.publish_policy(policy)
            trainer.add(Learn.LOSS_SUM, loss)
            trainer.add(Learn.GRADIENT_NORM_SUM, norm)
            trainer.add(Learn.VALUE_SUM, value)
            if actor:
                for word, each in zip(ACTOR_SUMS, actor, strict=True):
                    trainer.add(word, each)
                row[Learn.ACTOR_UPDATES] += 1.0
                row[Learn.TEMPERATURES] += 1.0
            trainer.count_staleness(versions[versions != OTHERS])
            row[Learn.OTHERS_SUM] += (versions == OTHERS).mean()
        row[Learn.REDRAWN] = replay.redrawn
        self._consume(policy, len(versions))
        return accepted

    def publish_policy(self, k: int) -> None:
        numbers = {EXPLORED: self.explored(k), BEGUN: self._begun[k]}
        self.trainers[k].publish(self.epsilon(k), numbers)

    def begin(self, policy: str, newborn: Newborn) -> int:
        k = self.policies.index(policy)
        trainer, replay = self.trainers[k], self.replays[k]
        trainer.begin(newborn)
        replay.forget()
        self._configure(k)
        # A newborn that inherits its parent's training state continues the parent's schedule too.
        explored = newborn.training.numbers[EXPLORED] if newborn.training is not None else 0.0
        self._begun[k] = replay.experience.lost - int(explored)
        # The newborn does not make up for updates that its predecessor missed.
        ratio = trainer.config.experience.replay_ratio
        if ratio is not None:
            row = trainer.row
            row[Learn.SAMPLES] = max(row[Learn.SAMPLES], replay.experience.lost * ratio)
        self.publish_policy(k)
        self._consume(k, 0)
        return trainer.version

    def change(self, policy: str, values: Mapping[str, float]) -> None:
        super().change(policy, values)
        self._configure(self.policies.index(policy))

    def _configure(self, policy: int) -> None:
        config = self.trainers[policy].config
        self.replays[policy].discount = config.discount
        self._scales[policy] = config.reward_scale

    def state(self, policy: str) -> State:
        k = self.policies.index(policy)
        experience = self.replays[k].experience
        return self.trainers[k].state() | {
            "replay": self.replays[k].state(self._saves_experience),
            "begun": self._begun[k],
            "last": self._last[k],
            "experience": experience.state() if self._saves_experience else None,
        }

    def restore(self, policy: str, state: State) -> None:
        """Restore what `state` returned, except experience, which survives a learner's death."""
        k = self.policies.index(policy)
        self.trainers[k].restore(state)
        self.replays[k].restore(branch(state, "replay"))
        self._begun[k] = whole(state, "begun", Range(-MOST, MOST))
        self._consume(k, whole(state, "last", Range(0, self._batches.largest)))

    def _is_ready(self, k: int) -> bool:
        """Return whether an update of one policy is due; retired policies are not trained.

        Actors wait for a newborn's learner only after the newborn has started to play.
        """
        trainer, experience = self.trainers[k], self.replays[k].experience
        plays = self._plays(trainer.name)
        due = not trainer.halted and experience.has(self.steps_needed(k), begins=plays)
        if plays != self._alive[k]:
            self._alive[k] = plays
            self._show_progress(k)
        return due and plays

    def _consume(self, policy: int, last: int) -> None:
        """Show a policy's progress to waiting actors; its last update had `last` samples."""
        self._last[policy] = last
        self._show_progress(policy)

    def _show_progress(self, policy: int) -> None:
        trainer, experience = self.trainers[policy], self.replays[policy].experience
        if experience.may_wait:
            samples = max(trainer.row[Learn.SAMPLES] - self._last[policy], 0.0)
            idle = trainer.halted or not self._alive[policy]
            # Steps that a resumed run did not restore cannot be trained on, and training starts
            # again after `learning_starts` more.
            starts = trainer.config.experience.learning_starts
            paid = max(_steps_paid(trainer, samples), experience.lost + starts)
            experience.consume(NEVER if idle else paid)


def _steps_paid(trainer: PolicyTrainer, samples: float) -> int:
    """Return the number of collected steps at which an update after `samples` samples is due."""
    experience = trainer.config.experience
    per_step = experience.replay_ratio
    return experience.learning_starts + (math.ceil(samples / per_step) if per_step else 0)


LEAST = 8  # minimum samples of a batch
HEADROOM = 2.2  # the size is doubled if the mean time of an update, times this, is below the budget
MEMORY = 0.8  # weight of past updates in the running mean


class BatchBudget:
    """The size of the next batch, under a time budget.

    The size is halved while the running mean of update times exceeds the budget, and doubled when
    there is enough time (`HEADROOM`).
    """

    def __init__(self, largest: int, seconds: float | None) -> None:
        self.size = largest
        self._largest, self._seconds = largest, seconds
        self._mean: float | None = None

    def spent(self, seconds: float) -> None:
        if self._seconds is None:
            return
        before = self._mean
        self._mean = seconds if before is None else MEMORY * before + (1.0 - MEMORY) * seconds
        size = self.size
        if self._mean > self._seconds:
            size = max(size // 2, min(LEAST, self._largest))
        elif self._mean * HEADROOM < self._seconds:
            size = min(size * 2, self._largest)
        if size != self.size:
            self.size, self._mean = size, None
