"""Replacements for parts of PyTorch modules that `torch.func.vmap` handles slowly or not at all."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from remuda.policies.networks.kernels.activations import TANH, activate_in_place
from remuda.policies.networks.kernels.gemm import in_transform, suits
from remuda.policies.networks.kernels.perceptron import LINEAR, through

LSTMState = tuple[Tensor, Tensor]  # the output and the cell's state, each [B, H]


def with_own_parts(module: nn.Module, *kinds: type[nn.Module]) -> nn.Module:
    """Return a copy of a module in which `OWN` replaces submodules of these classes.

    A module without such submodules is returned itself. Subclasses, and submodules with a replaced
    `forward`, are skipped, because they may compute something else.
    """
    if not any(_is_plain(part, kinds) for part in module.modules()):
        return module
    found = copy.deepcopy(module)
    for part in found.modules():
        if _is_plain(part, kinds):
            part.forward = partial(OWN[type(part)], part)
    return found


def _is_plain(part: nn.Module, kinds: tuple[type[nn.Module], ...]) -> bool:
    return type(part) in kinds and "forward" not in vars(part)


def linear(layer: nn.Linear, input: Tensor) -> Tensor:  # noqa: A002
    """Apply a linear layer: [..., I] to [..., O]; inside `vmap`, for K policies at once."""
    weight, bias = layer.weight, layer.bias
    if torch.compiler.is_compiling():  # for an exported graph
        return functional.linear(input, weight, bias)
    if in_transform():
        found: Tensor = _Linear.apply(input, weight, bias)  # type: ignore[no-untyped-call]
        return found
    return _products(input[None], weight[None], None if bias is None else bias[None])[0]


def _products(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply inputs [K, ..., I] with weights [K, O, I] and add biases [K, O]."""
    if bias is None:
        bias = torch.zeros(weight.shape[:2], dtype=weight.dtype, device=weight.device)
    rows = inputs.flatten(1, -2) if inputs.dim() > 2 else inputs.unsqueeze(1)
    found = through(rows, [(weight.mT, bias.unsqueeze(1))], LINEAR)
    return found.view(*inputs.shape[:-1], weight.shape[1])


class _Linear(torch.autograd.Function):
    """`torch.nn.functional.linear`, which becomes one product per policy in `vmap`."""

    @staticmethod
    def forward(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(inputs, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs[:2])
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *by_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (errors,), (inputs, weight) = by_outputs, ctx.saved_tensors
        flat, rows = (x.reshape(-1, x.shape[-1]) for x in (errors, inputs))
        by_bias = flat.sum(0) if ctx.needs_input_grad[2] else None
        return errors @ weight, flat.mT @ rows, by_bias

    @staticmethod
    def jvp(ctx: Any, *by_inputs: Tensor | None) -> Tensor | None:
        inputs, weight = ctx.saved_tensors
        by_input, by_weight, by_bias = by_inputs
        parts = [] if by_input is None else [by_input @ weight.mT]
        parts += [] if by_weight is None else [inputs @ by_weight.mT]
        parts += [] if by_bias is None else [by_bias]
        return reduce(torch.add, parts) if parts else None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *arguments: Tensor | None
    ) -> tuple[Tensor, int]:
        inputs, weight, bias = (
            _stacked(part, dim, info.batch_size)
            for part, dim in zip(arguments, in_dims, strict=True)
        )
        assert inputs is not None
        assert weight is not None
        return _products(inputs, weight, bias), 0


def _stacked(part: Tensor | None, dim: int | None, count: int) -> Tensor | None:
    if part is None:
        return None
    return part.expand(count, *part.shape) if dim is None else part.movedim(dim, 0)


def tanh(inputs: Tensor) -> Tensor:
    """Return tanh, computed by the same polynomials as in built-in networks."""
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        return inputs.tanh()
    if in_transform() or (torch.is_grad_enabled() and inputs.requires_grad):
        found: Tensor = _Tanh.apply(inputs)  # type: ignore[no-untyped-call]
        return found
    return _tanh(inputs)


def _tanh(inputs: Tensor) -> Tensor:
    if inputs.layout is not torch.strided or not suits(inputs):
        return inputs.tanh()
    found = inputs.clone(memory_format=torch.contiguous_format)
    activate_in_place(found.view(-1).numpy(), TANH)
    return found


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(inputs: Tensor) -> Tensor:
        return _tanh(inputs.detach())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, *by_outputs: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        found: Tensor = torch.ops.aten.tanh_backward(by_outputs[0], output)
        return found

    @staticmethod
    def jvp(ctx: Any, *by_inputs: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        found: Tensor = by_inputs[0] * (1.0 - output * output)
        return found

    @staticmethod
    def vmap(
        info: Any,  # noqa: ARG004
        in_dims: tuple[int | None, ...],
        *arguments: Tensor,
    ) -> tuple[Tensor, int | None]:
        return tanh(arguments[0]), in_dims[0]


def lstm_step(cell: nn.LSTMCell, input: Tensor, hx: LSTMState | None = None) -> LSTMState:  # noqa: A002
    """Return a step of an LSTM with a forget gate (Gers et al. 2000), as PyTorch defines it."""
    if hx is None:
        zeros = torch.zeros(*input.shape[:-1], cell.hidden_size, dtype=input.dtype)
        hx = (zeros.to(input.device), zeros.to(input.device))
    hidden, cell_state = hx
    gates = functional.linear(input, cell.weight_ih, cell.bias_ih)
    gates = gates + functional.linear(hidden, cell.weight_hh, cell.bias_hh)
    input_gate, forget_gate, new, output_gate = gates.chunk(4, -1)
    cell_state = forget_gate.sigmoid() * cell_state + input_gate.sigmoid() * new.tanh()
    return output_gate.sigmoid() * cell_state.tanh(), cell_state


def _tangent(layer: nn.Tanh, input: Tensor) -> Tensor:  # noqa: A002, ARG001
    return tanh(input)


# by class, a replacement of its `forward`; arguments have torch's names
OWN: dict[type[nn.Module], Callable[..., Any]] = {
    nn.LSTMCell: lstm_step,
    nn.Linear: linear,
    nn.Tanh: _tangent,
}
