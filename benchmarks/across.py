"""Trained policies in seats of a Remuda game, as `worlds.py` plays the sides of two libraries.

Where both sides of a game learn, what one side earns says as much about the other side as
about itself. So the sides of two libraries meet: each plays one side against
the other's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import remuda

Plays = Callable[[Any, int, np.ndarray, np.random.Generator], np.ndarray]
"""A function for `env.scripted`: from observations [N, ...] of an agent to actions [N]."""


def players(kept: Path, sampled: bool) -> dict[str, Plays]:
    """Map agents to functions that act with the other library's policy.

    Args:
        kept: what `peer_programs/sb3_worlds.py` kept: pairs of the agents of a learner and the
            layers that make the logits of their discrete actions.
        sampled: whether actions are drawn by their probabilities; else the likeliest is chosen.
    """
    found: dict[str, Plays] = {}
    for agents, layers in torch.load(kept, weights_only=False):
        for agent in agents:
            found[agent] = _by_logits(layers.eval(), sampled)
    return found


def playing(policy: remuda.Policy, sampled: bool) -> Plays:
    """Return a function that acts with a policy of Remuda in a seat."""
    return _in_a_seat(lambda seen, rng: policy.act(seen, deterministic=not sampled, rng=rng))


def _by_logits(layers: torch.nn.Module, sampled: bool) -> Plays:
    def choose(observations: np.ndarray, random: np.random.Generator) -> np.ndarray:
        with torch.no_grad():
            logits = layers(torch.as_tensor(np.asarray(observations, np.float32))).numpy()
        # The largest of logits with Gumbel noise is a draw by their probabilities.
        noise = random.gumbel(size=logits.shape) if sampled else 0.0
        actions: np.ndarray = (logits + noise).argmax(-1).astype(np.int64)
        return actions

    return _in_a_seat(choose)


def _in_a_seat(choose: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Plays:
    """One who looks at nothing but observations."""
    return lambda _env, _agent, observations, random: choose(observations, random)
