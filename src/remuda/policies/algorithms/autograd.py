"""The loss of a minibatch and its gradient by torch, for all networks, actions and devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remuda.policies.algorithms.kernels.objective import (
    LossCosts,
    Means,
    MinibatchObjective,
    Objective,
    RolloutBatch,
    log_scales_of,
    rows_of,
)
from remuda.policies.algorithms.samples import Pick
from remuda.policies.losses import kl_estimate, mean_of, normalised
from remuda.policies.networks.actor_critic import ActorCritic
from remuda.policies.parallel_parts import each
from remuda.policies.stack import ParameterStack
from remuda.types import Floats, Integers


@dataclass(frozen=True)
class Minibatch:
    """The inputs of a loss for B rows of G policies; all [G, B] unless noted."""

    log_probs: Tensor
    """Log-probabilities of the taken actions; gradients flow through the first three fields."""
    entropies: Tensor  # entropies of the distributions, in nats
    values: Tensor  # state values
    old_log_probs: Tensor  # log-probabilities before the update
    old_values: Tensor  # values before the update
    advantages: Tensor
    targets: Tensor  # targets of the values
    clip: Tensor  # [G, 1]: `ppo.clip`
    value_clip: Tensor  # [G, 1]: `ppo.value_clip`; infinite: no clipping
    settings: Mapping[str, Tensor]  # `policy.settings` by key, [G, 1] each


PIECE, LEAST, MOST = 200e6, 64, 512
"""Multiplications, minimum rows and maximum rows of a piece (rows differentiated in one call).

