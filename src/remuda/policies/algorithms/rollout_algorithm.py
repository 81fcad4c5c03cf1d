"""Algorithms that learn from rollouts: advantages, epochs and minibatches for K policies."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from remuda.config import PolicyConfig
from remuda.config.algorithm_registry import Section
from remuda.experience.segments import AFTER, Rollout
from remuda.policies.advantages import Credit, RunningReturns, credit_of, others_in, steps_of
from remuda.policies.algorithms.algorithm import Algorithm, has_flag
from remuda.policies.algorithms.autograd import Autograd, Minibatch
from remuda.policies.algorithms.kernels.objective import (
    LossCosts,
    Means,
    Objective,
    RolloutBatch,
    RolloutMetrics,
)
from remuda.policies.algorithms.kernels.ppo import Fused
from remuda.policies.algorithms.kernels.towers import Memory
from remuda.policies.algorithms.own_losses import checked
from remuda.policies.algorithms.samples import Rows, Sequences, alike
from remuda.policies.networks.actor_critic import ActorCritic, count_observations
from remuda.policies.networks.encoders import critic_input, encoder_for, value_encoder_for
from remuda.policies.networks.value_normalisation import ValueNormalisation
from remuda.policies.spec import PolicySpec
from remuda.policies.stack import ParameterStack, Side
from remuda.publish.training_state import TrainingLayout, TrainingState
from remuda.system.checkpoint.fitting import branch, whole
from remuda.system.checkpoint.state import restore_rng, rng_state
from remuda.types import Floats, Integers, State

KL = Means._fields.index("kl")
METRICS = (*Means._fields, "gradient_norm")  # metrics of a step, by policy
ANCHOR = "anchor"  # the name of the anchor's weights in a policy's training state
# numbers of the training state: steps taken for training, and moments of returns
PROGRESS = ("trained", "return_mean", "return_variance", "return_count")
KL_MARGIN = 1.5  # an update ends when the policy's divergence exceeds `target_kl` times this


@dataclass(frozen=True)
class TrainingGroup:
    """Policies that are trained together because they have similar amounts of data."""

    going: Integers  # indices in the update of the policies that are still training
    members: list[int]  # indices of the same policies in the stack
    minibatches: int  # minibatches of an epoch
    limits: Floats | None  # maximum KL divergence, by policy; None: no limits
    side: Side
    anchor: Side | None
    engine: Fused | Autograd

    def load(self) -> None:
        self.side.load()
        if self.anchor is not None:
            self.anchor.load()


class RolloutAlgorithm(Algorithm):
    """An algorithm that trains K policies, each on its own rollout with its own hyperparameters.

    Policies of a stack have the same network, epochs, minibatches, rollout length and time budget;
    other hyperparameters may differ. The objective is decoupled (Hilton et al. 2022) for rollouts
    of older weights: an update stays close to the policy that it starts from, and importance
    weights (`correction`) account for the policy that acted.

    User-defined algorithms are subclasses with `losses`; see docs/extend.md.
    """

    takes, samples, masks = "rollouts", True, True
    section: ClassVar[Section] = "ppo"
    fused: ClassVar[bool] = False
    """True if kernels (`objective.py`) compute `losses`. Not inherited by a class that overrides
    `losses`."""

    def __init__(
        self,
        configs: Sequence[PolicyConfig],
        network: ActorCritic,
        rngs: Sequence[np.random.Generator],
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(configs, network, device)
        self.network = network
        self._rngs = tuple(rngs)
        self._trained = [0] * len(self.configs)
        self._returns = [RunningReturns() for _ in self.configs]
        ppo = self.configs[0].ppo
        self._epochs, self._parts = ppo.epochs, ppo.parts
        self._normalises = ppo.normalise_advantages
        self._memory: Memory | None = None
        self._by_kernels = (
            has_flag(type(self), "fused", "losses")
            and self.device.type == "cpu"
            and Objective.suits(network.actions)
        )
        if self._by_kernels and Fused.suits(network, self.device):
            self._memory = Memory(network)
        self._anchor: ParameterStack | None = None
        if any(config.ppo.anchor_cost for config in self.configs):
            self._anchor = ParameterStack(network.shapes, len(self.configs), device)

    @abstractmethod
    def losses(self, rows: Minibatch) -> tuple[Tensor, Tensor]:
        """Return the policy loss and the value loss of each row: both [G, B].

        The total loss is the policy loss plus `ppo.value_cost` times the value loss minus
        `ppo.entropy_cost` times the entropy, averaged over the valid rows.
        """

    @classmethod
    def network_for(cls, spec: PolicySpec) -> ActorCritic:
        network, ppo = spec.config.network, spec.config.ppo
        return ActorCritic(
            spec.num_inputs,
            spec.actions,
            network,
            ppo.normalise_observations,
            encoder_for(spec),
            spec.scale,
            ppo.normalise_values,
            bool(spec.config.shares_network),
            critic_input(spec),
            value_encoder_for(spec),
            spec.packing,
        )

    @classmethod
    def training_layout(cls, config: PolicyConfig) -> TrainingLayout:
        found = super().training_layout(config)
        anchor = (ANCHOR,) if config.ppo.anchor_cost else ()
        return TrainingLayout((*found.vectors, *anchor), (*found.numbers, *PROGRESS))

    def training(self, learned: State) -> TrainingState:
        found = super().training(learned)
        if learned[ANCHOR] is not None:
            found.vectors[ANCHOR] = learned[ANCHOR]
        progress = (learned["trained"], *learned["returns"]["moments"].tolist())
        found.numbers |= dict(zip(PROGRESS, map(float, progress), strict=True))
        return found

    def take_over(self, policy: int, training: TrainingState) -> None:
        super().take_over(policy, training)
        trained, *moments = (training.numbers[name] for name in PROGRESS)
        self._trained[policy] = int(trained)
        self._returns[policy] = RunningReturns(*moments)
        if self._anchor is not None and ANCHOR in training.vectors:
            self._anchor.write(policy, training.vectors[ANCHOR])

    def load(self, policy: int, weights: Tensor, updates: int = 0) -> None:
        super().load(policy, weights, updates)
        self._anchor_at_itself(policy)

    def forget(self, policy: int) -> None:
        super().forget(policy)
        self._trained[policy], self._returns[policy] = 0, RunningReturns()
        self._anchor_at_itself(policy)

    def _anchor_at_itself(self, policy: int) -> None:
        if self._anchor is not None:
            self._anchor.write(policy, self.online.flat[policy])

    def update(self, rollout: Rollout, members: Sequence[int]) -> RolloutMetrics:
        """Train some policies (`members`, ascending), each on its row of a rollout.

        A policy's result does not depend on other rows. A time budget applies to each group of
        policies that are trained together.
        """
        members = list(members)
        samples = (Sequences if self.network.memory else Rows)(rollout, members, self.device)
        if self._anchor is not None:
            self._move_anchors(self._anchor, members)
        batch, credit = self._prepare(rollout, samples, members)
        self._set_learning_rates(members)
        others, their_weight = others_in(rollout, credit.weights, members)
        learned = RolloutMetrics(
            **self._train(batch, samples, members),
            effective=credit.effective,
            explained_variance=credit.explained_variance,
            others=others,
            others_weight=their_weight,
        )
        for k in members:
            if self.network.normalised:
                used = slice(0, int(rollout.num_rows[k]))
                steps = rollout.streams[k, used] != AFTER
                rows, packing = rollout.observations[k, used][steps], self.network.packing
                count_observations(self.online.of(k), packing.unpack(rows) if packing else rows)
            self._trained[k] += int(rollout.num_taken[k])
            self.updates[k] += 1
        return learned

    def _move_anchors(self, anchors: ParameterStack, members: Sequence[int]) -> None:
        """Move the anchors that updates stay close to: snapshots, or running averages."""
        for k in members:
            ppo, updates = self.configs[k].ppo, self.updates[k]
            if ppo.anchor == "average" and updates:
                with torch.no_grad():
                    anchors.flat[k].lerp_(self.online.flat[k], 1.0 / ppo.anchor_every)
            elif updates % ppo.anchor_every == 0:
                anchors.write(k, self.online.flat[k])

    def _prepare(
        self, rollout: Rollout, samples: Rows | Sequences, members: Sequence[int]
    ) -> tuple[RolloutBatch, Credit]:
        """Prepare the batch on the device; also return the `Credit`, on the CPU."""
        first, end = members[0], members[-1] + 1
        at: slice | list[int] = slice(first, end)  # neighbours need no copy
        if end - first > len(members):
            at = list(members)
        rows = int(rollout.num_rows[at].max())

        def batch_of(array: np.ndarray) -> Tensor:
            """Select the policies, and for torch the used rows: contiguous, to copy no more."""
            if self._is_fused:  # indexes rows, and would be compiled for each memory layout
                return self._to_device(array[at])
            return self._to_device(array[at, :rows]).contiguous()

        log_prox = torch.zeros(len(members), rows, dtype=torch.float32, device=self.device)
        before, empty = torch.zeros_like(log_prox), torch.empty(0)
        batch = RolloutBatch(
            observations=batch_of(rollout.observations),
            actions=batch_of(rollout.actions),
            masks=batch_of(rollout.masks) if rollout.masks.shape[-1] else None,
            log_prox=log_prox,
            weights=empty,
            advantages=empty,
            values=before,
            targets=empty,
        )
        for group in alike([samples.whole(i) for i in range(len(members))]):
            *_, engine = self._engine([members[i] for i in group])
            engine.evaluate(batch, samples.everything(np.array(group), engine.rows_at_once))
        outputs, units, fresh = before.cpu().numpy(), None, None
        values = outputs
        if self.network.value_normalisation:
            units = ValueNormalisation.of(self.online, members)
            values, fresh = units.real(outputs), units.counts[:, 0] == 0
        credit = credit_of(
            rollout, members, self.configs, self._returns, values, log_prox.cpu().numpy(), fresh
        )
        targets = credit.targets
        if units is not None:
            newer = units.counting(targets, steps_of(rollout, members, rows))
            before = self._to_device(newer.put(self.online, members, units, outputs))
            targets = newer.normalised(targets)
        return replace(
            batch,
            weights=self._to_device(credit.weights),
            advantages=self._to_device(credit.advantages),
            values=before,
            targets=self._to_device(targets),
        ), credit

    def _train(
        self, batch: RolloutBatch, samples: Rows | Sequences, members: Sequence[int]
    ) -> dict[str, Any]:
        groups = self._groups(samples, members)
        sums = torch.zeros(len(METRICS), len(members), dtype=torch.float32, device=self.device)
        passes, trained = (np.zeros(len(members), np.int64) for _ in range(2))
        once = trained
        # Each group has its own clock: small groups may continue after large ones stop.
        spent, budget = np.zeros(len(members)), self.configs[members[0]].time_budget
        for epoch in range(1, self._epochs + 1):
            remaining = []
            for group in groups:
                start = time.perf_counter()
                rest = self._go_through(group, batch, samples, sums, passes, trained)
                spent[group.going] += time.perf_counter() - start
                if rest is None:
                    continue
                predicted = spent[rest.going[0]] * (epoch + 1) / epoch
                if budget is None or predicted <= budget:
                    remaining.append(rest)
            groups = remaining
            if epoch == 1:
                once = trained.copy()
            if not groups:
                break
        totals = sums / torch.from_numpy(passes).to(self.device)
        found = dict(zip(METRICS, totals.cpu().numpy(), strict=True))
        return found | {"samples": trained, "steps": once}

    def _groups(self, samples: Rows | Sequences, members: Sequence[int]) -> list[TrainingGroup]:
        """Group policies with minibatches of similar size, so that small ones are not padded."""
        counts: dict[int, list[int]] = {}
        for i, units in enumerate(samples.units):
            counts.setdefault(min(self._parts(samples.steps(i)), len(units)), []).append(i)
        return [
            self._group([indices[i] for i in found], [members[indices[i]] for i in found], count)
            for count, indices in counts.items()
            for found in alike([samples.minibatch(i, count) for i in indices])
        ]

    def _group(self, going: npt.ArrayLike, members: list[int], minibatches: int) -> TrainingGroup:
        limits = KL_MARGIN * self._hyperparameter("target_kl", members)[:, 0]
        used_limits = limits if np.isfinite(limits).any() else None
        return TrainingGroup(
            np.asarray(going), members, minibatches, used_limits, *self._engine(members)
        )

    def _go_through(
        self,
        group: TrainingGroup,
        batch: RolloutBatch,
        samples: Rows | Sequences,
        sums: Tensor,
        passes: Integers,
        trained: Integers,
    ) -> TrainingGroup | None:
        """Run one epoch and add its metrics; return the group of policies that continue."""
        parts = group.minibatches
        shuffled = {
            i: np.array_split(self._rngs[k].permutation(samples.units[i]), parts)
            for i, k in zip(group.going, group.members, strict=True)
        }
        # Sum these separately: indexing columns of `sums` in each step is slower.
        metrics = torch.zeros(
            len(METRICS), len(group.going), dtype=torch.float32, device=self.device
        )
        for number in range(parts):
            going = group.going
            pick = samples.pick(going, [shuffled[i][number] for i in going])
            group.load()
            means = group.engine.step(batch, pick)
            norm = self.clip_gradients(group.side.part.gradients, group.side.index)
            group.side.store_gradients()
            self.optimizer.step(group.members)
            metrics += torch.cat((means, norm.T))
            passes[going] += 1
            trained[going] += pick.counts
            if group.limits is None:
                continue
            remaining = np.flatnonzero(~(means[KL].cpu().numpy() > group.limits))
            if len(remaining) == len(going):
                continue
            sums.index_add_(1, torch.from_numpy(going).to(self.device), metrics)
            if not len(remaining):
                return None
            group = self._group(going[remaining], [group.members[i] for i in remaining], parts)
            metrics = sums.new_zeros(len(METRICS), len(remaining))
        sums.index_add_(1, torch.from_numpy(group.going).to(self.device), metrics)
        return group

    def _set_learning_rates(self, members: Sequence[int]) -> None:
        for k in members:
            config = self.configs[k]
            factor = 1.0
            if config.ppo.anneal_steps is not None:
                factor = max(1.0 - self._trained[k] / config.ppo.anneal_steps, 0.0)
            self.optimizer.learning_rates[k] = config.learning_rate * factor

    @property
    def _is_fused(self) -> bool:
        return self._memory is not None and self._anchor is None

    def _engine(self, members: Sequence[int]) -> tuple[Side, Side | None, Fused | Autograd]:
        """Return these policies' parameters and anchors, and the engine that trains them."""
        side, anchor = Side(self.online, members), None
        costs = self.costs_of(members)
        if self._anchor is not None:
            anchor = Side(self._anchor, members)
        elif self._memory is not None:
            fused = Fused(self.network, side.part, costs, self._memory, self._normalises)
            return side, None, fused
        objective = None
        if self._by_kernels and anchor is None:
            objective = Objective(self.network.actions, costs, self._normalises)
        engine = Autograd(
            self.network,
            side.part,
            costs,
            checked(self.configs[0].algorithm, self.losses),
            {name: self.settings_of(name, members) for name in self.settings},
            anchor.part if anchor is not None else None,
            self._normalises,
            objective,
        )
        return side, anchor, engine

    def costs_of(self, members: Sequence[int]) -> LossCosts:
        return LossCosts(*(self._hyperparameter(name, members) for name in LossCosts._fields))

    def _hyperparameter(self, name: str, members: Sequence[int]) -> Floats:
        """Return one of the `ppo` settings of some policies, [G, 1]; None is infinity."""
        values = (getattr(self.configs[k].ppo, name) for k in members)
        return np.array([[math.inf if each is None else each] for each in values], np.float32)

    def _to_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def learned(self, policy: int) -> State:
        return super().learned(policy) | {
            "trained": self._trained[policy],
            "returns": self._returns[policy].state(),
            ANCHOR: self._anchor.read(policy) if self._anchor is not None else None,
        }

    def restore_learned(self, policy: int, state: State) -> None:
        super().restore_learned(policy, state)
        self._trained[policy] = whole(state, "trained")
        if self._anchor is not None:
            self._anchor.restore(policy, state, ANCHOR)
        self._returns[policy].restore(branch(state, "returns"))

    def state(self, policy: int) -> State:
        return self.learned(policy) | {"stream": rng_state(self._rngs[policy])}

    def restore(self, policy: int, state: State) -> None:
        self.restore_learned(policy, state)
        restore_rng(self._rngs[policy], state["stream"])
