"""The results of a double oracle, iteration by iteration."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from remuda.analysis.payoffs.empirical_game import EmpiricalGame
from remuda.envs.description import EnvSpec
from remuda.solvers.psro.meta_strategy import SUPPORT, MetaStrategy, Mixtures, as_empirical
from remuda.solvers.psro.record import Record
from remuda.solvers.psro.settings import EXACT, TRAINED, PsroSettings
from remuda.types import Numbers

CONVERGED = "no best response gains more"
ENOUGH = "the gains are as small as requested"
NOTHING_NEW = "all best responses are known already"
FULL = "the meta-solver cannot take more policies"
SPENT = "the iterations were spent"
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Setup:
    """The game and the settings of a double oracle."""

    game: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: PsroSettings = field(default_factory=PsroSettings)

    @cached_property
    def env(self) -> EnvSpec:
        return EnvSpec.of(self.game, self.options)

    def description(self) -> dict[str, Any]:
        """Return JSON values, from which `of` returns the setup."""
        unused = TRAINED if self.settings.oracle == EXACT else frozenset[str]()
        settings = self.settings.model_dump(mode="json", exclude=set(unused))
        return {"game": self.game, "options": dict(self.options), **settings}

    def result(
        self, loop: Loop, ended: str, directory: Path | None, play: tuple[Numbers, ...]
    ) -> DoubleOracle:
        return DoubleOracle(
            self.game,
            self.settings.meta_solver,
            self.settings.oracle,
            tuple(loop.iterations),
            ended,
            "" if directory is None else str(directory),
            play,
            self.description(),
        )

    @classmethod
    def of(cls, description: Mapping[str, Any], changes: Mapping[str, Any]) -> Self:
        """Return a described setup with changed settings."""
        settings = {k: v for k, v in description.items() if k in PsroSettings.model_fields}
        changed = PsroSettings.model_validate({**settings, **changes})
        return cls(description["game"], description["options"], changed)


@dataclass(frozen=True)
class Iteration:
    """The result of one solved meta-game."""

    number: int  # 0 is the iteration of the initial policies
    policies: tuple[int, ...]  # by role, the number of policies
    strategy: MetaStrategy
    gains: Numbers  # [R] what a seat of each role gains by its best deviations
    payoffs: Numbers = field(repr=False)  # [N, n_1, ..., n_N] by seat, of the policies
    is_exact: bool = True  # whether gains are exact; otherwise they are lower bounds from matches
    margins: Numbers | None = None  # [R] half of the 95% interval of each gain; None: exact
    margin: float = 0.0  # half of the 95% interval of the sum of the gains; 0 if they are exact
    seconds: float = 0.0  # since the start, over all sessions

    @property
    def mixtures(self) -> Mixtures:
        """The probabilities [n_r] of each role's policies."""
        return self.strategy.mixtures

    @property
    def nash_conv(self) -> float:
        """The sum of the gains over all seats: 0 at an equilibrium."""
        return float(self.gains.sum()) * self.seats_of_role

    @property
    def seats_of_role(self) -> int:
        """The number of seats that each role fills."""
        return len(self.payoffs) // len(self.gains)

    @property
    def welfare(self) -> float:
        """The sum of the expected returns of all seats."""
        return self.strategy.welfare(self.payoffs)

    @property
    def support(self) -> tuple[int, ...]:
        """The number of policies in the support of each role's mixture."""
        return tuple(int((mixture > SUPPORT).sum()) for mixture in self.mixtures)

    @property
    def game(self) -> EmpiricalGame:
        """The payoffs as an empirical game, for the functions of `remuda.analysis`."""
        return as_empirical(self.payoffs, symmetric=len(self.policies) < len(self.payoffs))

    def as_line(self) -> dict[str, Any]:
        """Return JSON values, from which `from_line` returns the iteration."""
        return {
            "iteration": self.number,
            "policies": list(self.policies),
            **self.strategy.as_plain(),
            "gains": self.gains.tolist(),
            "nash_conv": self.nash_conv,
            "is_exact": self.is_exact,
            "margins": None if self.margins is None else self.margins.tolist(),
            "margin": self.margin,
            "welfare": self.welfare,
            "payoffs": self.payoffs.tolist(),
            "seconds": self.seconds,
        }

    @staticmethod
    def from_line(line: Mapping[str, Any]) -> Iteration:
        payoffs = np.array(line["payoffs"], np.float64)
        return Iteration(
            line["iteration"],
            tuple(line["policies"]),
            MetaStrategy.from_plain(line, len(payoffs)),
            np.array(line["gains"], np.float64),
            payoffs,
            line["is_exact"],
            None if line["margins"] is None else np.array(line["margins"], np.float64),
            line["margin"],
            line["seconds"],
        )


@dataclass(frozen=True)
class DoubleOracle:
    """The result of a double oracle."""

    game: str
    meta_solver: str
    oracle: str  # `exact`, or the algorithm that trained the best responses
    iterations: tuple[Iteration, ...]  # all, in order; empty if the first was interrupted
    ended: str
    directory: str = ""  # the directory of the record; empty: no record
    play: tuple[Numbers, ...] = field(default=(), repr=False)
    """Each role's last mixture as one policy [I_p, A]; empty: the game is not traversed."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)  # arguments

    @property
    def last(self) -> Iteration:
        return self.iterations[-1]

    @property
    def nash_conv(self) -> float:
        """The sum of the gains of the last iteration, or a lower bound of it."""
        return self.last.nash_conv

    @property
    def mixtures(self) -> Mixtures:
        """The final mixture of each role: [n_r]."""
        return self.last.mixtures

    def as_summary(self) -> dict[str, Any]:
        last = self.iterations[-1].as_line() if self.iterations else {}
        return {
            "game": self.game,
            "meta_solver": self.meta_solver,
            "oracle": self.oracle,
            **{name: last.get(name) for name in ("nash_conv", "is_exact", "margin")},
            **{name: last.get(name, []) for name in ("policies", "mixtures")},
            "ended": self.ended,
            "directory": self.directory,
            "iterations": [each.as_line() for each in self.iterations],
            "settings": dict(self.settings),
        }


class Loop:
    """The iterations of a double oracle so far, and their record."""

    def __init__(
        self,
        record: Record | None = None,
        on_iteration: Callable[[Iteration], None] | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._record, self._on_iteration, self._stopped = record, on_iteration, stopped
        self.iterations: list[Iteration] = []
        self._start = time.monotonic()
        self._earlier_seconds = 0.0  # of earlier sessions

    @property
    def seconds(self) -> float:
        """Seconds since the start, over all sessions."""
        return self._earlier_seconds + time.monotonic() - self._start

    def keep(self, iteration: Iteration, **more: Any) -> None:
        """Record a new iteration with `more` values, and report it."""
        if self._record is not None:
            self._record.append({**iteration.as_line(), **more})
        self.add(iteration)

    def add(self, iteration: Iteration) -> None:
        self.iterations.append(iteration)
        if self._on_iteration is not None:
            self._on_iteration(iteration)
