"""The loss of Q-learning and its gradient for multi-layer perceptrons, in kernels of our own.

It is what `dqn.py` has torch derive, and a test holds the two together. A batch of Q-learning is
small: what torch takes to be called is several times what the arithmetic takes. Here all that a
step needs lies ready: arrays for each layer, and with what each product is called.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from remuda.kernels import njit
from remuda.policies.networks.activations import KINDS, STRICT, derive
from remuda.policies.networks.layers import fold_dueling
from remuda.policies.networks.plain_pass import PlainPass
from remuda.policies.networks.products import add_products, multiply
from remuda.policies.networks.q_network import MLP
from remuda.policies.stack import ParameterStack
from remuda.types import Array, Bools, Floats, Integers

HEAD = "head"


class Settings(NamedTuple):
    """What of the configuration shapes the loss."""

    double: bool
    """Whether the online network chooses the action that the target network values."""
    huber: float
    """Beyond this error the loss is linear."""


class Told(NamedTuple):
    """What a step says of its batch, for G policies and B samples."""

    loss: Tensor
    """[G]: the mean over the samples, each times its weight."""
    value: Tensor
    """[G]: the mean value of the actions."""
    losses: Tensor
    """[G, B]."""
    errors: Tensor
    """[G, B]: how far off each value was."""


class FusedQ:
    """Works out loss and gradients of G policies on batches of B samples each."""

    def __init__(
        self,
        network: MLP,
        online: ParameterStack,
        target: ParameterStack,
        settings: Settings,
        samples: int,
    ) -> None:
        """Make room.

        Args:
            network: of all policies.
            online: their parameters, whose gradients are written.
            target: those of their target networks.
            settings: of the loss.
            samples: B.
        """
        self._network, self._settings = network, settings
        self._dueling = network.config.dueling
        self._kind = KINDS[network.config.activation]
        policies = len(online.flat)
        self._inputs = [torch.zeros(policies, samples, network.num_inputs) for _ in range(2)]
        self._sides = [self._side(stack) for stack in (online, target)]
        views = [{name: x.detach() for name, x in side.items()} for side in self._sides]
        activation, (s_tm1, s_t) = network.config.activation, self._inputs
        self._online_tm1 = PlainPass(views[0], network.layers, s_tm1, activation)
        self._online_t = PlainPass(views[0], network.layers, s_t, activation)
        self._target_t = PlainPass(views[1], network.layers, s_t, activation)
        self._weights = [views[0][f"{name}.weight"] for name in network.layers]
        self._turned = [torch.empty(w.mT.shape) for w in self._weights]
        self._errors = [torch.zeros(policies, samples, w.shape[2]) for w in self._weights]
        self._sums = [torch.empty(policies, w.shape[2]) for w in self._weights]
        self._gradients = online.gradient_views
        self._by_head = torch.zeros(self._weights[-1].shape)
        self._losses, self._taken, self._off = (torch.zeros(policies, samples) for _ in range(3))
        self._every: Bools = np.zeros((policies, samples, 0), np.bool_)
        self._same: Floats = np.zeros((policies, 0), np.float32)

    @property
    def nbytes(self) -> int:
        """Of what is worked out in."""
        passes = (self._online_tm1, self._online_t, self._target_t)
        hidden = [x for each in passes for x in each.hidden]
        return sum(x.nbytes for x in (*self._inputs, *self._turned, *self._errors, *hidden))

    @staticmethod
    def suits(network: Any, device: torch.device) -> bool:
        """Whether these networks are of the kind that is written out here."""
        return (
            type(network) is MLP
            and bool(network.plain_layers)
            and not network.config.noisy
            and network.input_scale == 1.0
            and device.type == "cpu"
            and torch.get_num_threads() == 1
        )

    def step(
        self,
        s_tm1: Tensor,
        a_tm1: Tensor,
        r_t: Tensor,
        discount_t: Tensor,
        s_t: Tensor,
        allowed_t: Tensor,
        weights: Tensor,
    ) -> Told:
        """Write the gradients of a batch, whose parts are those of `Transitions`."""
        for room, seen in zip(self._inputs, (s_tm1, s_t), strict=True):
            room.copy_(seen)
        if self._dueling:
            for side in self._sides:
                self._fold(side)
        q_t = self._target_t()
        select = self._online_t() if self._settings.double else q_t
        q_tm1 = self._online_tm1()
        policies = len(q_t)
        means: Array = np.zeros((2, policies))
        differentiate_q(
            q_t,
            select,
            allowed_t.numpy() if allowed_t.numel() else self._every,
            r_t.numpy(),
            discount_t.numpy(),
            q_tm1,
            a_tm1.numpy(),
            weights.numpy() if weights.numel() else self._same,
            np.float32(self._settings.huber),
            self._errors[-1].numpy(),
            self._losses.numpy(),
            self._taken.numpy(),
            self._off.numpy(),
            means,
        )
        self._backward()
        loss, value = torch.from_numpy(means.astype(np.float32))
        return Told(loss, value, self._losses.clone(), self._off.clone())

    def _backward(self) -> None:
        """From the errors of action values to the gradients of all layers."""
        layers = self._network.layers
        before = [self._inputs[0], *self._online_tm1.hidden]
        for i in range(len(layers) - 1, -1, -1):
            errors, sums = self._errors[i], self._sums[i]
            if i == len(layers) - 1:
                torch.sum(errors, 1, out=sums)
            else:
                derive(errors.numpy(), before[i + 1].numpy(), self._kind, sums.numpy())
            by_weight = self._gradients[f"{layers[i]}.weight"]
            by_bias = self._gradients[f"{layers[i]}.bias"][:, 0]
            if layers[i] == HEAD and self._dueling:
                add_products(before[i], errors, self._by_head, fresh=True)
                _unfold(self._by_head, by_weight)
                _unfold(sums, by_bias)
            else:
                add_products(before[i], errors, by_weight, fresh=True)
                by_bias.copy_(sums)
            if i:
                self._turned[i].copy_(self._weights[i].mT)
                multiply(errors, self._turned[i], None, self._errors[i - 1])

    def _side(self, stack: ParameterStack) -> dict[str, Tensor]:
        """The plain weights of a stack: its own, but for a head that is folded."""
        found = {name: x.detach() for name, x in stack.parameters.items()}
        if self._dueling:
            for part in ("weight", "bias"):
                whole = found[f"{HEAD}.{part}"]
                found[f"whole.{part}"] = whole
                found[f"{HEAD}.{part}"] = torch.zeros(*whole.shape[:2], whole.shape[2] - 1)
        return found

    def _fold(self, side: dict[str, Tensor]) -> None:
        """A head of a value and advantages becomes one of action values, where passes look."""
        folded = fold_dueling(side["whole.weight"], side["whole.bias"])
        for part, found in zip(("weight", "bias"), folded, strict=True):
            side[f"{HEAD}.{part}"].copy_(found)


def _unfold(by_values: Tensor, out: Tensor) -> None:
    """Gradients by action values [..., A] become those by a value and advantages [..., 1 + A]."""
    total = by_values.sum(-1, keepdim=True)
    out[..., :1] = total
    torch.sub(by_values, total, alpha=1.0 / by_values.shape[-1], out=out[..., 1:])


@njit(**STRICT)
def differentiate_q(
    q_t: Floats,
    select: Floats,
    allowed: Bools,
    r_t: Floats,
    discount_t: Floats,
    q_tm1: Floats,
    a_tm1: Integers,
    weights: Floats,
    huber: np.float32,
    by_q: Floats,
    losses: Floats,
    taken: Floats,
    off: Floats,
    means: Array,
) -> None:
    """From action values [G, B, A] to the loss of Q-learning, and back to their errors.

    See `losses.q_learning_target` and `losses.huber` for what is worked out. `by_q` [G, B, A] is
    written: errors of `q_tm1`; so are `losses`, `taken` and `off` [G, B]: values of the actions,
    and how far these are off. To `means` [2, G] the mean loss and value are added.
    """
    samples = q_t.shape[1]
    share = np.float32(1.0 / samples)
    for k in range(q_t.shape[0]):
        for b in range(samples):
            best = -1
            for j in range(q_t.shape[2]):
                if allowed.shape[2] and not allowed[k, b, j]:
                    continue
                here = select[k, b, j]
                if best < 0 or here > select[k, b, best] or np.isnan(here):
                    best = j  # as torch has it: what is no number is the greatest
                    if np.isnan(here):
                        break
            best = max(best, 0)
            value = q_tm1[k, b, a_tm1[k, b]]
            error = r_t[k, b] + discount_t[k, b] * q_t[k, b, best] - value
            size = abs(error)
            loss, slope = np.float32(0.5) * error * error, -error
            if size > huber:
                loss = huber * (size - np.float32(0.5) * huber)
                slope = -huber if error > np.float32(0.0) else huber
            weight = weights[k, b] if weights.shape[1] else np.float32(1.0)
            for j in range(q_t.shape[2]):
                by_q[k, b, j] = np.float32(0.0)
            by_q[k, b, a_tm1[k, b]] = slope * weight * share
            losses[k, b], taken[k, b], off[k, b] = loss, value, error
            means[0, k] += loss * weight / samples
            means[1, k] += value / samples
