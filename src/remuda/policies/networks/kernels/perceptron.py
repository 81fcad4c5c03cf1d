"""Linear layers with activations, for K policies: forward and backward.

With one CPU thread they use `gemm.py` and one autograd function for all layers, otherwise torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from remuda.policies.networks.kernels.activations import KINDS, activate_in_place, add_up, derive
from remuda.policies.networks.kernels.gemm import add_products, multiply, suits

# weights [K, I, O] and biases [K, 1, O], from the first layer on
Layers = Sequence[tuple[Tensor, Tensor]]
LINEAR = ""  # no activation


def through(x: Tensor, layers: Layers, activation: str) -> Tensor:
    """Apply layers to [K, B, I], each with an activation (relu, tanh or `LINEAR`): [K, B, O]."""
    if not layers:
        return x
    tensors = [part for layer in layers for part in layer]
    if not suits(x, *tensors) or not _fit(x, layers):  # torch reports wrong shapes
        return _by_torch(activation, x, tensors)
    if torch.is_grad_enabled() and (x.requires_grad or any(t.requires_grad for t in tensors)):
        found: Tensor = _Through.apply(activation, x, *tensors)  # type: ignore[no-untyped-call]
        return found
    return _forward(activation, x, tensors)[-1]


def _fit(x: Tensor, layers: Layers) -> bool:
    policies, _, width = x.shape
    for weight, bias in layers:
        outputs = weight.shape[-1]
        if weight.shape != (policies, width, outputs) or bias.shape != (policies, 1, outputs):
            return False
        width = outputs
    return True


def _by_torch(activation: str, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    for weight, bias in zip(tensors[::2], tensors[1::2], strict=True):
        x = torch.baddbmm(bias, x, weight)
        if activation:  # in place: no caller needs the pre-activations
            x = x.tanh_() if activation == "tanh" else x.relu_()
    return x


def _forward(activation: str, x: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    found, x = [], _in_rows(x)
    for weight, bias in zip(tensors[::2], tensors[1::2], strict=True):
        out = x.new_empty(*x.shape[:2], weight.shape[2])
        multiply(x, _in_rows(weight), _in_rows(bias), out)
        if activation:
            activate_in_place(out.view(-1).numpy(), KINDS[activation])
        found.append(out)
        x = out
    return found


class _Through(torch.autograd.Function):
    """`through`, differentiable for all layers at once."""

    @staticmethod
    def forward(ctx: Any, activation: str, x: Tensor, *tensors: Tensor) -> Tensor:
        found = _forward(activation, x, tensors)
        ctx.activation, ctx.count = activation, len(tensors)
        # The backward pass does not need a linear last output, so callers may change it in place.
        ctx.save_for_backward(x, *tensors, *(found if activation else found[:-1]))
        return found[-1]

    @staticmethod
    def backward(ctx: Any, *by_outputs: Tensor) -> tuple[Tensor | None, ...]:
        saved: tuple[Tensor, ...] = ctx.saved_tensors
        inputs, tensors, found = saved[0], saved[1 : 1 + ctx.count], saved[1 + ctx.count :]
        needed, errors = ctx.needs_input_grad[1:], by_outputs[0]
        if torch.is_grad_enabled():  # this gradient will be differentiated again
            # Without these views, earlier steps would count twice.
            own = [x.view_as(x) for x in (inputs, *tensors)]
            out = _by_torch(ctx.activation, own[0], own[1:])
            return None, *gradients_of(out, own, needed, errors)
        gradients: list[Tensor | None] = [None] * (1 + ctx.count)
        if ctx.activation:
            errors = errors.clone(memory_format=torch.contiguous_format)
        for i in range(ctx.count // 2 - 1, -1, -1):
            weight = tensors[2 * i]
            by_bias = errors.new_empty(len(errors), errors.shape[2])
            if ctx.activation:
                derive(errors.numpy(), found[i].numpy(), KINDS[ctx.activation], by_bias.numpy())
            else:
                errors = _in_rows(errors)
                add_up(errors.numpy(), by_bias.numpy())
            gradients[2 + 2 * i] = by_bias[:, None]
            before = found[i - 1] if i else _in_rows(inputs)
            if needed[1 + 2 * i]:
                by_weight = errors.new_empty(weight.shape)
                add_products(before, errors, by_weight, fresh=True)
                gradients[1 + 2 * i] = by_weight
            if i or needed[0]:
                by_inputs = errors.new_empty(before.shape)
                multiply(errors, weight.mT.contiguous(), None, by_inputs)
                errors = by_inputs
        gradients[0] = errors if needed[0] else None
        return None, *gradients


def gradients_of(
    out: Tensor, inputs: Sequence[Tensor], needed: Sequence[bool], errors: Tensor
) -> list[Tensor | None]:
    """Return torch's differentiable gradient for each input."""
    wanted = [x for x, need in zip(inputs, needed, strict=True) if need]
    found = iter(torch.autograd.grad(out, wanted, errors, create_graph=True))
    return [next(found) if need else None for need in needed]


def _in_rows(x: Tensor) -> Tensor:
    return x if x.stride(2) == 1 or x.shape[2] == 1 else x.contiguous()
