"""Which matches to play next, so that a question is answered with the fewest of them.

A round robin plays every pair equally often, also those that the answer does not hang on. Here the
payoffs as they may be (`Payoffs.sample`) are asked the question, draw by draw. How often they
agree is how sure the answer is; and where the draws that answer otherwise differ from the others,
more matches are worth playing. Rowland et al. 2019, "Multiagent evaluation under incomplete
information", have the like for the response graph, by intervals of its edges one by one.
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
FIRST = 4
"""Matches of a pair before anything is made of them."""


class Question(Protocol):
    """What is asked of a symmetric game of N policies."""

    def answers(self, draws: Numbers) -> Integers:
        """What each draw says, as numbers: [S, A], by payoffs of the row [S, N, N].

        What a policy earns against itself is not known here, and must not be used.
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
    payoffs: Payoffs,
    question: Question,
    matches: int,
    rng: np.random.Generator,
    draws: int = DRAWS,
) -> Integers:
    """How many matches to play next of each pair: [N, N], the earlier policy's row.

    Pairs that met less than `FIRST` times come first. Then let x be the payoff of a pair over its
    uncertainty. Draws whose answer is not the usual one lie apart from the others in some x; a
    pair's share v in the doubt is the square of that distance, weighed by how common such draws
    are. If x alone decided, v would be g^2 s^2 / n, with g its weight in the decision, s the
    deviation of a match and n their number; the best numbers for a given sum go by g s (Neyman
    1934), which is the root of v n. The matches go to those that have less than this.

    Raises:
        UsageError: seats are not pooled, or `matches` is less than 1.
    """
    if matches < 1:
        raise UsageError(f"matches: at least one is to be played; this is {matches}")
    _check_symmetric(payoffs)
    upper = np.triu(np.ones(payoffs.counts.shape, np.bool_), 1)
    counts = np.where(upper, payoffs.counts, 0)
    lacking = np.where(upper, np.maximum(FIRST - counts, 0), 0)
    if lacking.any():
        return _share_out(lacking.astype(np.float64), min(matches, int(lacking.sum())), lacking)
    found, said = _ask(payoffs, question, rng, draws)
    doubt = _doubt(found, said)[upper]
    wanted = np.sqrt(doubt * counts[upper])
    if wanted.sum() == 0.0:
        wanted = np.ones_like(wanted)
    target = wanted / wanted.sum() * (counts[upper].sum() + matches)
    deficit = np.maximum(target - counts[upper], 0.0)
    shares = np.zeros(counts.shape)
    shares[upper] = deficit
    return _share_out(shares, matches)


def _ask(
    payoffs: Payoffs, question: Question, rng: np.random.Generator, draws: int
) -> tuple[Numbers, Integers]:
    """Draws of the row's payoffs [S, N, N], and what they say [S, A]."""
    _check_symmetric(payoffs)
    own = np.eye(len(payoffs.names), dtype=np.bool_)
    known = replace(
        payoffs,
        means=np.where(own, 0.0, payoffs.means),
        covariances=np.where(own, 0.0, payoffs.covariances),
        counts=np.where(own, KNOWN, payoffs.counts),
    )
    found = known.sample(draws, rng)[:, 0]
    return found, question.answers(found)


def _doubt(draws: Numbers, said: Integers) -> Numbers:
    """[N, N]: how much of the doubt in the answer comes from each pair."""
    modes, which, counts = np.unique(said, axis=0, return_inverse=True, return_counts=True)
    which, usual = which.reshape(-1), int(counts.argmax())
    spread = draws.std(0)
    scaled = np.divide(draws - draws.mean(0), spread, out=np.zeros_like(draws), where=spread > 0.0)
    base = scaled[which == usual].mean(0)
    doubt = np.zeros(draws.shape[1:])
    for other in np.flatnonzero(counts >= RARE * len(draws)):
        if other == usual:
            continue
        of_these = scaled[which == other]
        apart = (of_these.mean(0) - base) ** 2
        noise = 1.0 / len(of_these) + 1.0 / counts[usual]
        doubt += counts[other] / len(draws) * np.maximum(apart - noise, 0.0)
    if len(modes) > 1 and not doubt.any():
        # All other answers are rare, each for itself: together they still say where doubt lies.
        others = scaled[which != usual]
        doubt = np.maximum((others**2).mean(0) - 1.0, 0.0)
    return doubt


RARE = 0.005
"""An answer of fewer draws than this is not looked at alone."""


def _share_out(shares: Numbers, matches: int, most: Integers | None = None) -> Integers:
    """Whole numbers in these proportions that add up to `matches`: by the largest remainders."""
    total = shares.sum()
    if total == 0.0:
        shares = np.triu(np.ones_like(shares), 1)
        total = shares.sum()
    wanted = shares / total * matches
    found: Integers = np.floor(wanted).astype(np.int64)
    rest = wanted - found
    if most is not None:
        rest = np.where(found < most, rest, -1.0)
    order = np.argsort(-rest, axis=None, kind="stable")
    found.reshape(-1)[order[: matches - int(found.sum())]] += 1
    return found


def _check_symmetric(payoffs: Payoffs) -> None:
    if not payoffs.symmetric:
        raise UsageError("plan: this is for symmetric games; pool the seats (`pooled_roles`)")
    if len(payoffs.names) < 2:
        raise UsageError("plan: there is one policy only, and nobody for it to meet")


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
