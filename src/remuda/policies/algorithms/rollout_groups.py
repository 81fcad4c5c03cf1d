"""Policies that an update trains side by side, and what it did to each."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.policies.algorithms.autograd import Autograd
from remuda.policies.algorithms.fused import Fused
from remuda.policies.stack import Side
from remuda.types import Floats, Integers


@dataclass(frozen=True)
class Learned:
    """What an update did, by policy: each [G]; means are over its own minibatches."""

    loss: Floats
    """Of all that is minimised."""
    policy_loss: Floats
    """The negative clipped objective by itself."""
    value_loss: Floats
    """Half the squared error of the values, by itself."""
    entropy: Floats
    """In nats."""
    kl: Floats
    """How far the update moved the policy, in nats."""
    clipped: Floats
    """The share of steps whose probability ratio was clipped."""
    gradient_norm: Floats
    """Of the gradient, before it was cut."""
    explained_variance: Floats
    """What the values explained of their targets before the update; NaN: all targets are equal."""
    effective: Floats
    """The effective share of the steps, by how likely these weights were to choose them."""
    samples: Integers
    """Steps that it trained on, counted as often as it did."""
    steps: Integers
    """Steps that it trained on, each counted once."""
    others: Integers
    """Steps of the rollout that others of its group chose..."""
    others_weight: Floats
    """...and the sum of what they weigh, where a fresh step of its own weighs 1."""


@dataclass(frozen=True)
class Group:
    """Policies that are trained side by side, for bringing like amounts."""

    going: Integers
    """Those that are not through, by their place among the policies of the update."""
    members: list[int]
    """The same, by their place in the stack."""
    minibatches: int
    """Parts of an epoch."""
    limits: Floats | None
    """How far each may move before it is through; None: none has a limit."""
    side: Side
    anchor: Side | None
    engine: Fused | Autograd

    def load(self) -> None:
        """Bring the copies up to date: other groups have been in the same places since."""
        self.side.load()
        if self.anchor is not None:
            self.anchor.load()
