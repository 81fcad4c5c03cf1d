"""How much doubt is left of an answer that is looked for again and again.

Who looks often and ends as soon as it looks well ends too often by luck. So the doubt that is
allowed in all is shared out among the looks beforehand, and an answer counts at a look only if its
doubt there is within that look's share: the chance that any look ends with a wrong answer is then
their sum at most (the union bound; Lan and DeMets 1983, "Discrete sequential boundaries", spend it
by a function of what is known by then). Nothing has to be known of how near the policies are, nor
how many looks there will be.

The doubt at a look is by the normal distribution: it is as good as sums of that many matches are
normal, and says too little of returns that are rare and large, as long as none of them was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remuda.analysis.payoff import Numbers, Payoffs
from remuda.analysis.plan import Question

EVEN = 4
"""The greater, the more evenly the doubt is shared out among looks; see `share_of`."""


def share_of(look: int) -> float:
    """The share of all doubt that look 1, 2, ... may leave: e / ((k + e - 1) (k + e)), in all 1.

    The sum over k telescopes. Shares of 6 / (pi k)^2 would leave the 20th look a fifth of this.
    """
    return EVEN / ((look + EVEN - 1) * (look + EVEN))


@dataclass(frozen=True)
class Known:
    """What the matches say at a look."""

    words: str
    """The answer."""
    sure: float
    """0 to 1: at least so sure it is, over this look and all before it."""
    unsure: str
    """The comparison that is the least sure, as `a before b (71.0% sure)`."""


def in_words(sure: float) -> str:
    """`71.0% sure`, 99.9 at most; where all doubt that a look may leave is left: `undecided`."""
    return f"{min(100.0 * sure, 99.9):.1f}% sure" if sure >= 0.0005 else "undecided"


def look_at(payoffs: Payoffs, question: Question, look: int) -> Known:
    """What the matches say, and how sure that is at this look.

    Of the comparisons of which the answer is made some is wrong with the sum of their doubts at
    most. (For the best of several the largest would do: Gutmann and Maymin 1987, "Is the selected
    population the best?")

    Args:
        payoffs: symmetric, each two met at least once.
        question: that is asked.
        look: which it is: 1, 2, ...
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
    return Known(
        question.in_words(question.answers(matrix[None])[0], payoffs.names),
        max(1.0 - float(doubts.sum()) / allowed, 0.0),
        f"{better} before {worse} ({in_words(of_least)})",
    )


def _clear(apart: Numbers, variances: Numbers, counts: Numbers) -> Numbers:
    """[D]: how far each comparison is from 0, in standard deviations that it has if it is 0.

    The variance of a match about the mean that it has then is greater than that about the mean
    that was seen, by the square of how far these are apart; that is shared out among pairs as the
    variance of the comparison is (of all means with which it is 0 these are the most likely). So
    few matches that all come out alike make nothing certain: n of one pair are the square root of n
    at most. Efron 1969, "Student's t-test under symmetry conditions", has bounds of this ratio.

    Args:
        apart: [D] of `Compared`.
        variances: [D, C], or [D], of `Compared`.
        counts: [C] matches of each pair.
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
