"""PPO's gradient for multi-layer perceptrons on the CPU, by compiled kernels.

The result is the same as in `autograd.py`, and takes about half the time on one core. A minibatch
runs through all layers in pieces that stay in the cache, and one loop computes everything after the
heads. With `parts_at_once`, each thread computes a share of a minibatch, and adds up gradients
apart from the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remuda.policies.algorithms.kernels.objective import (
    LossCosts,
    MinibatchObjective,
    Objective,
    RolloutBatch,
    log_scales_of,
)
from remuda.policies.algorithms.kernels.ppo_heads import RowsOf, gather
from remuda.policies.algorithms.samples import Pick
from remuda.policies.networks.actor_critic import MEAN, VARIANCE, ActorCritic, scale_of
from remuda.policies.networks.kernels.activations import RELU, TANH, activate_in_place, derive
from remuda.policies.networks.kernels.gemm import add_products, multiply
from remuda.policies.parallel_parts import count_at_once, each
from remuda.policies.stack import ParameterStack
from remuda.types import Floats, Integers

PIECE = 5 << 20  # bytes of a piece: smaller pieces need more calls, larger ones exceed the cache
LEAST_ROWS, MOST_ROWS = 256, 3072  # bounds of the rows in a piece
SHARE_WORK = 8e6  # multiplications of a share that are worth the start of a thread
HEADS = ("policy", "value")


@dataclass
class _Head:
    """The heads of one tower, joined to one linear layer."""

    weight: Tensor  # [K, features, outputs]
    bias: Tensor  # [K, 1, outputs]
    transposed: Tensor  # [K, outputs, features], the transposed weight
    gradient: Tensor  # [K, outputs, features], transposed
    bias_gradient: Tensor  # [K, outputs]
    columns: slice  # columns of these heads in `Workspace.outputs`


class Workspace:
    """The memory of a piece, with an array for each layer; policies use it one after another."""

    def __init__(self, network: ActorCritic) -> None:
        widths = [
            [network.shapes[f"{name}.weight"][1] for name in names] for names in network.towers
        ]
        outputs = network.actions.num_logits + 1
        # inputs of the policy and, if it gets others, of the value network
        inputs = [network.num_inputs] if network.critic is None else list(network.input_sizes)
        numbers = sum(inputs) + 2 * sum(map(sum, widths)) + outputs
        # maximum rows in a piece
        self.rows = min(max(PIECE // (4 * numbers), LEAST_ROWS), MOST_ROWS)

        def rows_of(width: int) -> Tensor:
            return torch.empty(self.rows * width, dtype=torch.float32)

        self.inputs, self.outputs = [rows_of(each) for each in inputs], rows_of(outputs)
        self.hidden = [[rows_of(width) for width in tower] for tower in widths]
        self.errors = [[rows_of(width) for width in tower] for tower in widths]

    def piece_of(self, array: Tensor, policies: int, rows: int) -> Tensor:
        """Return the beginning of an array as a view [policies, rows, width]."""
        width = array.numel() // self.rows
        return array[: policies * rows * width].view(policies, rows, width)


@dataclass
class _Layer:
    """A hidden layer of G policies, and its arrays in one piece."""

    weight: Tensor  # [G, I, F]
    bias: Tensor  # [G, 1, F]
    weight_gradient: Tensor
    bias_gradient: Tensor
    outputs: Tensor  # [G, B, F]
    errors: Tensor  # gradients with respect to pre-activations


@dataclass
class _Piece:
    """The arrays of a piece of some policies."""

    inputs: list[Tensor]  # of the policy and, with a centralised critic, of the value network
    towers: list[list[_Layer]]
    outputs: Tensor  # logits, then the value; then their errors


@dataclass
class _Cut:
    """Rows that run through all layers together, for policies `first` to `end` - 1."""

    first: int
    end: int
    picked: RowsOf

    @property
    def here(self) -> slice:
        return slice(self.first, self.end)


class Fused:
    """Evaluation and gradients of G policies of one layout, in pieces of rows."""

    def __init__(
        self,
        network: ActorCritic,
        part: ParameterStack,
        costs: LossCosts,
        workspaces: list[Workspace],  # of each thread; more are added as they are needed
        normalises: bool = False,
    ) -> None:
        self._network, self._part = network, part
        self._objective = Objective(network.actions, costs, normalises)
        while len(workspaces) < count_at_once():
            workspaces.append(Workspace(network))
        self._lanes = [_Lane(network, part, workspaces[0])]
        self._workspaces, self._work = workspaces, part.flat.shape[1]
        self.rows_at_once = workspaces[0].rows  # best number of rows of a policy per evaluation

    @staticmethod
    def suits(network: ActorCritic, device: torch.device) -> bool:
        config = network.config
        return (
            device.type == "cpu"
            and type(network) is ActorCritic
            and Objective.suits(network.actions)
            and network.encoder is None
            and network.packing is None
            and network.value_encoder is None
            and (network.critic is None or network.critic.is_plain)
            and isinstance(network.input_scale, float)
            and not config.recurrent
        )

    def evaluate(self, batch: RolloutBatch, picks: Iterable[Pick]) -> None:
        """Write log-probabilities and values of the picked rows to the batch."""
        scales = self._log_scales
        for pick in picks:
            shares = self._shares(RowsOf(pick.members, pick.rows, pick.counts))
            work = [
                (lane, self._objective, scales, batch, share)
                for lane, share in zip(self._lanes, shares, strict=False)
            ]
            for _ in each(lambda of: of[0].evaluate(*of[1:]), work):
                pass

    def step(self, batch: RolloutBatch, pick: Pick) -> Tensor:
        """Write the gradients of the picked rows' loss; return the means [len(Means), G]."""
        rows = RowsOf(pick.members, pick.rows, pick.counts)
        objective = MinibatchObjective(self._objective, batch, rows, self._log_scales)
        shares = self._shares(rows)
        objectives = [objective, *(objective.another() for _ in shares[1:])]
        work = list(zip(self._lanes, objectives, shares, strict=False))
        for _ in each(lambda of: of[0].differentiate(of[1], batch.observations, of[2]), work):
            pass
        for lane, own, _ in work[1:]:  # in order: sums do not depend on which thread ends first
            self._part.gradients += lane.gradients
            objective.add(own)
        if self._network.actions.num_scales:
            scales = self._part.gradient_views["log_scale"]
            scales[:, 0].copy_(torch.from_numpy(objective.by_scales))
        return torch.from_numpy(objective.means.astype(np.float32))

    def _shares(self, rows: RowsOf) -> list[RowsOf]:
        """Divide each policy's rows into shares, at most one per thread."""
        worth = int(int(rows.counts.sum()) * self._work / SHARE_WORK)
        count = max(min(count_at_once(), worth), 1)
        while len(self._lanes) < count:
            stack = self._part.with_own_gradients()
            workspace = self._workspaces[len(self._lanes)]
            self._lanes.append(_Lane(self._network, stack, workspace))
        return _divided(rows, count) if count > 1 else [rows]

    @property
    def _log_scales(self) -> Floats:
        return log_scales_of(self._part, self._network.actions.num_scales)


