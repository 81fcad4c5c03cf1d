"""Per-policy copies of a user's module, which use the policies' weights in place."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn


class PerPolicyModules:
    """A copy of a module for each policy that acts.

    `vmap` over policies, or `functional_call`, takes a millisecond however few streams there are;
    calling a module takes microseconds. So policies that act, whose weights stay in one place, have
    a module each.

    1. A module computes with the current content of the policy's weights.
    2. It is found by the address of the weights, which it keeps alive, so that other weights are
       never taken for them.
    """

    def __init__(self, pattern: nn.Module, names: Sequence[str]) -> None:
        """Start without copies; `names` are the parameters and buffers that each policy owns."""
        self._pattern, self._names = pattern, tuple(names)
        self._modules: dict[int, _Bound] = {}  # by the address of the first of its weights

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_modules": {}}

    def bind(self, weights: Mapping[str, Tensor]) -> None:
        """Make modules for K policies with these weights [K, ...] on the CPU."""
        for k in range(len(weights[self._names[0]])):
            own = {name: weights[name][k] for name in self._names}
            key = own[self._names[0]].data_ptr()
            if key not in self._modules:
                self._modules[key] = _Bound(self._pattern, own)

    def of(self, weights: Mapping[str, Tensor]) -> list[_Bound] | None:
        """Return the modules of K policies with these weights; None: there are none."""
        if not self._modules:
            return None
        first = weights[self._names[0]]
        begin, step = first.data_ptr(), first.stride(0) * first.element_size()
        found = [self._modules.get(begin + k * step) for k in range(len(first))]
        return None if None in found else [each for each in found if each is not None]


class _Bound:
    def __init__(self, pattern: nn.Module, weights: Mapping[str, Tensor]) -> None:
        named = {**dict(pattern.named_parameters()), **dict(pattern.named_buffers())}
        name_of = {id(tensor): name for name, tensor in named.items()}
        self._module = copy.deepcopy(pattern)
        self._buffers: list[tuple[nn.Module, str, Tensor]] = []
        for part, copied in zip(pattern.modules(), self._module.modules(), strict=True):
            for name, tensor in part.named_parameters(recurse=False, remove_duplicate=False):
                own = weights[name_of[id(tensor)]]
                setattr(copied, name, nn.Parameter(own, requires_grad=False))
            for name, held in part.named_buffers(recurse=False, remove_duplicate=False):
                kept = weights.get(name_of[id(held)], held)
                setattr(copied, name, kept)
                self._buffers.append((copied, name, kept))

    def __call__(self, *given: Tensor) -> Any:
        """Apply it to observations [B, *shape], and a state where it is recurrent."""
        found = self._module(*given)
        for part, name, own in self._buffers:  # what it keeps in a buffer is for one call
            if getattr(part, name) is not own:
                setattr(part, name, own)
        return found
