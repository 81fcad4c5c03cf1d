"""The parameters of K policies of one layout, as one flat tensor.

`flat` is [K, P]; row k contains policy k. Rows are contiguous and start at a cache line, so that a
product does not depend on the row. `parameters` are named views [K, *shape]. Some of them may be
*buffers*, which are published, but not learned by gradients.
"""

from __future__ import annotations

import math
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from remuda.system.checkpoint.fitting import fitting
from remuda.types import Floats, State

LINE = 16  # numbers in a cache line

Parameters = Mapping[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]


class ParameterStack:
    """The parameters of K policies and, if trainable, their gradients."""

    def __init__(
        self,
        shapes: Shapes,
        num_policies: int,
        device: str | torch.device = "cpu",
        trainable: bool = False,
        buffers: frozenset[str] = frozenset(),
    ) -> None:
        size = layout_size(shapes)
        flat = _rows(num_policies, size, device)
        gradients = _rows(num_policies, size, device) if trainable else None
        self._hold(shapes, flat, gradients, buffers)

    def _hold(
        self, shapes: Shapes, flat: Tensor, gradients: Tensor | None, buffers: frozenset[str]
    ) -> None:
        self._trained = gradients is not None
        self.parts: OrderedDict[tuple[int, int], ParameterStack] = OrderedDict()
        self.shapes, self.flat, self.buffers = dict(shapes), flat, buffers
        self.parameters = _views(self.flat, self.shapes)
        if gradients is None:
            return
        self.gradients = gradients
        # views [K, *shape] of `gradients`
        self.gradient_views = _views(self.gradients, self.shapes)
        self._learned = [name for name in self.shapes if name not in buffers]
        for name in self._learned:
            self.parameters[name].requires_grad_()

    @cached_property
    def spare(self) -> ParameterStack:
        """Return another stack of this layout, for copies of policies that are not neighbours."""
        return ParameterStack(
            self.shapes, len(self.flat), self.flat.device, self._trained, self.buffers
        )

    def rows(self, first: int, end: int) -> ParameterStack:
        """Return a stack of policies `first` to `end` - 1, in the same memory."""
        part = self.parts.pop((first, end), None)
        if part is None:
            part = object.__new__(ParameterStack)
            gradients = self.gradients[first:end] if self._trained else None
            part._hold(self.shapes, self.flat[first:end], gradients, self.buffers)
        self.parts[first, end] = part
        # There are K * K / 2 possible ranges; cache the views of the 2 K most recently used.
        while len(self.parts) > 2 * len(self.flat):
            self.parts.popitem(last=False)
        return part

    def backward(self, loss: Tensor) -> None:
        """Backpropagate a loss to `gradients`."""
        self.take(self.gradients_of([loss], None))

    def gradients_of(
        self, outputs: Sequence[Tensor], errors: Sequence[Tensor] | None
    ) -> Sequence[Tensor]:
        """Return the gradients of the learned parameters from those of outputs, for `take`."""
        learned = [self.parameters[name] for name in self._learned]
        return torch.autograd.grad(outputs, learned, errors)

    def take(self, gradients: Sequence[Tensor], add: bool = False) -> None:
        """Write or add gradients to `gradients`."""
        for name, gradient in zip(self._learned, gradients, strict=True):
            if add:
                self.gradient_views[name].add_(gradient)
            else:
                self.gradient_views[name].copy_(gradient)

    def write(self, policy: int, weights: Tensor | Floats) -> None:
        """Overwrite the parameters of one policy with weights [P]."""
        with torch.no_grad():
            self.flat[policy].copy_(torch.as_tensor(weights))

    def restore(self, policy: int, state: State, name: str) -> None:
        """Restore one policy's parameters; raise CheckpointError if the state does not fit."""
        self.write(policy, fitting(state, name, np.empty(self.flat.shape[1], np.float32)))

    def read(self, policy: int) -> Floats:
        weights: Floats = self.flat[policy].detach().cpu().numpy().copy()
        return weights

    def of(self, policy: int) -> dict[str, Tensor]:
        """Return the parameters of one policy, views [1, *shape]."""
        return _views(self.flat[policy : policy + 1], self.shapes)


class Side:
    """Some policies of a stack, in ascending order, that run through a network together.

    Neighbouring policies are used in place. Others are copied to another stack: call `load` before
    a pass, and `store_gradients` after it.
    """

    def __init__(self, stack: ParameterStack, members: Sequence[int]) -> None:
        first, end = members[0], members[-1] + 1
        self._stack = stack
        self.index: slice | Tensor = slice(first, end)  # rows of the members in the stack
        if end - first == len(members):
            self.part = stack.rows(first, end)
        else:
            self.part = stack.spare.rows(0, len(members))
            self.index = torch.tensor(members, device=stack.flat.device)
            self.load()

    def load(self) -> None:
        if isinstance(self.index, Tensor):
            with torch.no_grad():
                torch.index_select(self._stack.flat, 0, self.index, out=self.part.flat)

    def store_gradients(self) -> None:
        if isinstance(self.index, Tensor):
            self._stack.gradients.index_copy_(0, self.index, self.part.gradients)


def whole_rows(x: Tensor) -> Floats:
    """Return the rows [K, P] of a stack with the padding that fills their last cache line."""
    rows: Floats = x.detach().as_strided((len(x), x.stride(0)), (x.stride(0), 1)).numpy()
    return rows


def layout_checksum(shapes: Shapes) -> int:
    """Return a checksum of the layout, to compare with that of published weights."""
    return zlib.crc32(repr(list(shapes.items())).encode())


def layout_size(shapes: Shapes) -> int:
    """Return P, the number of values of one policy."""
    return sum(math.prod(shape) for shape in shapes.values())


def _rows(count: int, size: int, device: str | torch.device) -> Tensor:
    return torch.zeros(count, -(-size // LINE) * LINE, dtype=torch.float32, device=device)[:, :size]


def starts_of(shapes: Shapes) -> dict[str, int]:
    """Return the index of each parameter's first number in a row."""
    ends = accumulate(map(math.prod, shapes.values()), initial=0)
    return dict(zip(shapes, ends, strict=False))


def _views(flat: Tensor, shapes: Shapes) -> dict[str, Tensor]:
    return {
        name: flat[:, start : start + math.prod(shapes[name])].view(-1, *shapes[name]).detach()
        for name, start in starts_of(shapes).items()
    }
