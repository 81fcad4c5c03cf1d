"""Modules of a user's whose constants, or first weights, are no finite numbers."""

import torch
from torch import nn


class Masked(nn.Module):
    """Has a causal mask: minus infinity where nothing is to be looked at."""

    def __init__(self, shape, units=8):
        super().__init__()
        self.layer = nn.Linear(shape[0], units)
        self.register_buffer("mask", torch.full((units, units), float("-inf")).triu(1))

    def forward(self, inputs):
        scores = self.layer(inputs)
        return torch.softmax(scores.unsqueeze(-1) + self.mask, -1).sum(-1) + scores


class Broken(nn.Module):
    """Has a first weight that is not a number."""

    def __init__(self, shape):
        super().__init__()
        self.layer = nn.Linear(shape[0], 8)
        with torch.no_grad():
            self.layer.weight[0, 0] = float("nan")

    def forward(self, inputs):
        return self.layer(inputs)
