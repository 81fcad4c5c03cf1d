"""Which matches to play next, so that a question is answered with the fewest of them.

A round robin plays every pair equally often, also those that the answer does not hang on. Here the
payoffs as they may be (`Payoffs.sample`) are asked the question, draw by draw: how often they agree
is how sure the answer is. What is played next follows from the comparisons that the answer is made
of: each is to be as clear as the others, with as few matches as possible in all. Rowland et al.
2019, "Multiagent evaluation under incomplete information", do the like for the response graph, by
intervals of its edges one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from remuda.analysis.payoff import KNOWN, Numbers, Payoffs
from remuda.errors import UsageError
from remuda.types import Integers

DRAWS = 2000
"""Of the payoffs, for one look at how sure an answer is."""
FIRST = 2
"""Matches of a pair before anything is made of them."""


class Question(Protocol):
    """What is asked of a symmetric game of N policies."""

    def answers(self, draws: Numbers) -> Integers:
        """What each draw says, as numbers: [S, A], by payoffs of the row [S, N, N].

        What a policy earns against itself is not known here, and must not be used.
        """

    def comparisons(self, matrix: Numbers) -> Numbers:
        """What the answer is made of: [D, N, N], weights of payoffs whose sums must be above 0.

        Args:
            matrix: [N, N] the row's payoffs as they are known.
        """

    def in_words(self, answer: Integers, names: tuple[str, ...]) -> str:
        """An answer [A] in words."""


@dataclass(frozen=True)
class Order:
    """Which policies are the best by their mean payoff against all others, in order."""

    top: int
    """So many of them."""

    def answers(self, draws: Numbers) -> Integers:
        """[S, top]: who they are."""
        count = draws.shape[-1]
        sums = draws.sum(2) - np.einsum("sii->si", draws)
        order: Integers = np.argsort(-sums, axis=1, kind="stable")[:, : min(self.top, count)]
        return order

    def comparisons(self, matrix: Numbers) -> Numbers:
        """Each of the best against each that comes after it, by their means."""
        count = len(matrix)
        order = np.argsort(-(matrix.sum(1) - np.diag(matrix)), kind="stable")
        pairs = [
            (order[i], order[j]) for i in range(min(self.top, count)) for j in range(i + 1, count)
        ]
        found = np.zeros((len(pairs), count, count))
        for weights, (better, worse) in zip(found, pairs, strict=True):
            weights[better], weights[worse] = 1.0 / (count - 1), -1.0 / (count - 1)
            weights[better, better] = weights[worse, worse] = 0.0
        return found

    def in_words(self, answer: Integers, names: tuple[str, ...]) -> str:
        """`policy_2 before policy_0`."""
        return " before ".join(names[place] for place in answer)


@dataclass(frozen=True)
class ResponseGraph:
    """Who of each two policies earns more against the other than the other against it."""

    def answers(self, draws: Numbers) -> Integers:
        """[S, N * (N - 1) / 2]: 1 where the earlier of two does."""
        one, other = np.triu_indices(draws.shape[-1], 1)
        better: Integers = (draws[:, one, other] > draws[:, other, one]).astype(np.int64)
        return better

    def comparisons(self, matrix: Numbers) -> Numbers:
        """Each two with each other."""
        one, other = np.triu_indices(len(matrix), 1)
        sign = np.where(matrix[one, other] >= matrix[other, one], 1.0, -1.0)
        found = np.zeros((len(one), *matrix.shape))
        number = np.arange(len(one))
        found[number, one, other], found[number, other, one] = sign, -sign
        return found

    def in_words(self, answer: Integers, names: tuple[str, ...]) -> str:
        """How many beat how many others."""
        one, other = np.triu_indices(len(names), 1)
        wins = np.zeros(len(names), np.int64)
        np.add.at(wins, np.where(answer == 1, one, other), 1)
        order = np.argsort(-wins, kind="stable")
        return ", ".join(f"{names[place]} beats {wins[place]}" for place in order)


@dataclass(frozen=True)
class Answer:
    """What the payoffs say, and how sure that is."""

    answer: tuple[int, ...]
    """As the question numbers it."""
    words: str
    sure: float
    """The share of draws of the payoffs that say the same."""

    def as_summary(self) -> dict[str, object]:
        """Plain data."""
        return {"answer": self.words, "sure": self.sure}


def answer(
    payoffs: Payoffs, question: Question, rng: np.random.Generator, draws: int = DRAWS
) -> Answer:
    """What the payoffs say to a question, and how sure that is.

    Raises:
        UsageError: two policies never met, or seats are not pooled.
    """
    found, said = _ask(payoffs, question, rng, draws)
    modes, counts = np.unique(said, axis=0, return_counts=True)
    mode = modes[counts.argmax()]
    words = question.in_words(mode, payoffs.names)
    return Answer(tuple(mode.tolist()), words, float(counts.max() / len(found)))


def allocate(
    payoffs: Payoffs, question: Question, matches: int, rng: np.random.Generator
) -> Integers:
    """How many matches to play next of each pair: [N, N], the earlier policy's row.

    Pairs that met less than `FIRST` times come first. If the payoffs were known, numbers n of
    matches could be sought with which every comparison of the question is as clear, for the least
    sum: comparison d is known to sum_c s_dc / n_c, with s_dc the variance of what one match of the
    pair c adds to it, and is to be known to a share of D_d^2, where D_d is how far it is from 0. At
    the minimum n_c is the root of sum_d l_d s_dc, with multipliers l_d that are 0 where d is
    clearer than it need be (for one comparison that is the allocation of Neyman 1934). Since they
    are not known, it is the mean of these numbers over draws of the payoffs as they may be. The
    matches go to the pairs that have less than this.

    Raises:
        UsageError: seats are not pooled, or `matches` is less than 1.
    """
    if matches < 1:
        raise UsageError(f"matches: at least one is to be played; this is {matches}")
    _check_symmetric(payoffs)
    pairs = np.triu_indices(len(payoffs.names), 1)
    counts = payoffs.counts[pairs].astype(np.float64)
    lacking = np.maximum(FIRST - counts, 0.0)
    if lacking.any():
        planned = _share_out(lacking, min(matches, int(lacking.sum())))
    else:
        draws = _without_own(payoffs).sample(WORLDS, rng)[:, 0]
        covariances = payoffs.moderated[:, :, pairs[0], pairs[1]]
        wanted = np.mean([_wanted(draw, question, pairs, covariances) for draw in draws], 0)
        target = wanted * (counts.sum() + matches)
        planned = _share_out(np.maximum(target - counts, 0.0), matches)
    found: Integers = np.zeros(payoffs.counts.shape, np.int64)
    found[pairs] = planned
    return found


WORLDS = 40
"""Draws of the payoffs for which matches are planned."""
ROUNDS = 60
"""In which the multipliers are found: each is multiplied by the root of what it lacks."""


def _wanted(
    matrix: Numbers, question: Question, pairs: tuple[Integers, ...], covariances: Numbers
) -> Numbers:
    """[C]: the shares of matches that make all comparisons as clear as each other.

    Args:
        matrix: [N, N] the row's payoffs.
        question: that is asked.
        pairs: two of [C], the places of each pair.
        covariances: [2, 2, C] of one match of each pair.
    """
    one, other = pairs
    weights = question.comparisons(matrix)
    there, back = weights[:, one, other], weights[:, other, one]
    share = (
        there**2 * covariances[0, 0]
        + 2.0 * there * back * covariances[0, 1]
        + back**2 * covariances[1, 1]
    )
    distance = (weights * matrix).sum((1, 2)) ** 2
    asked = share / np.maximum(distance, 1e-12 * (distance.max() + 1e-300))[:, None]
    asked = asked[asked.any(1)]
    if not len(asked):
        return np.full(len(one), 1.0 / len(one))
    asked = asked / asked.max()
    multipliers = np.ones(len(asked)) / len(asked)
    for _ in range(ROUNDS):
        numbers = np.sqrt(multipliers @ asked)
        unclear = np.divide(asked, numbers, out=np.zeros_like(asked), where=numbers > 0.0).sum(1)
        multipliers *= np.sqrt(unclear / unclear.max())
        multipliers /= multipliers.sum()
    found: Numbers = np.sqrt(multipliers @ asked)
    found /= found.sum()
    return found


def _ask(
    payoffs: Payoffs, question: Question, rng: np.random.Generator, draws: int
) -> tuple[Numbers, Integers]:
    """Draws of the row's payoffs [S, N, N], and what they say [S, A]."""
    _check_symmetric(payoffs)
    found = _without_own(payoffs).sample(draws, rng)[:, 0]
    return found, question.answers(found)


