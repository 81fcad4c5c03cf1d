"""Choose the next matches that answer a question with as few matches as possible.

A round robin plays every pair equally often, even pairs that do not affect the answer. This module
instead minimises the probability that any comparison behind the answer is wrong. Rowland et al.
2019, "Multiagent evaluation under incomplete information", do the same for the response graph, with
intervals of its edges.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from remuda.analysis.payoffs.payoffs import KNOWN, Payoffs
from remuda.analysis.payoffs.sampling import PIECE, symmetric_draws
from remuda.errors import UsageError
from remuda.types import Bools, Integers, Numbers

FIRST = 2  # matches of every pair before its payoffs are used


@dataclass(frozen=True)
class Compared:
    """The D comparisons behind an answer, in a symmetric game of C pairs."""

    differences: Numbers  # [D]: the difference of each comparison, at least 0
    variances: Numbers  # [D, C]: from one match of each pair; [D]: comparison d uses only pair d
    better: Integers  # [D]: the policy ahead
    worse: Integers  # [D]: the policy behind


class Question(Protocol):
    """A question about a symmetric game of N policies, without self-play payoffs."""

    def answers(self, draws: Numbers) -> Integers:
        """Return each draw's answer as numbers: [S, A], from payoffs of the row [S, N, N]."""

    def compared(self, matrix: Numbers, covariances: Numbers) -> Compared:
        """Return the comparisons behind the answer.

        The answer is right if the true differences of all comparisons are above 0.

        `matrix`: [N, N] the row's known payoffs; `covariances`: [2, 2, C] of one match of each
        pair, in the order of `triu_indices`.
        """

    def in_words(self, answer: Integers, names: tuple[str, ...]) -> str:
        """Return an answer [A] as text."""


@dataclass(frozen=True)
class Order:
    """The question of which policies are best, in order, by mean payoff against all others."""

    top: int  # the number of best policies

    def answers(self, draws: Numbers) -> Integers:
        """Return the best policies: [S, top]."""
        count = draws.shape[-1]
        sums = draws.sum(2) - np.einsum("sii->si", draws)
        return np.argsort(-sums, axis=1, kind="stable")[:, : min(self.top, count)]

    def compared(self, matrix: Numbers, covariances: Numbers) -> Compared:
        """Compare the means of each of the best with each policy that ranks below it."""
        count = len(matrix)
        sums = (matrix.sum(1) - np.diag(matrix)) / (count - 1)
        order = np.argsort(-sums, kind="stable")
        ahead, behind = np.triu_indices(count, 1)
        selected = ahead < self.top
        better, worse = order[ahead[selected]], order[behind[selected]]
        first, second = np.triu_indices(count, 1)
        # The weight of the payoff of each policy of a pair: 1 for the better, -1 for the worse one.
        first_weight = (first == better[:, None]).astype(np.float64) - (first == worse[:, None])
        second_weight = (second == better[:, None]).astype(np.float64) - (second == worse[:, None])
        variances = (
            first_weight**2 * covariances[0, 0]
            + 2.0 * first_weight * second_weight * covariances[0, 1]
            + second_weight**2 * covariances[1, 1]
        ) / (count - 1) ** 2
        return Compared(sums[better] - sums[worse], variances, better, worse)

    def in_words(self, answer: Integers, names: tuple[str, ...]) -> str:
        """Return text such as `policy_2 before policy_0`."""
        return " before ".join(names[place] for place in answer)


@dataclass(frozen=True)
class ResponseGraph:
    """The question of which policy of each pair beats the other."""

    def answers(self, draws: Numbers) -> Integers:
        """Return 1 if the first policy of a pair beats the second: [S, N * (N - 1) / 2]."""
        first, second = np.triu_indices(draws.shape[-1], 1)
        return (draws[:, first, second] > draws[:, second, first]).astype(np.int64)

    def compared(self, matrix: Numbers, covariances: Numbers) -> Compared:
        row, column = np.triu_indices(len(matrix), 1)
        more = matrix[row, column] - matrix[column, row]
        variances = covariances[0, 0] - 2.0 * covariances[0, 1] + covariances[1, 1]
        ahead = more >= 0.0
        better, worse = np.where(ahead, row, column), np.where(ahead, column, row)
        return Compared(np.abs(more), variances, better, worse)

    def in_words(self, answer: Integers, names: tuple[str, ...]) -> str:
        """Return how many others each policy beats, as text."""
        first, second = np.triu_indices(len(names), 1)
        wins = np.zeros(len(names), np.int64)
        np.add.at(wins, np.where(answer == 1, first, second), 1)
        order = np.argsort(-wins, kind="stable")
        return ", ".join(f"{names[place]} beats {wins[place]}" for place in order)