class _Lane:
    """Evaluation and gradients of G policies in one thread, in its own memory."""

    def __init__(self, network: ActorCritic, part: ParameterStack, workspace: Workspace) -> None:
        self._network, self._part, self._workspace = network, part, workspace
        self._kind = TANH if network.config.activation == "tanh" else RELU
        self._views = {name: view.detach() for name, view in part.parameters.items()}
        self.gradients, self._gradients = part.gradients, part.gradient_views
        self._pieces: dict[tuple[int, int, int], _Piece] = {}

    def evaluate(
        self, objective: Objective, scales: Floats, batch: RolloutBatch, rows: RowsOf
    ) -> None:
        heads = self._heads()
        for cut in _cut(rows, self._workspace.rows):
            outputs = self._forward(batch.observations, cut, heads).outputs.numpy()
            objective.evaluate(outputs, scales[cut.here], cut.picked, batch)

    def differentiate(
        self, objective: MinibatchObjective, observations: Tensor, rows: RowsOf
    ) -> None:
        """Write the gradients of these rows' loss."""
        self.gradients.zero_()
        heads, transposed = self._heads(), self._transposed()
        for cut in _cut(rows, self._workspace.rows):
            here = cut.here
            piece = self._forward(observations, cut, heads)
            objective.differentiate(piece.outputs.numpy(), here, cut.picked)
            for number, (head, tower) in enumerate(zip(heads, piece.towers, strict=True)):
                errors = piece.outputs[..., head.columns]
                add_products(errors, tower[-1].outputs, head.gradient[here])
                head.bias_gradient[here] += errors.sum(1)
                multiply(errors, head.transposed[here], None, tower[-1].errors)
                inputs = piece.inputs[min(number, len(piece.inputs) - 1)]
                self._backward(tower, inputs, [each[here] for each in transposed[number]])
        self._store(heads)

    def _heads(self) -> list[_Head]:
        """Return the heads of each tower; a shared tower has both heads."""
        names = [HEADS] if len(self._network.towers) == 1 else [(name,) for name in HEADS]
        heads, first = [], 0
        for own in names:
            weight, bias = (
                torch.cat([self._views[f"{name}.{kind}"] for name in own], -1)
                for kind in ("weight", "bias")
            )
            transposed = weight.mT.contiguous()
            at = slice(first, first + weight.shape[-1])
            gradients = torch.zeros_like(transposed), transposed.new_zeros(transposed.shape[:2])
            heads.append(_Head(weight, bias, transposed, *gradients, at))
            first = at.stop
        return heads

    def _store(self, heads: list[_Head]) -> None:
        parts = [slice(0, -1), slice(-1, None)] if len(heads) == 1 else [slice(None)] * 2
        for name, part, head in zip(HEADS, parts, (heads[0], heads[-1]), strict=True):
            self._gradients[f"{name}.weight"].copy_(head.gradient[:, part].mT)
            self._gradients[f"{name}.bias"][:, 0].copy_(head.bias_gradient[:, part])

    def _transposed(self) -> list[list[Tensor]]:
        return [
            [self._views[f"{name}.weight"].mT.contiguous() for name in names[1:]]
            for names in self._network.towers
        ]

    def _forward(self, observations: Tensor, cut: _Cut, heads: list[_Head]) -> _Piece:
        first, end = cut.first, cut.end
        piece = self._piece(first, end, cut.picked.rows.shape[1])
        network = self._network
        if network.normalised:
            mean = self._views[MEAN][first:end, 0].numpy()
            scale = scale_of(self._views[VARIANCE][first:end, 0]).numpy()
        else:
            scale = np.full((end - first, 1), network.input_scale, np.float32)
            mean = scale[:, :0]
        rows = observations.numpy()
        for inputs in piece.inputs:
            for here, there in _neighbours(cut.picked.members):
                # The policy's inputs are the first columns.
                picked, out = cut.picked.rows[here], inputs.numpy()[here]
                gather(rows[there], picked, mean[here], scale[here], out)
        for number, (head, tower) in enumerate(zip(heads, piece.towers, strict=True)):
            x = piece.inputs[min(number, len(piece.inputs) - 1)]
            for layer in tower:
                multiply(x, layer.weight, layer.bias, layer.outputs)
                activate_in_place(layer.outputs.numpy().reshape(-1), self._kind)
                x = layer.outputs
            own = slice(first, end)
            multiply(x, head.weight[own], head.bias[own], piece.outputs[..., head.columns])
        return piece

    def _backward(self, tower: list[_Layer], inputs: Tensor, transposed: list[Tensor]) -> None:
        """Backpropagate the last activations' errors to the gradients of all hidden layers."""
        for i in range(len(tower) - 1, -1, -1):
            layer, errors = tower[i], tower[i].errors
            sums: Floats = np.empty((len(errors), errors.shape[2]), np.float32)
            derive(errors.numpy(), layer.outputs.numpy(), self._kind, sums)
            layer.bias_gradient[:, 0].add_(torch.from_numpy(sums))
            add_products(tower[i - 1].outputs if i else inputs, errors, layer.weight_gradient)
            if i:
                multiply(errors, transposed[i - 1], None, tower[i - 1].errors)

    def _piece(self, first: int, end: int, rows: int) -> _Piece:
        piece = self._pieces.get((first, end, rows))
        if piece is None:
            workspace, size = self._workspace, (end - first, rows)
            piece = self._pieces[first, end, rows] = _Piece(
                [workspace.piece_of(inputs, *size) for inputs in workspace.inputs],
                [self._layers(i, first, end, rows) for i in range(len(self._network.towers))],
                workspace.piece_of(workspace.outputs, *size),
            )
        return piece

    def _layers(self, tower: int, first: int, end: int, rows: int) -> list[_Layer]:
        own, workspace = slice(first, end), self._workspace
        names, arrays = self._network.towers[tower], (workspace.hidden, workspace.errors)
        return [
            _Layer(
                self._views[f"{name}.weight"][own],
                self._views[f"{name}.bias"][own],
                self._gradients[f"{name}.weight"][own],
                self._gradients[f"{name}.bias"][own],
                *(workspace.piece_of(array[tower][i], end - first, rows) for array in arrays),
            )
            for i, name in enumerate(names)
        ]


