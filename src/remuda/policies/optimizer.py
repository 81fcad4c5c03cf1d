"""Adam for K policies (Kingma and Ba 2015), on the rows of a parameter stack.

With one CPU thread a step is a compiled loop over each row, otherwise it is torch's fused kernel.
`torch.optim` imports a compiler, which would cost each learner most of a second and much memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from remuda.policies.stack import whole_rows
from remuda.system.checkpoint.fitting import COUNT, FINITE, SQUARES, fitting, real
from remuda.system.kernels import njit
from remuda.types import Array, Floats, Integers, State

BETA_1, BETA_2 = 0.9, 0.999


class Adam:
    """Adam on `flat` [K, P] with `gradients` [K, P], in place, with a learning rate per row."""

    def __init__(
        self,
        flat: Tensor,
        gradients: Tensor,
        learning_rates: Sequence[float],
        epsilons: Sequence[float],
    ) -> None:
        self._flat, self._gradients = flat, gradients
        self.learning_rates = list(learning_rates)  # by row, may change between steps
        self.epsilons = list(epsilons)  # by row, may change between steps
        # Padded like the rows of a stack.
        self._mean, self._square = (
            flat.new_zeros(len(flat), flat.stride(0))[:, : flat.shape[1]] for _ in range(2)
        )
        self._steps = flat.new_zeros(len(flat))
        tensors = (flat.detach(), gradients, self._mean, self._square, self._steps)
        self._rows = list(zip(*(tensor.unbind(0) for tensor in tensors), strict=True))
        self._whole: tuple[Any, ...] | None = None
        if flat.device.type == "cpu":
            arrays = [whole_rows(x) for x in (flat, gradients, self._mean, self._square)]
            self._whole = (*arrays, self._steps.numpy())

    def step(self, rows: Sequence[int] | None = None) -> None:
        """Take one step for these rows; None: all rows."""
        if self._whole is not None and torch.get_num_threads() == 1:
            chosen = np.arange(len(self._flat)) if rows is None else np.array(rows, np.int64)
            rates, epsilons = np.array(self.learning_rates), np.array(self.epsilons)
            flat, gradients, mean, square, steps = self._whole
            size = self._flat.shape[1]
            step(flat, gradients, mean, square, steps, chosen, rates, epsilons, size)
            return
        groups: dict[tuple[float, float], list[int]] = {}
        for row in range(len(self._flat)) if rows is None else rows:
            kind = (self.learning_rates[row], self.epsilons[row])
            groups.setdefault(kind, []).append(row)
        with torch.no_grad():
            for (learning_rate, epsilon), members in groups.items():
                flat, gradients, mean, square, steps = zip(
                    *(self._rows[row] for row in members), strict=True
                )
                torch._foreach_add_(steps, 1)
                torch._fused_adam_(
                    flat,
                    gradients,
                    mean,
                    square,
                    [],
                    steps,
                    lr=learning_rate,
                    beta1=BETA_1,
                    beta2=BETA_2,
                    weight_decay=0.0,
                    eps=epsilon,
                    amsgrad=False,
                    maximize=False,
                )

    def forget(self, row: int) -> None:
        for tensor in (self._mean, self._square, self._steps):
            tensor[row] = 0.0

    def state(self, row: int) -> State:
        return {
            "mean": self._mean[row].cpu().numpy().copy(),
            "square": self._square[row].cpu().numpy().copy(),
            "steps": float(self._steps[row]),
        }

    def restore(self, row: int, state: State) -> None:
        with torch.no_grad():
            moments = (("mean", self._mean, FINITE), ("square", self._square, SQUARES))
            for name, tensor, allowed in moments:
                like = np.empty(tensor[row].shape, np.float32)
                tensor[row].copy_(torch.from_numpy(fitting(state, name, like, allowed)))
            self._steps[row] = real(state, "steps", COUNT)


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def step(
    flat: Floats,
    gradients: Floats,
    means: Floats,
    squares: Floats,
    steps: Floats,
    rows: Integers,
    learning_rates: Array,
    epsilons: Array,
    size: int,
) -> None:
    """Take one step for the first `size` numbers of some rows of [K, P]."""
    keep_square = np.float32(BETA_2)
    take, take_square = np.float32(1.0 - BETA_1), np.float32(1.0 - BETA_2)
    for row in rows:
        steps[row] += np.float32(1.0)
        own, gradient, mean, square = flat[row], gradients[row], means[row], squares[row]
        rate = np.float32(learning_rates[row] / (1.0 - BETA_1 ** steps[row]))
        scale = np.float32(math.sqrt(1.0 - BETA_2 ** steps[row]))
        epsilon = np.float32(epsilons[row])
        for i in range(size):
            g = gradient[i]
            m = mean[i] + take * (g - mean[i])
            v = keep_square * square[i] + take_square * g * g
            mean[i], square[i] = m, v
            own[i] += -rate * m / (np.sqrt(v) / scale + epsilon)