def _without_own(payoffs: Payoffs) -> Payoffs:
    """The same, with 0 for what a policy earns against itself, which nothing here asks for."""
    own = np.eye(len(payoffs.names), dtype=np.bool_)
    return replace(
        payoffs,
        means=np.where(own, 0.0, payoffs.means),
        covariances=np.where(own, 0.0, payoffs.covariances),
        counts=np.where(own, KNOWN, payoffs.counts),
    )


def _share_out(shares: Numbers, matches: int) -> Integers:
    """[C] whole numbers in these proportions with this sum, by the largest remainders."""
    if not shares.any():
        shares = np.ones_like(shares)
    wanted = shares / shares.sum() * matches
    found: Integers = np.floor(wanted + 1e-9).astype(np.int64)
    order = np.argsort(found - wanted, kind="stable")
    found[order[: matches - int(found.sum())]] += 1
    return found


def _check_symmetric(payoffs: Payoffs) -> None:
    if not payoffs.symmetric:
        raise UsageError("plan: this is for symmetric games; pool the seats (`pooled_roles`)")
    if len(payoffs.names) < 2:
        raise UsageError("plan: there is one policy only; a plan is for two or more")


UNTIL = re.compile(
    r"^(?:the )?(?:(?:rank|order) of the top (?P<top>\d+)|(?P<best>best)|(?P<graph>response graph))"
    r" is (?P<percent>\d+(?:\.\d+)?) ?% sure$"
)


def parse_until(text: str) -> tuple[Question, float]:
    """The question in `rank of the top 3 is 95% sure`, and how sure its answer is to be, 0 to 1.

    Raises:
        UsageError: it is not of that form.
    """
    found = UNTIL.match(" ".join(text.lower().split()))
    if found is None or not 0.0 < float(found["percent"]) < 100.0 or found["top"] == "0":
        raise UsageError(
            f'until: this is "{text}"; it may be "rank of the top 3 is 95% sure", "the best is 95% '
            'sure" or "the response graph is 95% sure", with numbers of your own'
        )
    sure = float(found["percent"]) / 100.0
    if found["graph"]:
        return ResponseGraph(), sure
    return Order(int(found["top"] or 1)), sure