def _cut(rows: RowsOf, most: int) -> Iterator[_Cut]:
    """Yield as few pieces as possible, of similar size and at most `most` rows."""
    policies, longest = rows.rows.shape
    if policies * longest <= most:
        yield _Cut(0, policies, rows)
        return
    together = max(min(most // longest, policies), 1)
    for first in range(0, policies, together):
        here = slice(first, min(first + together, policies))
        own = RowsOf(rows.members[here], rows.rows[here], rows.counts[here])
        for piece in _divided(own, max(-(-int(own.counts.max()) // most), 1)):
            yield _Cut(first, here.stop, piece)


def _divided(rows: RowsOf, count: int) -> list[RowsOf]:
    """Divide each policy's rows into at most `count` parts of similar size."""
    longest = int(rows.counts.max())
    size = max(-(-longest // count), 1)
    parts = []
    for start in range(0, longest, size):
        end = min(start + size, longest)
        own = np.ascontiguousarray(rows.rows[:, start:end])
        parts.append(RowsOf(rows.members, own, np.clip(rows.counts - start, 0, end - start)))
    return parts


def _neighbours(members: Integers) -> list[tuple[slice, slice]]:
    """Return ranges of neighbouring policies: in the pick, and in the batch."""
    first, count = int(members[0]), len(members)
    if int(members[-1]) - first + 1 == count:
        return [(slice(0, count), slice(first, first + count))]
    return [(slice(i, i + 1), slice(int(k), int(k) + 1)) for i, k in enumerate(members)]
