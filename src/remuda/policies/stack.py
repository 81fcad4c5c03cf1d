"""A stack: the parameters of K policies of one layout, as one flat tensor.

`flat` is [K, P]; row k is all of policy k, contiguous, ready to be published or loaded in one copy.
`parameters` are views into it, [K, *shape] by name. Stacking shares nothing between policies: slice
k of every result depends on row k alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import torch
from torch import Tensor

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
    ) -> None:
        self.shapes = dict(shapes)
        size = sum(_numel(shape) for shape in shapes.values())
        self.flat = torch.zeros(num_policies, size, device=device)
        self.parameters = _views(self.flat, self.shapes)
        if trainable:
            self.gradients = torch.zeros_like(self.flat)
            self._gradients = _views(self.gradients, self.shapes)
            for parameter in self.parameters.values():
                parameter.requires_grad_()

    def backward(self, loss: Tensor) -> None:
        """Work out the gradients of a loss, each into its place of `gradients` [K, P]."""
        found = torch.autograd.grad(loss, tuple(self.parameters.values()))
        for view, gradient in zip(self._gradients.values(), found, strict=True):
            view.copy_(gradient)

    def of(self, policy: int) -> dict[str, Tensor]:
        """The parameters of one policy: views, [1, *shape] by name."""
        return _views(self.flat[policy : policy + 1], self.shapes)


def layout_checksum(shapes: Shapes) -> int:
    """A number that tells layouts apart; published weights carry it."""
    return zlib.crc32(repr(list(shapes.items())).encode())


def layout_size(shapes: Shapes) -> int:
    """P: how many numbers one policy has."""
    return sum(_numel(shape) for shape in shapes.values())


def _numel(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


def _views(flat: Tensor, shapes: Shapes) -> dict[str, Tensor]:
    views, start = {}, 0
    for name, shape in shapes.items():
        size = _numel(shape)
        views[name] = flat[:, start : start + size].view(-1, *shape).detach()
        start += size
    return views
