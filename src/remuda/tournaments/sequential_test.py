"""Sequential test: the confidence in an answer under repeated looks.

Stopping at the first convincing look stops too often by luck. So the total error probability is
divided among the looks in advance, and an answer counts only if its error probability is within
that look's share: the chance of stopping at a wrong answer is at most their sum (the union bound;
Lan and DeMets 1983, "Discrete sequential boundaries", spend it by a function of the information).
Neither the policies' true difference nor the number of looks need be known.

The error probability at a look is that of a normal distribution: valid as far as sums of that many
matches are normal, and too small for large rare returns that have not occurred yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remuda.analysis.next_matches import Question
from remuda.analysis.payoff import Payoffs
from remuda.types import Numbers

EVEN = 4  # greater values divide the error probability more evenly; see `share_of`


def share_of(look: int) -> float:
    """Return the share of look 1, 2, ... in the error probability; all add up to 1.

    It is e / ((k + e - 1) (k + e)), whose sum over k telescopes. Shares of 6 / (pi k)^2 would leave
    the 20th look a fifth of this.
    """
    return EVEN / ((look + EVEN - 1) * (look + EVEN))


@dataclass(frozen=True)
class LookResult:
    """The result of a look."""

    words: str  # the answer
    sure: float  # 0 to 1: the least confidence over this look and all before it
    unsure: str  # the least certain comparison, as `a before b (71.0% sure)`


def in_words(sure: float) -> str:
    """Return `71.0% sure`, at most 99.9; `undecided` for no confidence at all."""
    return f"{min(100.0 * sure, 99.9):.1f}% sure" if sure >= 0.0005 else "undecided"


def answer_at_look(payoffs: Payoffs, question: Question, look: int) -> LookResult:
    """Return the answer from the matches, and its confidence at this look.

    The error probability of the answer is at most the sum over its comparisons. (For the best of
    several the largest would do: Gutmann and Maymin 1987, "Is the selected population the best?")
    """
    from scipy.special import ndtr  # late, since a run that judges nothing imports this file too

    own = np.eye(len(payoffs.names), dtype=np.bool_)
    matrix = np.where(own, 0.0, payoffs.matrix)
    pairs = np.triu_indices(len(matrix), 1)
    counts = payoffs.counts[pairs].astype(np.float64)
    compared = question.compared(matrix, payoffs.moderated[:, :, *pairs])
    doubts = ndtr(-_clear(compared.apart, compared.variances, counts))
    allowed = share_of(look)
    least = int(doubts.argmax())
    better, worse = (payoffs.names[of[least]] for of in (compared.better, compared.worse))
    of_least = max(1.0 - float(doubts[least]) / allowed, 0.0)
    return LookResult(
        question.in_words(question.answers(matrix[None])[0], payoffs.names),
        max(1.0 - float(doubts.sum()) / allowed, 0.0),
        f"{better} before {worse} ({in_words(of_least)})",
    )


def _clear(apart: Numbers, variances: Numbers, counts: Numbers) -> Numbers:
    """Return [D]: the distance of each comparison from 0, in standard deviations under the null.

    Under the null hypothesis the variance of a match is about another mean, and so greater by the
    square of their distance, divided among pairs as the variance of the comparison is (the most
    likely such means). So a few equal matches make nothing certain: n of one pair are at most the
    square root of n away. Efron 1969, "Student's t-test under symmetry conditions", has bounds of
    this ratio.

    `apart`: [D] of `Compared`; `variances`: [D, C], or [D], of `Compared`; `counts`: [C] matches of
    each pair.
    """
    if variances.ndim == 1:
        found = apart / np.sqrt(np.maximum((variances + apart**2) / counts, 1e-300))
    else:
        # Where none of its matches varied, any of a comparison's pairs may be otherwise.
        never = np.logical_not(variances.any(1))
        parts = np.where(never[:, None], 1.0, variances) / counts
        moved = apart[:, None] * parts / parts.sum(1, keepdims=True)
        variance = ((variances + moved**2) / counts).sum(1)
        found = apart / np.sqrt(np.maximum(variance, 1e-300))
    clear: Numbers = found
    return clear
