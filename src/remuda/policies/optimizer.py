"""Adam for K policies (Kingma and Ba 2015), on the rows of a parameter stack.

The arithmetic is torch's own fused kernel, called once for each row, so that every policy has its
own step count and moments. `torch.optim` is left out: making an optimizer there imports a compiler
that no code here uses, which costs each learner most of a second and much memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from remuda.checkpoint.state import fitting
from remuda.types import State

BETA_1, BETA_2 = 0.9, 0.999


class Adam:
    """Steps down `gradients` [K, P] from `flat` [K, P], in place, each row at its own rate."""

    def __init__(
        self,
        flat: Tensor,
        gradients: Tensor,
        learning_rates: Sequence[float],
        epsilons: Sequence[float],
    ) -> None:
        self._flat, self._gradients = flat, gradients
        self.learning_rates = list(learning_rates)
        """By row; may be changed between two steps."""
        self.epsilons = list(epsilons)
        """Likewise."""
        self._mean = torch.zeros_like(flat)
        self._square = torch.zeros_like(flat)
        self._steps = torch.zeros(len(flat), device=flat.device)
        tensors = (flat.detach(), gradients, self._mean, self._square, self._steps)
        self._rows = list(zip(*(tensor.unbind(0) for tensor in tensors), strict=True))

    def step(self, rows: Sequence[int] | None = None) -> None:
        """Take one step for these rows; for every row unless they are named."""
        alike: dict[tuple[float, float], list[int]] = {}
        for row in range(len(self._flat)) if rows is None else rows:
            kind = (self.learning_rates[row], self.epsilons[row])
            alike.setdefault(kind, []).append(row)
        with torch.no_grad():
            for (learning_rate, epsilon), members in alike.items():
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
        """Let one row begin anew."""
        for tensor in (self._mean, self._square, self._steps):
            tensor[row] = 0.0

    def state(self, row: int) -> State:
        """The moments [P] of one row, and the steps taken."""
        return {
            "mean": self._mean[row].cpu().numpy().copy(),
            "square": self._square[row].cpu().numpy().copy(),
            "steps": float(self._steps[row]),
        }

    def restore(self, row: int, state: State) -> None:
        """Let one row go on from what `state` returned.

        Raises:
            CheckpointError: it was saved for parameters of another shape.
        """
        with torch.no_grad():
            for name, tensor in (("mean", self._mean), ("square", self._square)):
                like = np.empty(tensor[row].shape, np.float32)
                tensor[row].copy_(torch.from_numpy(fitting(state, name, like)))
            self._steps[row] = state["steps"]
