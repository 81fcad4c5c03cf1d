"""Adam for K policies (Kingma and Ba 2015), on the rows of a parameter stack.

The arithmetic is torch's own fused kernel, called once for each row, so that every policy has its
own step count and moments. `torch.optim` is left out: making an optimizer there imports a compiler
that nobody here uses, which costs each learner most of a second and much memory.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from remuda.checkpoint.state import fitting
from remuda.types import State

BETA_1, BETA_2 = 0.9, 0.999


class Adam:
    """Steps down `gradients` [K, P] from `flat` [K, P], in place."""

    def __init__(
        self, flat: Tensor, gradients: Tensor, learning_rate: float, epsilon: float
    ) -> None:
        self._flat, self._gradients = flat, gradients
        self._learning_rate, self._epsilon = learning_rate, epsilon
        self._mean = torch.zeros_like(flat)
        self._square = torch.zeros_like(flat)
        self._steps = torch.zeros(len(flat), device=flat.device)

    def step(self) -> None:
        """Take one step for every policy."""
        with torch.no_grad():
            torch._fused_adam_(
                list(self._flat),
                list(self._gradients),
                list(self._mean),
                list(self._square),
                [],
                self._advanced(),
                lr=self._learning_rate,
                beta1=BETA_1,
                beta2=BETA_2,
                weight_decay=0.0,
                eps=self._epsilon,
                amsgrad=False,
                maximize=False,
            )

    def _advanced(self) -> list[Tensor]:
        """Each policy's steps, this one counted."""
        self._steps += 1
        return list(self._steps)

    def state(self) -> State:
        """The moments [K, P] and the steps [K] taken."""
        return {
            "mean": self._mean.cpu().numpy().copy(),
            "square": self._square.cpu().numpy().copy(),
            "steps": self._steps.cpu().numpy().copy(),
        }

    def restore(self, state: State) -> None:
        """Go on from what `state` returned.

        Raises:
            CheckpointError: it was saved for parameters of another shape.
        """
        with torch.no_grad():
            for name, tensor in (
                ("mean", self._mean),
                ("square", self._square),
                ("steps", self._steps),
            ):
                like = np.empty(tensor.shape, np.float32)
                tensor.copy_(torch.from_numpy(fitting(state, name, like)))