@dataclass(frozen=True)
class SmallRegret:
    """The question whether an equilibrium of the game of all line-ups has a small regret."""

    limit: float


def allocate(
    payoffs: Payoffs,
    question: Question,
    matches: int,
    rng: np.random.Generator,
    stop: Callable[[], bool] = lambda: False,
) -> Integers:
    """Return the number of matches that each pair plays next: [N, N], above the diagonal.

    Pairs that met fewer than `FIRST` times come first. For known payoffs, `_wanted` returns the
    shares of matches that make the answer sure with the fewest matches. The plan averages these
    shares over draws of the payoffs, and gives the matches to the pairs below their share.
    """
    if matches < 1:
        raise UsageError(f"matches is {matches}; it must be at least 1")
    payoffs.check_symmetric("plan")
    if len(payoffs.names) < 2:
        raise UsageError("plan: there is only one policy; a plan needs at least two")
    pairs = np.triu_indices(len(payoffs.names), 1)
    counts = payoffs.counts[pairs].astype(np.float64)
    lacking = np.maximum(FIRST - counts, 0.0)
    if lacking.any():
        planned = share_out(lacking, min(matches, int(lacking.sum())))
    else:
        own = np.eye(len(payoffs.names), dtype=np.bool_)
        whole = replace(  # without self-play, which no comparison here uses
            payoffs,
            means=np.where(own, 0.0, payoffs.means),
            covariances=np.where(own, 0.0, payoffs.covariances),
            counts=np.where(own, KNOWN, payoffs.counts),
        )
        whole.check_whole()
        draws = symmetric_draws(whole, WORLDS, rng)
        covariances = payoffs.moderated[:, :, pairs[0], pairs[1]]
        at_once = max(1, PIECE // question.compared(draws[0], covariances).variances.size)
        shares = []
        for start in range(0, WORLDS, at_once):
            if stop():
                return np.zeros(payoffs.counts.shape, np.int64)
            shares.append(_wanted(draws[start : start + at_once], question, covariances))
        wanted = np.mean(np.vstack(shares), 0)
        target = wanted * (counts.sum() + matches)
        planned = share_out(np.maximum(target - counts, 0.0), matches)
    found: Integers = np.zeros(payoffs.counts.shape, np.int64)
    found[pairs] = planned
    return found


WORLDS = 40  # draws of the payoffs for which matches are planned
WRONG = 0.05  # planned probability of a wrong answer
ROUNDS = 60  # iterations that find the shares
STEP = 0.3  # initial fraction of the way to the new multipliers; it shrinks with each round
STEPS_AT_MOST = 0.7  # largest change of a multiplier's logarithm in a round
NEWTON = 30  # most Newton steps in the search for a number of matches
LEAST = 1e-12  # share of the matches for a pair that does not affect the answer


def _wanted(draws: Numbers, question: Question, covariances: Numbers) -> Numbers:
    """Return the shares of matches that make the answer sure with the fewest matches: [S, C].

    The payoffs are assumed to equal each draw. After n_c matches of each pair c, comparison d has
    the variance v_d = sum_c s_dc / n_c, where s_dc is the variance contributed by one match. The
    comparison is wrong with probability Phi(-D_d / sqrt(v_d)), where D_d is the difference.

    The sum of these probabilities must equal `WRONG`, with the smallest sum of matches. At this
    optimum the derivatives by all n_c are equal. So n_c is the square root of sum_d l_d s_dc, with
    multipliers l_d = phi(z_d) z_d / v_d and z_d = D_d / sqrt(v_d). For one comparison that is the
    allocation of Neyman (1934). For many matches it is that of Glynn and Juneja 2004, "A large
    deviations perspective on ordinal optimization". Small steps find the multipliers.

    `draws`: [S, N, N] the row's payoffs; `covariances`: [2, 2, C] of one match of each pair.
    """
    found = [question.compared(matrix, covariances) for matrix in draws]
    return _shares(
        np.array([each.variances for each in found]), np.array([each.differences for each in found])
    )


def _shares(variances: Numbers, differences: Numbers) -> Numbers:
    """Return `_wanted` [S, C] from the variances and differences of `Compared`, for S draws."""
    whole = variances.ndim == 3
    shares = np.full((len(variances), variances.shape[-1]), 1.0 / variances.shape[-1])
    largest = differences.max(1, keepdims=True)
    known: Bools = np.logical_not(variances.any(2) if whole else variances)
    if not ((largest > 0.0).all() and not known.all(1).any()):
        return shares
    differences = np.where(known, 1e6 * largest, np.maximum(differences, 1e-6 * largest))
    most = variances.reshape(len(variances), -1).max(1)
    variances = np.where(
        known[:, :, None] if whole else known,
        most[:, None, None] if whole else most[:, None],
        variances,
    )
    logs, matches = np.zeros_like(differences), np.zeros((len(differences), 1))
    for number in range(ROUNDS):
        variance = (
            (variances @ (1.0 / shares)[:, :, None])[:, :, 0] if whole else variances / shares
        )
        clear = differences / np.sqrt(variance)
        start = matches if number else -2.0 * np.log(clear.min(1, keepdims=True))
        matches = _until_sure(clear, start)
        clear *= np.exp(0.5 * matches)
        wanted = np.log(clear / variance) - 0.5 * clear**2
        wanted -= wanted.max(1, keepdims=True)
        if number:
            step = np.clip(STEP * (wanted - logs), -STEPS_AT_MOST, STEPS_AT_MOST)
            logs = logs + step / (1.0 + number / 30.0)
        else:
            logs = np.maximum(wanted, -6.0)
        logs -= logs.max(1, keepdims=True)
        multipliers = np.where(known, 0.0, np.exp(np.maximum(logs, -60.0)))
        shares = np.sqrt(
            (multipliers[:, None] @ variances)[:, 0] if whole else multipliers * variances
        )
        shares = np.maximum(shares / shares.sum(1, keepdims=True), LEAST)
    found: Numbers = shares / shares.sum(1, keepdims=True)
    return found


def _until_sure(clear: Numbers, logs: Numbers) -> Numbers:
    """Return the logarithms of the numbers of matches that reach the error `WRONG`: [S, 1].

    `clear`: [S, D] the differences in standard deviations of one match; `logs`: [S, 1] where the
    search starts.
    """
    from scipy.special import ndtr  # imported here: runs that plan nothing load this file too

    for _ in range(NEWTON):
        at = clear * np.exp(0.5 * logs)
        total = ndtr(-at).sum(1, keepdims=True)
        slope = -0.5 / np.sqrt(2.0 * np.pi) * (at * np.exp(-0.5 * at**2)).sum(1, keepdims=True)
        # The logarithm of the error is almost linear in the number of matches.
        usable = (slope < -1e-300) & (total > 1e-300)
        move = np.where(usable, total * np.log(np.maximum(total, 1e-300) / WRONG), -1.0)
        move = np.clip(move / np.where(usable, slope, -1.0), -1.0, 1.0)
        logs = logs - move
        if (np.abs(move) < 1e-3).all():
            break
    return logs


def share_out(shares: Numbers, matches: int) -> Integers:
    """Return whole numbers [C] with the sum `matches`, by the largest remainders of `shares`."""
    if not shares.any():
        shares = np.ones_like(shares)
    wanted = shares / shares.sum() * matches
    found: Integers = np.floor(wanted + 1e-9).astype(np.int64)
    order = np.argsort(found - wanted, kind="stable")
    found[order[: matches - int(found.sum())]] += 1
    return found


UNTIL = re.compile(
    r"^(?:the )?(?:(?:rank|order) of the top (?P<top>\d+)|(?P<best>best)|(?P<graph>response graph)"
    r"|regret below (?P<regret>\d+(?:\.\d+)?))"
    r" is (?P<percent>\d+(?:\.\d+)?) ?% sure$"
)


def parse_until(text: str) -> tuple[Question | SmallRegret, float]:
    """Parse text such as `rank of the top 3 is 95% sure`: the question and its confidence."""
    found = UNTIL.match(" ".join(text.lower().split()))
    if found is None or not 0.0 < float(found["percent"]) < 100.0 or found["top"] == "0":
        raise UsageError(
            f'until: this is "{text}"; it may be "rank of the top 3 is 95% sure", "the best is 95% '
            'sure", "the response graph is 95% sure" or "regret below 0.5 is 95% sure", with your '
            "own numbers"
        )
    sure = float(found["percent"]) / 100.0
    if found["regret"]:
        return SmallRegret(float(found["regret"])), sure
    if found["graph"]:
        return ResponseGraph(), sure
    return Order(int(found["top"] or 1)), sure
