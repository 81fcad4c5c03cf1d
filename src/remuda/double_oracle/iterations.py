"""What came of a double oracle, iteration by iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.double_oracle.meta_solvers import SUPPORT, Mixtures

Numbers = npt.NDArray[np.float64]
CONVERGED = "no best response gains more"
ENOUGH = "NashConv is as small as was asked"
NOTHING_NEW = "all best responses are known already"
SPENT = "the iterations were spent"
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Iteration:
    """What is known once a meta-game is solved.

    Attributes:
        number: 0 is that of the first policies.
        policies: by player, how many there are.
        mixtures: by player, how often each of them is played: [n_r].
        gains: [R] what a best response of each player gains against the others' mixtures.
        payoffs: [R, n_1, ..., n_R] what the policies earn against each other.
        is_exact: whether the gains are those of best responses; else they are lower bounds, of
            trained ones.
        margin: half of the interval of 95% of the sum of the gains, where they are measured.
        seconds: since the start, over all sessions.
    """

    number: int
    policies: tuple[int, ...]
    mixtures: Mixtures
    gains: Numbers
    payoffs: Numbers = field(repr=False)
    is_exact: bool = True
    margin: float = 0.0
    seconds: float = 0.0

    @property
    def nash_conv(self) -> float:
        """The sum of the gains: 0 at a Nash equilibrium."""
        return float(self.gains.sum())

    @property
    def support(self) -> tuple[int, ...]:
        """By player, how many policies its mixture plays."""
        return tuple(int((mixture > SUPPORT).sum()) for mixture in self.mixtures)

    def as_line(self) -> dict[str, Any]:
        """Plain data, from which `from_line` makes the same again."""
        return {
            "iteration": self.number,
            "policies": list(self.policies),
            "mixtures": [mixture.tolist() for mixture in self.mixtures],
            "gains": self.gains.tolist(),
            "nash_conv": self.nash_conv,
            "is_exact": self.is_exact,
            "margin": self.margin,
            "payoffs": self.payoffs.tolist(),
            "seconds": self.seconds,
        }

    @staticmethod
    def from_line(line: Mapping[str, Any]) -> Iteration:
        """The iteration of a line."""
        return Iteration(
            line["iteration"],
            tuple(line["policies"]),
            tuple(np.array(mixture, np.float64) for mixture in line["mixtures"]),
            np.array(line["gains"], np.float64),
            np.array(line["payoffs"], np.float64),
            line["is_exact"],
            line["margin"],
            line["seconds"],
        )


@dataclass(frozen=True)
class DoubleOracle:
    """What came of a double oracle.

    Attributes:
        game: its name.
        meta_solver: its name.
        oracle: `exact`, or the algorithm that trained the best responses.
        iterations: all of them, in order; none where the first was interrupted.
        ended: why there are no more.
        directory: where it is kept; empty: nowhere.
        play: by player, what the last mixture plays in each information set of the game's tree, as
            one policy [I_p, A]; empty where the game is not walked.
        settings: what it was asked with.
    """

    game: str
    meta_solver: str
    oracle: str
    iterations: tuple[Iteration, ...]
    ended: str
    directory: str = ""
    play: tuple[Numbers, ...] = field(default=(), repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def last(self) -> Iteration:
        """The last iteration."""
        return self.iterations[-1]

    @property
    def nash_conv(self) -> float:
        """Of the last mixtures: the sum of what best responses gain, or a lower bound of it."""
        return self.last.nash_conv

    @property
    def mixtures(self) -> Mixtures:
        """By player, how often each policy is played in the end: [n_r]."""
        return self.last.mixtures

    def as_summary(self) -> dict[str, Any]:
        """Plain data."""
        last = self.iterations[-1] if self.iterations else None
        return {
            "game": self.game,
            "meta_solver": self.meta_solver,
            "oracle": self.oracle,
            "nash_conv": None if last is None else last.nash_conv,
            "is_exact": None if last is None else last.is_exact,
            "margin": None if last is None else last.margin,
            "policies": [] if last is None else list(last.policies),
            "mixtures": [] if last is None else [mixture.tolist() for mixture in last.mixtures],
            "ended": self.ended,
            "directory": self.directory,
            "iterations": [each.as_line() for each in self.iterations],
            "settings": dict(self.settings),
        }


def grown(payoffs: Numbers, counts: Sequence[int]) -> Numbers:
    """Payoffs [R, n_1, ..., n_R] with room for more policies; what is not known yet is NaN."""
    found = np.full((len(counts), *counts), np.nan)
    found[(slice(None), *(slice(size) for size in payoffs.shape[1:]))] = payoffs
    return found
