"""A stack: the parameters of K policies of one layout, as one flat tensor.

`flat` is [K, P]; row k is all of policy k, contiguous, ready to be published or loaded in one copy.
Each row begins on a cache line, so that a product comes out the same whichever row it is of.
`parameters` are views into it, [K, *shape] by name. Stacking shares nothing between policies: slice
k of every result depends on row k alone.

Some parameters may be *buffers*: published like the others, but not learned by gradients.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import torch
from torch import Tensor

LINE = 16
"""Numbers in a cache line."""

Parameters = Mapping[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]


class ParameterStack:
    """The parameters of K policies, and where they are trained, their gradients."""

    def __init__(
        self,
        shapes: Shapes,
        num_policies: int,
        device: str | torch.device = "cpu",
        trainable: bool = False,
        buffers: frozenset[str] = frozenset(),
    ) -> None:
        size = sum(_numel(shape) for shape in shapes.values())
        flat = _rows(num_policies, size, device)
        gradients = _rows(num_policies, size, device) if trainable else None
        self._hold(shapes, flat, gradients, buffers)

    def _hold(
        self, shapes: Shapes, flat: Tensor, gradients: Tensor | None, buffers: frozenset[str]
    ) -> None:
        self._trained = gradients is not None
        self.shapes, self.flat, self.buffers = dict(shapes), flat, buffers
        self.parameters = _views(self.flat, self.shapes)
        if gradients is None:
            return
        self.gradients = gradients
        self.gradient_views = _views(self.gradients, self.shapes)
        """Views into `gradients`, [K, *shape] by name."""
        self._learned = [name for name in self.shapes if name not in buffers]
        for name in self._learned:
            self.parameters[name].requires_grad_()

    def rows(self, first: int, end: int) -> ParameterStack:
        """The stack of some of these policies: the same memory, trained by itself."""
        part = object.__new__(ParameterStack)
        gradients = self.gradients[first:end] if self._trained else None
        part._hold(self.shapes, self.flat[first:end], gradients, self.buffers)
        return part

    def backward(self, loss: Tensor) -> None:
        """Work out the gradients of a loss, each into its place of `gradients` [K, P]."""
        found = torch.autograd.grad(loss, [self.parameters[name] for name in self._learned])
        for name, gradient in zip(self._learned, found, strict=True):
            self.gradient_views[name].copy_(gradient)

    def of(self, policy: int) -> dict[str, Tensor]:
        """The parameters of one policy: views, [1, *shape] by name."""
        return _views(self.flat[policy : policy + 1], self.shapes)


def layout_checksum(shapes: Shapes) -> int:
    """A number that tells layouts apart; published weights carry it."""
    return zlib.crc32(repr(list(shapes.items())).encode())


def layout_size(shapes: Shapes) -> int:
    """P: how many numbers one policy has."""
    return sum(_numel(shape) for shape in shapes.values())


def _rows(count: int, size: int, device: str | torch.device) -> Tensor:
    """[count, size] zeros whose rows begin on cache lines."""
    return torch.zeros(count, -(-size // LINE) * LINE, device=device)[:, :size]


def _numel(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


def _views(flat: Tensor, shapes: Shapes) -> dict[str, Tensor]:
    views, start = {}, 0
    for name, shape in shapes.items():
        size = _numel(shape)
        views[name] = flat[:, start : start + size].view(-1, *shape).detach()
        start += size
    return views
