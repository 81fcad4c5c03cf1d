"""The gradient of PPO's loss for multi-layer perceptrons on the processor, in kernels of our own.

It is what `autograd.py` has torch derive, and a test holds the two together. Written out, a
minibatch goes through all layers in pieces that stay in the cache, the matrix products write into
arrays that are used again, and all that lies between the last hidden layer and its gradient is one
loop over rows. On one core that is about twice as fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from remuda.memory.aligned import copied
from remuda.policies.actions import DiscreteActions
from remuda.policies.algorithms.autograd import Batch, Costs, Means
from remuda.policies.algorithms.fused_kernels import (
    add_products,
    derive,
    differentiate,
    evaluate,
    gather,
    standardise,
)
from remuda.policies.algorithms.samples import Pick
from remuda.policies.networks.activations import RELU, TANH, activate_in_place
from remuda.policies.networks.actor_critic import MEAN, VARIANCE, ActorCritic, scale_of
from remuda.policies.stack import ParameterStack
from remuda.types import Bools, Floats, Integers

ROWS_AT_ONCE = 3072
"""Rows that go through all layers together."""


class Heads(NamedTuple):
    """Weights [K, outputs, features] and biases [K, 1, outputs] of the two heads."""

    policy_weight: Floats
    policy_bias: Floats
    value_weight: Floats
    value_bias: Floats


class Workspace:
    """What pieces are worked out in: one array for each layer, for all policies.

    Pieces come one after another, so all policies and all stretches of a stack use the same memory,
    and it is still in the cache when the next piece comes.
    """

    def __init__(self, network: ActorCritic) -> None:
        def rows_of(width: int) -> Tensor:
            return torch.empty(ROWS_AT_ONCE * width)

        self.inputs = rows_of(network.num_inputs)
        self.outputs = rows_of(network.actions.num_logits + 1)
        widths = [
            [network.shapes[f"{name}.weight"][1] for name in names] for names in network.towers
        ]
        self.hidden = [[rows_of(width) for width in tower] for tower in widths]
        self.errors = [[rows_of(width) for width in tower] for tower in widths]


def _piece_of(array: Tensor, policies: int, rows: int) -> Tensor:
    """The beginning of an array, as so many rows of so many policies."""
    width = array.numel() // ROWS_AT_ONCE
    return array[: policies * rows * width].view(policies, rows, width)


@dataclass
class _Tower:
    """Some hidden layers, and the arrays of one piece: pre-activations become activations."""

    weights: list[Tensor]
    biases: list[Tensor]
    weight_gradients: list[Tensor]
    bias_gradients: list[Tensor]
    hidden: list[Tensor]
    errors: list[Tensor]
    """Gradients by pre-activations."""


@dataclass
class _Piece:
    """Where some rows of some policies go through all layers."""

    inputs: Tensor
    towers: list[_Tower]
    by_outputs: Tensor
    """The errors of the logits, then of the value."""
    head_gradients: list[list[Tensor]]
    """Of the policy's head, then of the value's: those of weights and of biases."""


@dataclass
class _Cut:
    """Some rows of a pick that go through all layers together."""

    first: int
    end: int
    """Of the policies of the pick."""
    rows: slice
    """Of the rows of the pick."""
    members: Integers
    """[G]: which policies of the batch they are."""
    index: Integers
    """[G, B]: which of their rows."""
    counts: Integers
    """[G]: how many of these count; the others only fill up."""

    @property
    def here(self) -> slice:
        """The policies of the pick."""
        return slice(self.first, self.end)


class Fused:
    """Evaluates and differentiates G policies of one layout, in pieces of some rows."""

    rows_at_once = ROWS_AT_ONCE
    """Rows of a policy that are best evaluated together."""

    def __init__(
        self,
        network: ActorCritic,
        part: ParameterStack,
        costs: Costs,
        workspace: Workspace,
        normalises: bool = False,
    ) -> None:
        """Work on some policies.

        Args:
            network: of all of them.
            part: their parameters.
            costs: of each.
            workspace: where to work.
            normalises: whether advantages are normalised, by policy and minibatch.
        """
        self._network, self._part, self._costs, self._workspace = network, part, costs, workspace
        self._normalises = normalises
        assert isinstance(network.actions, DiscreteActions)
        self._sizes = np.array(network.actions.sizes, np.int64)
        self._kind = TANH if network.config.activation == "tanh" else RELU
        self._views = {name: view.detach() for name, view in part.parameters.items()}
        self._gradients = part.gradient_views
        self._pieces: dict[tuple[int, int, int], _Piece] = {}

    @staticmethod
    def suits(network: ActorCritic, device: torch.device) -> bool:
        """Whether these networks are of the kind that is written out here."""
        config = network.config
        return (
            device.type == "cpu"
            and isinstance(network.actions, DiscreteActions)
            and network.encoder is None
            and not config.recurrent
        )

    def evaluate(
        self,
        observations: Tensor,
        actions: Tensor,
        masks: Tensor | None,
        picks: Iterable[Pick],
        log_pi: Tensor,
        values: Tensor,
    ) -> None:
        """Write log-probabilities of the actions and values, each [K, R], for the rows picked."""
        allowed = _masks_of(masks, *values.shape)
        for pick in picks:
            for cut in _cut(pick):
                towers = self._forward(observations, cut).towers
                evaluate(
                    towers[0].hidden[-1].numpy(),
                    towers[-1].hidden[-1].numpy(),
                    *self._heads(cut.first, cut.end),
                    cut.members,
                    cut.index,
                    cut.counts,
                    actions.numpy(),
                    allowed,
                    self._sizes,
                    log_pi.numpy(),
                    values.numpy(),
                )

    def step(self, batch: Batch, pick: Pick) -> Tensor:
        """Write the loss's gradients; returns what it was made of, [len(Means), G]."""
        means = np.zeros((len(Means._fields), len(pick.members)))
        shares = 1.0 / pick.counts
        advantages = batch.advantages.numpy()
        standard = np.empty((len(pick.members), 2), np.float32)
        standard[:] = (0.0, 1.0)
        if self._normalises:
            standardise(advantages, pick.members, pick.rows, pick.counts, standard)
        actions, log_prox, weights = (
            part.numpy() for part in (batch.actions, batch.log_prox, batch.weights)
        )
        values, targets = batch.values.numpy(), batch.targets.numpy()
        allowed = _masks_of(batch.masks, *batch.values.shape)
        self._part.gradients.zero_()
        for cut in _cut(pick):
            here = cut.here
            piece = self._forward(batch.observations, cut)
            heads = self._heads(cut.first, cut.end)
            differentiate(
                piece.towers[0].hidden[-1].numpy(),
                piece.towers[-1].hidden[-1].numpy(),
                *heads,
                cut.members,
                cut.index,
                cut.counts,
                actions,
                allowed,
                self._sizes,
                log_prox,
                weights,
                advantages,
                standard[here],
                values,
                targets,
                *(cost[here] for cost in self._costs[:4]),  # it has no anchor
                shares[here],
                piece.by_outputs.numpy(),
                means[:, here],
            )
            self._through_heads(piece, heads)
            for tower in piece.towers:
                self._backward(tower, piece.inputs)
        return torch.from_numpy(means.astype(np.float32))

    def _through_heads(self, piece: _Piece, heads: Heads) -> None:
        """From errors of the outputs to gradients of the heads and errors of the last layers."""
        towers, by_outputs = piece.towers, piece.by_outputs
        parts = [by_outputs[..., :-1], by_outputs[..., -1:]]
        weights = [copied(heads.policy_weight), copied(heads.value_weight)]
        ends = [towers[0], towers[-1]]
        for gradients, part, weight, tower in zip(
            piece.head_gradients, parts, weights, ends, strict=True
        ):
            products = np.zeros(weight.shape, np.float32)
            add_products(tower.hidden[-1].numpy(), part.numpy(), products)
            by_weight, by_bias = gradients
            by_weight.add_(torch.from_numpy(products).mT)
            by_bias.add_(part.sum(1, keepdim=True))
        if len(towers) == 1:  # one trunk: both heads bring their errors to it
            parts, weights = [by_outputs], [torch.cat(weights, 1)]
        for part, weight, tower in zip(parts, weights, towers, strict=True):
            torch.bmm(part, weight, out=tower.errors[-1])
            errors, features = tower.errors[-1].numpy(), tower.hidden[-1].numpy()
            derive(errors.reshape(-1), features.reshape(-1), self._kind)

    def _heads(self, first: int, end: int) -> Heads:
        """The two heads' weights with a row for each output, and their biases; contiguous.

        Those of one policy are contiguous as they lie. Of several they would not be, and what is
        compiled for one kind is not for the other.
        """

        def of(name: str) -> Floats:
            part = self._views[name][first:end].numpy()
            return np.ascontiguousarray(part.swapaxes(1, 2) if name in TURNED else part)

        return Heads(*(of(name) for name in HEADS))

    def _forward(self, observations: Tensor, cut: _Cut) -> _Piece:
        """Bring some rows through the hidden layers."""
        first, end = cut.first, cut.end
        piece = self._piece(first, end, cut.index.shape[1])
        network = self._network
        if network.normalised:
            mean, variance = (self._views[name][first:end, 0] for name in (MEAN, VARIANCE))
            moments = mean.numpy(), scale_of(variance).numpy()
        else:
            unchanged: Floats = np.full((end - first, 1), network.input_scale, np.float32)
            moments = unchanged[:, :0], unchanged
        rows, inputs = observations.numpy(), piece.inputs.numpy()
        for here, there in _neighbours(cut.members):
            gather(rows[there], cut.index[here], *(part[here] for part in moments), inputs[here])
        for tower in piece.towers:
            x = piece.inputs
            for i, hidden in enumerate(tower.hidden):
                torch.baddbmm(tower.biases[i], x, tower.weights[i], out=hidden)
                activate_in_place(hidden.numpy().reshape(-1), self._kind)
                x = hidden
        return piece

    def _backward(self, tower: _Tower, inputs: Tensor) -> None:
        """From the errors of the last hidden layer to the gradients of all of them."""
        for i in range(len(tower.hidden) - 1, -1, -1):
            errors = tower.errors[i]
            before = tower.hidden[i - 1] if i else inputs
            tower.weight_gradients[i].baddbmm_(before.transpose(1, 2), errors)
            tower.bias_gradients[i].add_(errors.sum(1, keepdim=True))
            if i:
                torch.bmm(errors, tower.weights[i].transpose(1, 2), out=tower.errors[i - 1])
                derive(
                    tower.errors[i - 1].numpy().reshape(-1),
                    before.numpy().reshape(-1),
                    self._kind,
                )

    def _piece(self, first: int, end: int, rows: int) -> _Piece:
        """Views of the workspace for so many rows of these policies; they are kept for the next."""
        found = self._pieces.get((first, end, rows))
        if found is None:
            found = self._pieces[first, end, rows] = _Piece(
                _piece_of(self._workspace.inputs, end - first, rows),
                [self._tower(i, first, end, rows) for i in range(len(self._network.towers))],
                _piece_of(self._workspace.outputs, end - first, rows),
                [
                    [self._gradients[f"{head}.{kind}"][first:end] for kind in ("weight", "bias")]
                    for head in ("policy", "value")
                ],
            )
        return found

    def _tower(self, number: int, first: int, end: int, rows: int) -> _Tower:
        names, workspace = self._network.towers[number], self._workspace

        def parts(views: dict[str, Tensor], kind: str) -> list[Tensor]:
            return [views[f"{name}.{kind}"][first:end] for name in names]

        def arrays(of: list[list[Tensor]]) -> list[Tensor]:
            return [_piece_of(array, end - first, rows) for array in of[number]]

        return _Tower(
            parts(self._views, "weight"),
            parts(self._views, "bias"),
            parts(self._gradients, "weight"),
            parts(self._gradients, "bias"),
            arrays(workspace.hidden),
            arrays(workspace.errors),
        )


