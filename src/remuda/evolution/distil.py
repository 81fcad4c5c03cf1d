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

Lesson = tuple[Tensor, Tensor]
"""States [N, ...] of a parent, and its outputs there [N, O]."""

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
    work = Distillation(
        weights,
        layout,
        outputs,
        [_lesson(number, teacher) for number, teacher in enumerate(teachers)],
        loss,
        rng,
        steps=steps,
        learning_rate=learning_rate,
        batch_size=batch_size,
    )
    while not work.done:
        work.step()
    return work.result()


class Distillation:
    """A distillation that is done step by step; where it is paused makes no difference to it."""

    def __init__(
        self,
        weights: Array,
        layout: Layout,
        outputs: Outputs,
        lessons: Sequence[Lesson],
        loss: Loss,
        rng: np.random.Generator,
        *,
        steps: int = 400,
        learning_rate: float = 1e-3,
        batch_size: int = 128,
    ) -> None:
        """Begin; what is given, and refused, is as for `distil`, but for the lessons.

        Args:
            weights: [P] that the child begins with.
            layout: of the child.
            outputs: what the child makes of weights and states.
            lessons: of each parent its states, and what its outputs are there.
            loss: how far outputs are apart.
            rng: draws batches.
            steps: of gradient descent.
            learning_rate: of Adam.
            batch_size: states of a step.
        """
        if steps < 0 or batch_size < 1 or not 0.0 < learning_rate < math.inf:
            raise UsageError(
                f"distillation takes 0 steps or more, a batch of 1 or more and a learning rate "
                f"above 0; these are {steps}, {batch_size} and {learning_rate}"
            )
        self._flat = torch.from_numpy(layout.checked(weights))[None]
        self._outputs, self._loss, self._rng = outputs, loss, rng
        self._lessons, self._left, self._rate = list(lessons), steps, learning_rate
        if not self._lessons:
            raise UsageError("distillation takes one parent at least; there is none")
        self._before = _mean_loss(self._flat, outputs, self._lessons, loss)
        self._gradients = torch.zeros_like(self._flat)
        self._adam = Adam(self._flat, self._gradients, [learning_rate], [EPSILON])
        self._fixed = torch.from_numpy(~layout.learned)
        self._share = max(1, batch_size // len(self._lessons))

    @property
    def done(self) -> bool:
        """Whether no step is left."""
        return self._left == 0

    def step(self) -> None:
        """One step down the gradient, on a batch of states of all parents."""
        vector = self._flat[0].detach().requires_grad_()
        total = torch.zeros(())
        for states, targets in self._lessons:
            drawn = torch.from_numpy(self._rng.integers(len(states), size=self._share))
            total = total + self._loss(self._outputs(vector, states[drawn]), targets[drawn]).mean()
        (slope,) = torch.autograd.grad(
            total / len(self._lessons), vector, allow_unused=True, materialize_grads=True
        )
        self._gradients[0] = slope.masked_fill(self._fixed, 0.0)
        self._adam.step()
        self._left -= 1

    def result(self) -> Distilled:
        """The child as it is now.

        Raises:
            UsageError: the training diverged.
        """
        after = _mean_loss(self._flat, self._outputs, self._lessons, self._loss)
        if not (math.isfinite(after) and bool(self._flat.isfinite().all())):
            raise UsageError(
                f"distillation diverged at a learning rate of {self._rate:g}: the loss is "
                f"{after}; take a smaller one"
            )
        return Distilled(self._flat[0].numpy().copy(), self._before, after)


def _lesson(number: int, teacher: Teacher) -> Lesson:
    """States of a parent, and its outputs there."""
    states = torch.from_numpy(np.asarray(teacher.states, np.float32))
    if not len(states):
        raise UsageError(f"parent {number} has no states; distillation takes one at least of each")
    with torch.no_grad():
        found = teacher.outputs(torch.from_numpy(np.array(teacher.weights, np.float32)), states)
    if not bool(found.isfinite().all()):
        raise UsageError(f"outputs of parent {number} are not finite; leave it out")
    return states, found


def _mean_loss(flat: Tensor, outputs: Outputs, lessons: Sequence[Lesson], loss: Loss) -> float:
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