Only networks with convolutions use pieces. Larger pieces would not fit the cache, and would be too
few for several threads; smaller pieces need more calls. The size affects the last bits of sums, so
it does not depend on other policies or threads.
"""
ROWS = 1024  # best number of rows of a policy per evaluation, without convolutions

# returns the losses of policy and value for each row
Losses = Callable[[Minibatch], tuple[Tensor, Tensor]]


class Autograd:
    """Evaluation and gradients of G policies of one layout."""

    def __init__(
        self,
        network: ActorCritic,
        part: ParameterStack,
        costs: LossCosts,
        losses: Losses,
        settings: Mapping[str, Tensor] | None = None,  # `policy.settings` by key, [G, 1] each
        anchor: ParameterStack | None = None,  # parameters of anchor policies
        normalises: bool = False,  # normalise advantages by policy and minibatch
        objective: Objective | None = None,  # computes `losses` by kernels
    ) -> None:
        self._network, self._part, self._anchor = network, part, anchor
        self.objective = objective
        self._losses, self._settings = losses, dict(settings or {})
        self._normalises = normalises
        self._costs = [torch.from_numpy(cost).to(part.flat.device) for cost in costs]
        encoder = network.encoder
        self._piece = None  # rows that are differentiated together; None: all
        if encoder is not None and encoder.work:
            self._piece = int(np.clip(PIECE / encoder.work, LEAST, MOST))
        self.rows_at_once = self._piece or ROWS

    def evaluate(self, batch: RolloutBatch, picks: Iterable[Pick]) -> None:
        """Write log-probabilities and values of the picked rows to the batch."""
        network = self._network

        def forward(pick: Pick) -> tuple[Pick, Tensor, Tensor]:
            with torch.no_grad():  # needed here too, because it applies to one thread
                return pick, *self.forward(batch, pick)

        with torch.no_grad():
            for pick, outputs, values in each(forward, picks):
                if self.objective is not None:
                    rows, order = rows_of(pick)
                    joined = self._joined(outputs, values, order)
                    self.objective.evaluate(joined, self._log_scales, rows, batch)
                    continue
                log_probs, _ = network.actions.log_probs_and_entropy(
                    outputs, pick.of(batch.actions), pick.masks_of(batch.masks)
                )
                counts = slice(None) if pick.valid is None else pick.valid.flatten() > 0
                batch.values.view(-1)[pick.flat[counts]] = values.flatten()[counts]
                batch.log_prox.view(-1)[pick.flat[counts]] = log_probs.flatten()[counts]

    def forward(self, batch: RolloutBatch, pick: Pick) -> tuple[Tensor, Tensor]:
        """Return the policy outputs and values of the picked rows."""
        parameters = self._part.parameters
        inputs = self._network.prepare(parameters, pick.of(batch.observations))
        return self._network.policy_and_value(parameters, inputs, pick.memory)

    def step(self, batch: RolloutBatch, pick: Pick) -> Tensor:
        """Write the gradients of the picked rows' loss; return the means [len(Means), G]."""
        if self.objective is not None:
            return self._step_by_kernels(self.objective, batch, pick)
        network, valid = self._network, pick.valid
        clip, value_cost, value_clip, entropy_cost, anchor_cost = self._costs
        advantages = pick.of(batch.advantages)
        if self._normalises:
            advantages = normalised(advantages, valid)
        outputs, values = self.forward(batch, pick)
        masks = pick.masks_of(batch.masks)
        log_pi, entropies = network.actions.log_probs_and_entropy(
            outputs, pick.of(batch.actions), masks
        )
        log_prox = pick.of(batch.log_prox)
        if valid is not None:
            # Padding rows get a ratio of 1: the gradient of an infinite ratio is NaN.
            log_pi = torch.where(valid > 0, log_pi, log_prox)
        surrogates, errors = self._losses(
            Minibatch(
                log_probs=log_pi,
                entropies=entropies.expand_as(values),
                values=values,
                old_log_probs=log_prox,
                old_values=pick.of(batch.values),
                advantages=advantages,
                targets=pick.of(batch.targets),
                clip=clip,
                value_clip=value_clip,
                settings=self._settings,
            )
        )
        entropy = mean_of(entropies.expand_as(values), valid)
        policy_loss = mean_of(pick.of(batch.weights) * surrogates, valid)
        error = mean_of(errors, valid)
        loss = policy_loss + value_cost.squeeze(1) * error - entropy_cost.squeeze(1) * entropy
        if self._anchor is not None:
            with torch.no_grad():
                anchored, observations = self._anchor.parameters, pick.of(batch.observations)
                anchor_outputs, _ = network.policy_and_value(
                    anchored, network.prepare(anchored, observations)
                )
            divergence = network.actions.divergence(outputs, anchor_outputs, masks)
            loss = loss + anchor_cost.squeeze(1) * mean_of(divergence.expand_as(values), valid)
        self._part.backward(loss.sum())
        with torch.no_grad():
            kl = mean_of(kl_estimate(log_pi, log_prox), valid)
            clipped = ((log_pi - log_prox).exp() - 1.0).abs() > clip
            share = mean_of(clipped.float(), valid)
            return torch.stack(Means(loss, policy_loss, error, entropy, kl, share))

    def _step_by_kernels(self, objective: Objective, batch: RolloutBatch, pick: Pick) -> Tensor:
        """Do the same as `step`; torch differentiates the network, and kernels the loss."""
        part, pieces = self._part, list(self.pieces(pick))
        minibatch = MinibatchObjective(objective, batch, rows_of(pick)[0], self._log_scales)
        # Pieces add to the sums in a fixed order: each waits for the one before it.
        added = [threading.Event() for _ in pieces]

        def gradients_of(number: int) -> Sequence[Tensor]:
            try:
                outputs = self.forward(batch, pieces[number])
                if number:
                    added[number - 1].wait()
                errors = self._differentiated(minibatch, pieces[number], *outputs)
            finally:  # even if it failed, so that later pieces stop waiting
                added[number].set()
            return part.gradients_of(outputs, errors)

        for number, gradients in enumerate(each(gradients_of, range(len(pieces)))):
            part.take(gradients, add=number > 0)
        if self._network.actions.num_scales:
            by_scales = torch.from_numpy(minibatch.by_scales)
            self._part.gradient_views["log_scale"][:, 0].copy_(by_scales)
        return torch.from_numpy(minibatch.means.astype(np.float32))

    def _differentiated(
        self, minibatch: MinibatchObjective, piece: Pick, outputs: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        logits = self._network.actions.num_logits
        rows, order = rows_of(piece)
        joined = self._joined(outputs.detach(), values.detach(), order)
        minibatch.differentiate(joined, slice(0, len(joined)), rows)
        if order is not None:
            reordered = np.empty_like(joined)
            np.put_along_axis(reordered, order[..., None], joined, 1)
            joined = reordered
        errors = torch.zeros_like(outputs)
        errors[..., :logits] = torch.from_numpy(joined[..., :logits])
        return errors, torch.from_numpy(joined[..., logits])

    def pieces(self, pick: Pick) -> Iterator[Pick]:
        """Split a pick into pieces of consecutive rows; a pick of sequences is not split."""
        length, most = pick.rows.shape[1], self._piece
        if pick.memory is not None or most is None or length <= most:
            yield pick
            return
        for start in range(0, length, most):
            rows = np.ascontiguousarray(pick.rows[:, start : start + most])
            counts = np.clip(pick.counts - start, 0, rows.shape[1])
            if counts.any():
                yield Pick(pick.members, rows, pick.stride, pick.device, counts)

    @property
    def _log_scales(self) -> Floats:
        return log_scales_of(self._part, self._network.actions.num_scales)

    def _joined(self, outputs: Tensor, values: Tensor, order: Integers | None) -> Floats:
        """Return logits or means, then the value: [G, B, L + 1], with the rows in `order`."""
        logits = self._network.actions.num_logits
        joined: Floats = torch.cat((outputs[..., :logits], values.unsqueeze(-1)), -1).numpy()
        return joined if order is None else np.take_along_axis(joined, order[..., None], 1)
