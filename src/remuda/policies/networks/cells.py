"""Cells of PyTorch that `torch.func.vmap` cannot bring through, by operations that it can."""

from __future__ import annotations

import copy
from types import MethodType

import torch
from torch import Tensor, nn
from torch.nn import functional

LSTMState = tuple[Tensor, Tensor]
"""The output and the cell's state, each [B, H]."""


def with_plain_cells(module: nn.Module) -> nn.Module:
    """A module in which every `torch.nn.LSTMCell` computes the same by plain operations.

    Parameters have the same names. The module itself stays as it is, and is returned where it has
    no such cell. A class of the user's that is made from one is left alone: it may compute
    something else.
    """
    if not any(type(part) is nn.LSTMCell for part in module.modules()):
        return module
    found = copy.deepcopy(module)
    for part in found.modules():
        if type(part) is nn.LSTMCell:
            part.forward = MethodType(lstm_step, part)  # type: ignore[method-assign]
    return found


def lstm_step(cell: nn.LSTMCell, inputs: Tensor, state: LSTMState | None = None) -> LSTMState:
    """A step of long short-term memory with a forget gate (Gers et al. 2000), as PyTorch has it.

    Args:
        cell: whose weights it takes: gates for input, forgetting, cell and output, in this order.
        inputs: [B, D], or [D].
        state: before, each part [B, H], or [H]; None: zeros.
    """
    if state is None:
        zeros = torch.zeros(*inputs.shape[:-1], cell.hidden_size, dtype=inputs.dtype)
        state = (zeros.to(inputs.device), zeros.to(inputs.device))
    before, kept = state
    gates = functional.linear(inputs, cell.weight_ih, cell.bias_ih)
    gates = gates + functional.linear(before, cell.weight_hh, cell.bias_hh)
    take, keep, new, show = gates.chunk(4, -1)
    kept = keep.sigmoid() * kept + take.sigmoid() * new.tanh()
    return show.sigmoid() * kept.tanh(), kept
