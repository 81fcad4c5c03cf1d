"""Sequential test: the confidence in an answer that is checked repeatedly.

Stopping at the first convincing look stops too often by luck. So the total error probability is
divided among the looks in advance. An answer counts only if its error probability is within that
look's share. The probability of stopping at a wrong answer is then at most the sum of the shares
(the union bound; Lan and DeMets 1983, "Discrete sequential boundaries", set the shares by a
function of the information). Neither the policies' true difference nor the number of looks has to
be known.

The error probability at a look assumes a normal distribution. It is valid if sums of that many
matches are almost normal, and too small if large rare returns have not occurred yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.analysis.ranking.next_matches import Question
from remuda.types import Numbers

EVEN = 4  # larger values divide the error probability more evenly; see `share_of`


def share_of(look: int) -> float:
    """Return the share of look 1, 2, ... in the error probability; all shares add up to 1.

    The share of look k is e / ((k + e - 1) (k + e)) with e = `EVEN`; the sum over k telescopes. A
    share of 6 / (pi k)^2 would give the 20th look only a fifth of this.
    """
    return EVEN / ((look + EVEN - 1) * (look + EVEN))


@dataclass(frozen=True)
class LookResult:
    """The result of a look."""

    words: str  # the answer
    sure: float  # 0 to 1: a lower bound of the confidence, valid over all looks
    unsure: str  # the least certain comparison, as `a before b (71.0% sure)`


@dataclass(frozen=True)
class Look(LookResult):
    """The answer after a round."""

    rounds: int
    matches: int
    wanted: float  # the confidence to reach, 0 to 1
    reached: bool  # True if the confidence is reached at the end of a round

    def as_summary(self) -> dict[str, object]:
        summary = dict(vars(self))
        return {"answer": summary.pop("words"), **summary}


def in_words(sure: float) -> str:
    """Return `71.0% sure`, at most 99.9%; `undecided` below 0.05%."""
    return f"{min(100.0 * sure, 99.9):.1f}% sure" if sure >= 0.0005 else "undecided"


def answer_at_look(payoffs: Payoffs, question: Question, look: int) -> LookResult:
    """Return the answer from the matches, and its confidence at this look.

    The error probability of the answer is at most the sum over its comparisons. (To select the best
    policy, the maximum would suffice: Gutmann and Maymin 1987, "Is the selected population the
    best?")
    """
    from scipy.special import ndtr  # imported here: runs without a test import this file too

    own = np.eye(len(payoffs.names), dtype=np.bool_)
    matrix = np.where(own, 0.0, payoffs.matrix)
    pairs = np.triu_indices(len(matrix), 1)
    counts = payoffs.counts[pairs].astype(np.float64)
    compared = question.compared(matrix, payoffs.moderated[:, :, *pairs])
    doubts = ndtr(-_clear(compared.differences, compared.variances, counts))
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

    Under the null hypothesis a match has a different mean, so the variance about the observed mean
    is larger by the square of the distance between both means. This distance is divided among pairs
    like the variance of the comparison (the most likely such means). So a few equal matches make
    nothing certain: n matches of one pair are at most sqrt(n) away. Efron 1969, "Student's t-test
    under symmetry conditions", has bounds of this ratio.

    `apart`: [D] of `Compared`; `variances`: [D, C], or [D], of `Compared`; `counts`: [C] matches of
    each pair.
    """
    if variances.ndim == 1:
        found = apart / np.sqrt(np.maximum((variances + apart**2) / counts, 1e-300))
    else:
        # If no match of a comparison varied, any of its pairs may have another mean.
        never = np.logical_not(variances.any(1))
        parts = np.where(never[:, None], 1.0, variances) / counts
        moved = apart[:, None] * parts / parts.sum(1, keepdims=True)
        variance = ((variances + moved**2) / counts).sum(1)
        found = apart / np.sqrt(np.maximum(variance, 1e-300))
    clear: Numbers = found
    return clear
