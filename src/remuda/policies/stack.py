"""A stack: the parameters of K policies of one layout, as one flat tensor.

`flat` is [K, P]; row k is all of policy k, contiguous, ready to be published or loaded in one copy.
Each row begins on a cache line, so that a product comes out the same whichever row it is of.
`parameters` are views into it, [K, *shape] by name. Stacking shares nothing between policies: slice
k of every result depends on row k alone.

Some parameters may be *buffers*: published like the others, but not learned by gradients.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from remuda.types import Floats

LINE = 16
"""Numbers in a cache line."""

Parameters = Mapping[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]
Copy = Callable[[], "ParameterStack"]


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
        size = layout_size(shapes)
        flat = _rows(num_policies, size, device)
        gradients = _rows(num_policies, size, device) if trainable else None
        self._hold(shapes, flat, gradients, buffers)

    def _hold(
        self, shapes: Shapes, flat: Tensor, gradients: Tensor | None, buffers: frozenset[str]
    ) -> None:
        self._trained = gradients is not None
        self._parts: OrderedDict[tuple[int, int], ParameterStack] = OrderedDict()
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
        part = self._parts.pop((first, end), None)
        if part is None:
            part = object.__new__(ParameterStack)
            gradients = self.gradients[first:end] if self._trained else None
            part._hold(self.shapes, self.flat[first:end], gradients, self.buffers)
        self._parts[first, end] = part
        # There are K * K / 2 stretches; the views of the newest 2 K are kept.
        while len(self._parts) > 2 * len(self.flat):
            self._parts.popitem(last=False)
        return part

    def backward(
        self,
        loss: Tensor | Sequence[Tensor],
        errors: Sequence[Tensor] | None = None,
        add: bool = False,
    ) -> None:
        """Work out the gradients of a loss, each into its place of `gradients` [K, P].

        Args:
            loss: one number; or outputs of any shapes.
            errors: what the loss changes with each of the outputs, of the same shapes.
            add: to what is there already.
        """
        self.take(self.gradients_of(loss, errors), add)

    def gradients_of(
        self, loss: Tensor | Sequence[Tensor], errors: Sequence[Tensor] | None = None
    ) -> Sequence[Tensor]:
        """As `backward`, of what is learned; they are to be taken."""
        learned = [self.parameters[name] for name in self._learned]
        return torch.autograd.grad(loss, learned, errors)

    def take(self, found: Sequence[Tensor], add: bool = False) -> None:
        """Write gradients into their place, or add them to what is there already."""
        for name, gradient in zip(self._learned, found, strict=True):
            if add:
                self.gradient_views[name].add_(gradient)
            else:
                self.gradient_views[name].copy_(gradient)

    def of(self, policy: int) -> dict[str, Tensor]:
        """The parameters of one policy: views, [1, *shape] by name."""
        return _views(self.flat[policy : policy + 1], self.shapes)


class Side:
    """Some policies of a stack side by side, to be brought through a network together.

    Neighbours are looked at where they are. Others are copied together: `load` before a pass, and
    `store` what it found. The copy has a place for every policy, so that memory is O(K)
    whichever policies come together.
    """

    def __init__(self, stack: ParameterStack, members: Sequence[int], copy: Copy) -> None:
        """Bring some policies together.

        Args:
            stack: of all policies.
            members: which of them, in ascending order.
            copy: gives one of the same layout, with room for all of them; called where there is
                need.
        """
        first, end = members[0], members[-1] + 1
        self._stack = stack
        self.index: slice | Tensor = slice(first, end)
        """Where they are in the stack."""
        if end - first == len(members):
            self.part = stack.rows(first, end)
        else:
            self.part = copy().rows(0, len(members))
            self.index = torch.tensor(members, device=stack.flat.device)
            self.load()

    def load(self) -> None:
        """Bring the copies up to date."""
        if isinstance(self.index, Tensor):
            with torch.no_grad():
                torch.index_select(self._stack.flat, 0, self.index, out=self.part.flat)

    def store_gradients(self) -> None:
        """Bring the gradients of the copies to their place."""
        if isinstance(self.index, Tensor):
            self._stack.gradients.index_copy_(0, self.index, self.part.gradients)


def whole_rows(x: Tensor) -> Floats:
    """Rows [K, P] of a stack with what fills them up to whole cache lines, in one piece."""
    rows: Floats = x.detach().as_strided((len(x), x.stride(0)), (x.stride(0), 1)).numpy()
    return rows


def layout_checksum(shapes: Shapes) -> int:
    """A number that tells layouts apart; published weights carry it."""
    return zlib.crc32(repr(list(shapes.items())).encode())


def layout_size(shapes: Shapes) -> int:
    """P: how many numbers one policy has."""
    return sum(_numel(shape) for shape in shapes.values())


def _rows(count: int, size: int, device: str | torch.device) -> Tensor:
    """[count, size] zeros whose rows begin on cache lines."""
    return torch.zeros(count, -(-size // LINE) * LINE, dtype=torch.float32, device=device)[:, :size]


def _numel(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


def _views(flat: Tensor, shapes: Shapes) -> dict[str, Tensor]:
    views, start = {}, 0
    for name, shape in shapes.items():
        size = _numel(shape)
        views[name] = flat[:, start : start + size].view(-1, *shape).detach()
        start += size
    return views
