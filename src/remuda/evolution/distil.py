"""Distillation: one child that is trained to do what two parents do, each on its own states.

Rusu et al. 2016, "Policy distillation": policies by their divergence, values by regression. The
parents may have other networks than the child, and than each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from remuda.errors import UsageError
from remuda.evolution.layout import Layout, Outputs
from remuda.policies.actions import Actions
from remuda.policies.optimizer import Adam
from remuda.types import Array, Floats

Loss = Callable[[Tensor, Tensor], Tensor]
"""From outputs [B, O] of the child and of a parent, how far they are apart: [B]."""

EPSILON = 1e-8
"""Adam's denominator offset."""


@dataclass(frozen=True)
class Teacher:
    """A parent, and what it saw.

    Attributes:
        outputs: what it makes of weights and states.
        weights: [P] its own.
        states: [N, ...] that it met.
    """

    outputs: Outputs
    weights: Array
    states: npt.NDArray[np.generic]


@dataclass(frozen=True)
class Distilled:
    """A child of several parents.

    Attributes:
        weights: [P].
        before: the mean loss over all states, with the weights that it began with.
        after: the same once it was trained.
    """

    weights: Floats
    before: float
    after: float


def divergence_of(actions: Actions) -> Loss:
    """KL(parent, child) in nats, for outputs that describe distributions of these actions."""

    def loss(child: Tensor, parent: Tensor) -> Tensor:
        return actions.divergence(parent[None], child[None], None)[0]

    return loss


def squared_error(child: Tensor, parent: Tensor) -> Tensor:
    """The mean squared difference of the outputs, for values of actions."""
    return (child - parent).square().mean(-1)


def distil(
    weights: Array,
    layout: Layout,
    outputs: Outputs,
    teachers: Sequence[Teacher],
    loss: Loss,
    rng: np.random.Generator,
    *,
    steps: int = 400,
    learning_rate: float = 1e-3,
    batch_size: int = 128,
) -> Distilled:
    """Train a child to give, on the states of each parent, the outputs of that parent.

    Each batch has states of all parents in equal shares, however many each brings. Buffers of the
    child stay as they are. Takes `steps` passes forth and back, by Adam.

    Args:
        weights: [P] that it begins with, such as those of the better parent.
        layout: of the child.
        outputs: what the child makes of weights and states.
        teachers: the parents.
        loss: `divergence_of` what the policy can do, or `squared_error` of values.
        rng: draws batches.
        steps: of gradient descent; with 0 the weights stay as they are.
        learning_rate: of Adam.
        batch_size: states of a step, one of each parent at least.

    Raises:
        UsageError: a parent has no states, outputs of another size than the child's or not finite
            ones; a number is out of its bounds; or the training diverged.
    """
    if steps < 0 or batch_size < 1 or not 0.0 < learning_rate < math.inf:
        raise UsageError(
            f"distillation takes 0 steps or more, a batch of 1 or more and a learning rate above "
            f"0; these are {steps}, {batch_size} and {learning_rate}"
        )
    flat = torch.from_numpy(layout.checked(weights))[None]
    lessons = [_lesson(number, teacher) for number, teacher in enumerate(teachers)]
    if not lessons:
        raise UsageError("distillation takes one parent at least; there is none")
    before = _mean_loss(flat, outputs, lessons, loss)
    gradients = torch.zeros_like(flat)
    adam = Adam(flat, gradients, [learning_rate], [EPSILON])
    fixed = torch.from_numpy(~layout.learned)
    share = max(1, batch_size // len(lessons))
    for _ in range(steps):
        vector = flat[0].detach().requires_grad_()
        total = torch.zeros(())
        for states, targets in lessons:
            drawn = torch.from_numpy(rng.integers(len(states), size=share))
            total = total + loss(outputs(vector, states[drawn]), targets[drawn]).mean()
        (slope,) = torch.autograd.grad(total / len(lessons), vector)
        gradients[0] = slope.masked_fill(fixed, 0.0)
        adam.step()
    after = _mean_loss(flat, outputs, lessons, loss)
    if not (math.isfinite(after) and bool(flat.isfinite().all())):
        raise UsageError(
            f"distillation diverged at a learning rate of {learning_rate:g}: the loss is {after}; "
            "take a smaller one"
        )
    return Distilled(flat[0].numpy().copy(), before, after)


def _lesson(number: int, teacher: Teacher) -> tuple[Tensor, Tensor]:
    """States of a parent, and its outputs there."""
    states = torch.from_numpy(np.asarray(teacher.states, np.float32))
    if not len(states):
        raise UsageError(f"parent {number} has no states; distillation takes one at least of each")
    with torch.no_grad():
        found = teacher.outputs(torch.from_numpy(np.array(teacher.weights, np.float32)), states)
    if not bool(found.isfinite().all()):
        raise UsageError(f"outputs of parent {number} are not finite; leave it out")
    return states, found


def _mean_loss(
    flat: Tensor, outputs: Outputs, lessons: Sequence[tuple[Tensor, Tensor]], loss: Loss
) -> float:
    """The loss over all states, the same share to each parent."""
    means = []
    with torch.no_grad():
        for number, (states, targets) in enumerate(lessons):
            found = outputs(flat[0], states)
            if found.shape != targets.shape:
                raise UsageError(
                    f"parent {number} has {targets.shape[-1]} outputs, and the child "
                    f"{found.shape[-1]}; they must be as many"
                )
            means.append(loss(found, targets).mean())
    return float(torch.stack(means).mean())
