"""A learner that trains a stack of policies on rollouts of whole segments (PPO)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from remuda.experience.ring import OTHERS
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout, rows_for
from remuda.learner.learner import Learner, PolicyTrainer
from remuda.policies.algorithms.kernels.objective import RolloutMetrics
from remuda.policies.algorithms.rollout_algorithm import RolloutAlgorithm
from remuda.population.members.births import Newborn
from remuda.system.checkpoint.fitting import branch, whole
from remuda.system.scoreboard import Learn
from remuda.system.timeline import Span, Timeline
from remuda.types import State

SUMS = {
    "loss": Learn.LOSS_SUM,
    "policy_loss": Learn.POLICY_LOSS_SUM,
    "value_loss": Learn.VALUE_LOSS_SUM,
    "entropy": Learn.ENTROPY_SUM,
    "kl": Learn.KL_SUM,
    "clipped": Learn.CLIPPED_SUM,
    "gradient_norm": Learn.GRADIENT_NORM_SUM,
    "effective": Learn.EFFECTIVE_SUM,
    "others": Learn.OTHERS_STEPS,
    "others_weight": Learn.OTHERS_WEIGHT_SUM,
}  # fields of `RolloutMetrics`, and the sums they are added to

# maximum agent-steps in a piece of an update, summed over its policies: between pieces, the process
# answers requests, such as for a checkpoint
AT_ONCE = 65_536
FIRST = 512  # the same limit for the first piece, before any is timed
PIECE_SECONDS = 0.7  # target duration of a piece


class RolloutLearner(Learner):
    """A trainer of K policies of equal specifications as one batched computation.

    Policies with a complete rollout are trained together. Depending on `learning_mode`, replayed
    segments are added to the rollout or replace it. Each policy has its own minibatches, however
    much data the others have. An update of many policies is split into pieces (`unfinished`),
    between which the process writes checkpoints.

    Every step in the queue is trained on, pending, or counted as lost. `Learn.TRAINED` counts the
    steps that the current weights were trained on, and off-policy also those left for replay. A
    step is lost if the queue skips it, its update is undone, or it comes after the checkpoint that
    a restarted learner returns to. Without a checkpoint the learner returns to its last
    publication, and the counts do not change.
    """

    def __init__(
        self,
        trainers: Sequence[PolicyTrainer],
        algorithm: RolloutAlgorithm,
        rollouts: Sequence[RolloutQueue],
        timeline: Timeline | None = None,
        saves_experience: bool = False,
        plays: Callable[[str], bool] = lambda _: True,
        width: int | None = None,  # maximum policies per computation; None: all
    ) -> None:
        self._width = width or len(trainers)
        config = trainers[0].config
        # A time budget is for whole updates, and a piece would not fill a GPU.
        self._is_split = (
            width is None and config.time_budget is None and algorithm.device.type == "cpu"
        )
        self._untrained: list[int] = []
        # seconds of training per step in the last two pieces; infinite: not measured
        self._paces = (math.inf, math.inf)
        super().__init__(trainers, timeline, saves_experience, plays)
        self.algorithm = algorithm
        self.rollouts = rollouts  # by policy
        replays = trainers[0].config.replays
        largest = max((each.experience for each in rollouts), key=lambda e: rows_for(e, replays))
        self._rollout = Rollout.empty(largest, len(trainers), replays)

    def train_whole(self) -> None:
        self._is_split = False

    @property
    def unfinished(self) -> bool:
        return bool(self._untrained)

    def ready(self) -> bool:
        """Return whether to update now; policies without a rollout request a wake-up.

        If actors may play ahead, the learner waits for the whole stack, unless an actor has to wait
        for a policy. Policies that are trained separately do not wait for each other, so that
        results do not depend on timing.
        """
        if self.unfinished:
            return True
        ready = self._ready()
        waits = self.rollouts[0].experience.ahead > 1 and self._width > 1
        if not waits or not ready.any():
            return bool(ready.any())
        return bool((ready | self._away()).all()) or any(
            rollouts.experience.is_urgent
            for rollouts, is_ready in zip(self.rollouts, ready, strict=True)
            if is_ready
        )

    def update(self) -> None:
        if not self._untrained:
            self._untrained = self._take()
        size = self._piece() if self._is_split else len(self._untrained)
        piece, self._untrained = self._untrained[:size], self._untrained[size:]
        start = time.perf_counter()
        for first in range(0, len(piece), self._width):
            self._train(piece[first : first + self._width])
        if piece:
            spent = time.perf_counter() - start
            self._paces = self._paces[1], spent / max(int(self._rollout.num_steps[piece].sum()), 1)
        for k in range(len(self.trainers)):
            if k not in self._untrained:
                self._count_lost(k)

    def _take(self) -> list[int]:
        members, start = [], time.perf_counter()
        for k in np.flatnonzero(self._ready()).tolist():
            trainer = self.trainers[k]
            if self.rollouts[k].take(self._rollout, k, trainer.version) == 0:
                continue  # actors that do not wait may have overwritten all steps
            if self._is_above_ratio(k):
                # These steps are not lost: they may be sampled later.
                trainer.row[Learn.TRAINED] += self._rollout.num_taken[k]
            else:
                members.append(k)
        self._count_time(Span.SAMPLE, Learn.SECONDS_SAMPLE, members, start)
        return members

    def _is_above_ratio(self, k: int) -> bool:
        """Return whether training on the drawn rollout would exceed the policy's replay ratio."""
        config, passed = self.trainers[k].config, self.rollouts[k].experience.passed
        ratio = config.experience.replay_ratio
        if ratio is None or passed is None or config.learning_mode != "off_policy":
            return False
        samples = self.trainers[k].row[Learn.SAMPLES]
        return bool(samples + self._rollout.num_steps[k] * config.ppo.epochs > ratio * passed)

    def _piece(self) -> int:
        """Return how many of the remaining policies make up the next piece, at least one."""
        # Use the faster pace: the process may have been suspended during the other piece.
        pace = min(self._paces)
        most = min(PIECE_SECONDS / max(pace, 1e-9), AT_ONCE) if pace < math.inf else FIRST
        steps = np.cumsum(self._rollout.num_steps[self._untrained])
        return max(int(np.searchsorted(steps, most, side="right")), 1)

    def _give_up(self, k: int) -> None:
        """Drop a policy's rollout if it awaits a later piece; its steps count as lost."""
        if k in self._untrained:
            self._untrained.remove(k)

    def _train(self, members: Sequence[int]) -> None:
        start = time.perf_counter()
        learned = self.algorithm.update(self._rollout, members)
        updated = self._count_time(Span.UPDATE, Learn.SECONDS_UPDATE, members, start)
        for i, k in enumerate(members):
            if self.trainers[k].accept(float(learned.loss[i])):
                self._count(self.trainers[k], learned, i)
            elif self.trainers[k].halted:
                self._count_lost(k)
                self.rollouts[k].experience.release()
        self._count_time(Span.PUBLISH, Learn.SECONDS_PUBLISH, members, updated)

    def _count(self, trainer: PolicyTrainer, learned: RolloutMetrics, i: int) -> None:
        """Count an accepted update, and publish it if due."""
        k, row, rollout = trainer.index, trainer.row, self._rollout
        used = slice(0, int(rollout.num_rows[k]))
        versions, streams = rollout.versions[k, used], rollout.streams[k, used]
        trainer.count_staleness(versions[(streams != AFTER) & (versions != OTHERS)])
        row[Learn.SAMPLES] += learned.samples[i]
        share = learned.steps[i] / rollout.num_steps[k]
        row[Learn.TRAINED] += np.rint(rollout.num_taken[k] * share)
        if trainer.is_due():
            self.publish_policy(k)
        for name, word in SUMS.items():
            trainer.add(word, getattr(learned, name)[i])
        row[Learn.ACTOR_UPDATES] += 1.0
        trainer.add(Learn.OTHERS_SUM, learned.others[i] / rollout.num_steps[k])
        explained = learned.explained_variance[i]
        if math.isfinite(explained):
            trainer.add(Learn.EXPLAINED_SUM, explained)
            trainer.add(Learn.EXPLAINED_UPDATES, 1.0)

    def _lost(self, policy: int) -> int:
        """Return the number of steps that left the queue but are in no accepted update."""
        passed, row = self.rollouts[policy].experience.passed, self.trainers[policy].row
        return int(row[Learn.LOST] if passed is None else max(passed - row[Learn.TRAINED], 0))

    def _count_lost(self, policy: int) -> None:
        self.trainers[policy].row[Learn.LOST] = self._lost(policy)

    def publish_policy(self, k: int) -> None:
        self.trainers[k].publish(self.trainers[k].config.last_epsilon)

    def begin(self, policy: str, newborn: Newborn) -> int:
        k = self.policies.index(policy)
        trainer = self.trainers[k]
        self._give_up(k)
        trainer.begin(newborn)
        self.rollouts[k].experience.skip()
        ratio, row = trainer.config.experience.replay_ratio, trainer.row
        if ratio is not None:  # a newborn does not make up for updates its predecessor missed
            passed = self.rollouts[k].experience.passed or 0
            row[Learn.SAMPLES] = max(row[Learn.SAMPLES], passed * ratio)
        self._count_lost(k)
        self.publish_policy(k)
        return trainer.version

    def state(self, policy: str) -> State:
        """Return the state that a restarted learner needs, except rollouts of later pieces."""
        k = self.policies.index(policy)
        return self.trainers[k].state() | {
            "lost": self._lost(k),
            "past": past.state() if (past := self.rollouts[k].past) is not None else None,
            "experience": self.rollouts[k].experience.state() if self._saves_experience else None,
        }

    def restore(self, policy: str, state: State) -> None:
        k = self.policies.index(policy)
        self._give_up(k)
        self.trainers[k].restore(state)
        self.trainers[k].row[Learn.LOST] = whole(state, "lost")
        self._count_lost(k)  # including steps that were taken after this state was saved
        past = self.rollouts[k].past
        if past is not None:
            past.restore(branch(state, "past"))
        if self.trainers[k].halted:
            self.rollouts[k].experience.release()

    def _is_ready(self, k: int) -> bool:
        """Return whether a policy can be trained; count a retired policy's steps as lost."""
        trainer, experience = self.trainers[k], self.rollouts[k].experience
        has_rollout = self.rollouts[k].ready()
        if self._plays(trainer.name):
            return has_rollout and not trainer.halted
        # Read `closed` before checking again, so that no step of a newborn is skipped.
        closed = experience.closed
        if experience.untaken > 0 and not self._plays(trainer.name):
            experience.skip(closed)
            self._count_lost(k)
        return False
