"""Copies of a user's module, one for each acting policy."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn


class PerPolicyModules:
    """Copies of a module, one for each acting policy: a call costs far less than `vmap`.

    A copy reads the policy's weights in place. It is looked up by the address of the weights, and
    keeps the weights alive, so that no others can get this address.
    """

    def __init__(self, pattern: nn.Module, names: Sequence[str]) -> None:
        """`names` are the parameters and buffers that each policy owns."""
        self._pattern, self._names = pattern, tuple(names)
        self._modules: dict[int, _Bound] = {}  # by the address of the first weight

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_modules": {}}

    def bind(self, weights: Mapping[str, Tensor]) -> None:
        """Make modules for K policies that read these weights [K, ...] on the CPU."""
        for k in range(len(weights[self._names[0]])):
            own = {name: weights[name][k] for name in self._names}
            key = own[self._names[0]].data_ptr()
            if key not in self._modules:
                self._modules[key] = _Bound(self._pattern, own)

    def of(self, weights: Mapping[str, Tensor]) -> list[_Bound] | None:
        """Return the modules of K policies with these weights; None if they are not bound."""
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
                value = weights.get(name_of[id(held)], held)
                setattr(copied, name, value)
                self._buffers.append((copied, name, value))

    def __call__(self, *given: Tensor) -> Any:
        """Apply the module to observations [B, *shape], and to a state if recurrent."""
        found = self._module(*given)
        for part, name, own in self._buffers:  # reset buffers that the call replaced
            if getattr(part, name) is not own:
                setattr(part, name, own)
        return found