def _cut(pick: Pick) -> Iterator[_Cut]:
    """Pieces of at most `ROWS_AT_ONCE` rows: a few rows of several policies, or many of one.

    Many rows are cut into pieces of like sizes: each costs some calls, however few its rows.
    """
    policies, rows = pick.rows.shape
    if policies * rows <= ROWS_AT_ONCE:
        yield _Cut(0, policies, slice(0, rows), pick.members, pick.rows, pick.counts)
        return
    together = max(min(ROWS_AT_ONCE // rows, policies), 1)
    for first in range(0, policies, together):
        here = slice(first, min(first + together, policies))
        longest = int(pick.counts[here].max())
        pieces = max(-(-longest // ROWS_AT_ONCE), 1)
        size = max(-(-longest // pieces), 1)
        for start in range(0, longest, size):
            at = slice(start, min(start + size, longest))
            yield _Cut(
                first,
                here.stop,
                at,
                pick.members[here],
                np.ascontiguousarray(pick.rows[here, at]),
                np.clip(pick.counts[here] - start, 0, at.stop - start),
            )


HEADS = ("policy.weight", "policy.bias", "value.weight", "value.bias")
TURNED = ("policy.weight", "value.weight")


def _neighbours(members: Integers) -> list[tuple[slice, slice]]:
    """Stretches of policies that are neighbours in the batch: where in the pick, and in it."""
    first, count = int(members[0]), len(members)
    if int(members[-1]) - first + 1 == count:
        return [(slice(0, count), slice(first, first + count))]
    return [(slice(i, i + 1), slice(int(k), int(k) + 1)) for i, k in enumerate(members)]


def _masks_of(masks: Tensor | None, policies: int, rows: int) -> Bools:
    found: Bools = masks.numpy() if masks is not None else np.zeros((policies, rows, 0), np.bool_)
    return found


# The loops below name rows by their numbers: a view of a row costs more than the row itself.
