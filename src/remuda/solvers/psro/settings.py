"""The settings of `psro`, which are flags of the command and arguments of `remuda.psro`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from remuda.config.algorithm_registry import find_algorithm
from remuda.config.sections import Finite
from remuda.errors import ConfigError
from remuda.solvers.exploit.settings import Names, ResponseSettings

EXACT, SCRIPTED = "exact", "scripted"


class PsroSettings(ResponseSettings):
    """Settings of a double oracle (PSRO)."""

    meta_solver: str = "nash"
    """How often each policy is played: `nash`, `max-entropy-nash`, `uniform` (fictitious play),
    `alpha-rank`, `projected-replicator` or `rectified-nash`; or, with correlated play,
    `max-welfare-cce`, `max-entropy-cce`, `max-welfare-ce` or `max-entropy-ce`."""
    symmetric: bool = False
    """All players draw from one growing set of policies; otherwise each has its own. The players
    must be interchangeable."""
    oracle: str = EXACT
    """How best responses are found: `exact`, the training algorithm, such as `ppo`, or
    `scripted`, which only chooses among the scripted policies."""
    scripted: Names = ()
    """Scripted policies of the game that may be best responses, beside the trained ones."""
    first: Path | None = None
    """A run whose policies the sets begin with, instead of random play: with `symmetric` all of
    them in one set, otherwise each in the set of its seat."""
    warm: NonNegativeInt = 0
    """Number of candidates that begin with the weights of the policy that their role plays most
    often, instead of random weights. The networks must be equal."""
    iterations: NonNegativeInt = 20
    """Maximum number of iterations, not counting the initial random policies. With `resume`, the
    default is the previous maximum."""
    enough: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Stop when the sum of the gains is known exactly and is at most this. With `resume`, the
    default is the previous value."""
    seconds: Finite | None = 20.0
    """Seconds of training per iteration. None: only `turns` limits it."""
    turns: PositiveInt | None = None
    """Turns of training per iteration, summed over environment copies. None: only `seconds` limits
    it."""
    candidates: PositiveInt = 2
    """Best responses trained for each role, as one stack; the best one is used."""
    matches: int = Field(2000, ge=2)
    """Matches of each new line-up of two players. With more players all new line-ups together play
    this many for each policy. Line-ups that matter for the mixtures play more."""
    trials: int = Field(2000, ge=2)
    """Matches per candidate, to choose the best."""

    @classmethod
    def _default_algorithm(cls, data: Mapping[str, Any]) -> Any:
        oracle = data.get("oracle", EXACT)
        if oracle in (EXACT, SCRIPTED):
            return super()._default_algorithm(data)
        try:
            find_algorithm(str(oracle))
        except ConfigError as error:
            raise ValueError(f"oracle: {error}; or exact, or scripted") from None
        return oracle

    @field_validator("first")
    @classmethod
    def _absolute(cls, first: Path | None) -> Path | None:
        """Return the path that is recorded, which a resume from another directory finds."""
        return None if first is None else first.expanduser().resolve()

    @model_validator(mode="after")
    def _trains(self) -> Self:
        if self.oracle == EXACT:
            return self
        if self.oracle == SCRIPTED:
            if not self.scripted:
                raise ValueError("oracle is scripted; name the policies with scripted")
            return self
        algorithm = self.policy.algorithm
        if algorithm != self.oracle:
            raise ValueError(
                f"policy.algorithm is {algorithm!r}, but oracle is {self.oracle!r}; set oracle to "
                f"{algorithm}, and leave policy.algorithm out"
            )
        if self.warm > self.candidates:
            raise ValueError(f"warm is {self.warm}, more than the {self.candidates} candidates")
        if self.seconds is None and self.turns is None:
            raise ValueError("seconds and turns are None; set one: how long the oracles train")
        return self


TRAINED = PsroSettings.model_fields.keys() - {
    "meta_solver",
    "symmetric",
    "oracle",
    "iterations",
    "enough",
}
"""Settings of oracles that play matches."""
LEARNED = TRAINED - {"first", "scripted", "matches", "trials", "seed"}
"""Settings of trained oracles only."""
