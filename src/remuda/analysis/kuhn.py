"""Kuhn poker worked out exactly: what strategies earn, and how much best answers to them gain.

A strategy of one player is an array [3, 2] of probabilities to bet: by its card (jack, queen, king)
and by where it is asked. Player 0 is asked at the start, and after it passed and the other bet;
player 1 after a pass, and after a bet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations, product

import numpy as np
import numpy.typing as npt
import torch

from remuda.envs.kuhn_poker import BET, BETS, PASS, PASSED, PASSED_BETS, START
from remuda.policies.spec import PolicySpec
from remuda.policies.stack import ParameterStack
from remuda.types import Floats

Strategy = npt.NDArray[np.float64]
ASKED = ((START, PASSED_BETS), (PASSED, BETS))
"""By player, what has been done when it is asked the first and the second way."""
VALUE = -1.0 / 18.0
"""What player 0 earns a game at equilibrium (Kuhn 1950)."""


def value(first: Strategy, second: Strategy) -> float:
    """What player 0 earns a game, on average over the deals."""
    return float(np.mean([_deal(first, second, *cards) for cards in permutations(range(3), 2)]))


def exploitability(first: Strategy, second: Strategy) -> float:
    """NashConv / 2: what best answers to both would gain, on average; 0 at an equilibrium."""
    best_first = max(value(pure, second) for pure in _pure())
    best_second = max(-value(first, pure) for pure in _pure())
    return (best_first + best_second) / 2.0


def average(firsts: Sequence[Strategy], seconds: Sequence[Strategy]) -> tuple[Strategy, Strategy]:
    """The strategies that play as one drawn from each list for a whole game does.

    What a player does after it passed counts by how often it passed.
    """
    passes = np.array([1.0 - first[:, 0] for first in firsts])
    later = np.array([first[:, 1] for first in firsts])
    first = np.mean(firsts, axis=0)
    total = passes.sum(0)
    first[:, 1] = np.where(total > 0.0, (passes * later).sum(0) / np.maximum(total, 1e-12), 0.5)
    return first, np.mean(seconds, axis=0)


def strategies(spec: PolicySpec, weights: Floats) -> tuple[Strategy, Strategy]:
    """What a policy of an actor-critic does as player 0, and as player 1."""
    network = spec.network()
    stack = ParameterStack(network.shapes, 1)
    found = np.zeros((2, 3, 2))
    with torch.inference_mode():
        stack.flat[0].copy_(torch.from_numpy(weights))
        acting = network.acting(stack.parameters, None)
        for player, card, asked in product(range(2), range(3), range(2)):
            seen = torch.zeros(1, 1, spec.observation_size)
            seen[0, 0, card] = seen[0, 0, 3 + ASKED[player][asked]] = seen[0, 0, 7] = 1.0
            logits = network.outputs(acting, seen)[0, 0, [PASS, BET]].double()
            found[player, card, asked] = float(logits.softmax(0)[1])
    return found[0], found[1]


def summary(first: Strategy, second: Strategy) -> Mapping[str, float]:
    """Exploitability, and the value to player 0."""
    return {"exploitability": exploitability(first, second), "value": value(first, second)}


def _deal(first: Strategy, second: Strategy, card: int, other: int) -> float:
    """What player 0 earns with these cards."""
    sign = 1.0 if card > other else -1.0
    bets, answers = first[card]
    raises, calls = second[other]
    after_bet = calls * 2.0 * sign + (1.0 - calls)
    after_raise = answers * 2.0 * sign - (1.0 - answers)
    after_pass = raises * after_raise + (1.0 - raises) * sign
    return float(bets * after_bet + (1.0 - bets) * after_pass)


def _pure() -> list[Strategy]:
    """All strategies without chance: 64."""
    return [np.array(bits, np.float64).reshape(3, 2) for bits in product((0.0, 1.0), repeat=6)]
