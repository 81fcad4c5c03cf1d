"""The configuration of evolution: selection, inheritance and variation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, FiniteFloat, PositiveFloat, model_validator
from pydantic_core import PydanticCustomError

from remuda.config.sections import Count, Only, Section, Share

EVOLUTION = Only(needs="population.evolution.every")
NUMBERS = Only(needs="population.evolution.every, and population.evolution.numbers")
PERTURB = Only(
    needs="population.evolution.every, population.evolution.numbers, and "
    "population.evolution.explore perturb"
)


class NumberConfig(Section):
    """A hyperparameter that evolves: its bounds and its scale."""

    low: FiniteFloat
    """The lower bound."""
    high: FiniteFloat
    """The upper bound."""
    log: bool = False
    """Draw and perturb the hyperparameter on a logarithmic scale."""

    @model_validator(mode="after")
    def _is_interval(self) -> NumberConfig:
        if self.low >= self.high:
            raise ValueError(f"low is {self.low:g}; it must be less than high, {self.high:g}")
        if self.log and self.low <= 0.0:
            raise ValueError(
                f"low is {self.low:g}, but a logarithmic scale needs bounds above 0; set it above "
                "0, or leave log out"
            )
        return self


OBJECTIVES = ("return", "rating", "win_rate", "team_return")
"""Objectives that exist in every environment."""
OF_GAME = re.compile(r"game/(.+?)(:max|:min)?")
"""The pattern of an episode metric, with `:max` (the default) or `:min`."""


def _known(names: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Check objectives: each is one of `OBJECTIVES`, or matches `OF_GAME`."""
    for name in (names,) if isinstance(names, str) else names or ("",):
        if name not in OBJECTIVES and OF_GAME.fullmatch(name) is None:
            fault = f"{name} is not an objective" if names else "list at least one"
            raise PydanticCustomError(
                "objective",
                f"{fault}; allowed are {', '.join(OBJECTIVES)}, and game/NAME for an episode "
                "metric (game/NAME:min to minimise it)",
            )
    return names


def episode_metrics_of(objectives: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the episode metrics among objectives, in order."""
    found = [OF_GAME.fullmatch(objective) for objective in objectives]
    return tuple(match.group(1) for match in found if match is not None)


class EvolutionConfig(Section):
    """Population based training (PBT): weak policies are replaced by copies of better ones.

    The copy, a newborn, takes the slot of the weak policy, with new hyperparameters, while the run
    continues.
    """

    every: Count | None = None
    """Matches between two selections. None: no evolution."""
    games: Annotated[Count, EVOLUTION] = 100
    """Games that a policy must play after its birth or its last evaluation before it is evaluated;
    at least 10 unless `confidence` is 0. Selection starts once three quarters of the policies have
    played this many."""
    fitness: Annotated[str | tuple[str, ...], AfterValidator(_known), EVOLUTION] = "return"
    """The objective: a policy's mean `return`, its `rating`, its `win_rate`, `team_return` (the
    mean return of its team, or of all players if there are no teams), or `game/NAME`, the mean of
    an episode metric of the environment (`game/NAME:min` to minimise it). With `select
    non_dominated` you may list several; the lineage shows the first."""
    select: Annotated[Literal["truncation", "tournament", "t_test", "non_dominated"], EVOLUTION] = (
        "truncation"
    )
    """Selection of parents. `truncation`: the best `share` of policies replaces the worst `share`.
    `tournament`: policies are paired at random, and the better of a pair replaces the worse.
    `t_test`: each policy is compared with a random rival; the rival replaces it if it is better.
    `non_dominated`: truncation by several objectives at once; a parent must not be worse in any of
    them (NSGA-II: Deb et al. 2002)."""
    share: Annotated[
        float,
        Field(gt=0.0, le=0.5),
        Only(
            needs="population.evolution.every, and population.evolution.select truncation or "
            "non_dominated"
        ),
    ] = 0.25
    """The share of the population that counts as the best, and as the worst."""
    confidence: Annotated[float, Field(ge=0.0, lt=1.0), EVOLUTION] = 0.95
    """Required confidence, 0 to 1, that a policy is worse than the parent of its replacement. The
    test corrects for the number of comparisons and for correlated results of common matches. 0: a
    lower fitness suffices."""
    among: Annotated[Literal["all", "seats"], EVOLUTION] = "all"
    """Possible parents: `all` policies with a suitable network (see `networks`), or only those that
    may take the same `seats`, which gives each agent a separate population."""
    networks: Annotated[Literal["alike", "any"], EVOLUTION] = "alike"
    """`alike`: only policies with equal networks can be parents. `any`: also those that differ in
    the widths or the number of layers. A newborn has the network of its slot. If that network is
    wider or deeper than the parent's, it first computes the same outputs as the parent's; if it is
    narrower, it keeps the weights that fit."""
    numbers: Annotated[dict[str, NumberConfig], EVOLUTION] = {}
    """Bounds of each hyperparameter that evolves, such as `learning_rate` or `ppo.entropy_cost`.
    Empty: newborn policies inherit hyperparameters unchanged."""
    inherit: Annotated[Literal["all", "weights"], EVOLUTION] = "all"
    """Inheritance of newborn policies. `all`: weights and training state (optimizer moments, target
    network or anchor, schedules, scale of returns). Moments start at zero if weights are mutated or
    crossed; a frozen parent may lack some of this state. `weights`: only weights and observation
    statistics."""
    draw_first: Annotated[bool, NUMBERS] = False
    """Draw the hyperparameters in `numbers` within their bounds for each initial policy, instead of
    using the configured values."""
    explore: Annotated[Literal["perturb", "resample", "pb2"], NUMBERS] = "perturb"
    """Change of an inherited hyperparameter. `perturb`: multiplied by one of `factors`, or if its
    `log` is false, moved by the factor's logarithm times the distance between its bounds.
    `resample`: drawn again within its bounds. `pb2`: the value that a model of past results rates
    highest (Parker-Holder et al. 2020)."""
    factors: Annotated[
        tuple[Annotated[PositiveFloat, Field(allow_inf_nan=False)], ...],
        Field(min_length=1),
        PERTURB,
    ] = (0.8, 1.25)
    """Factors of `perturb`, one drawn for each hyperparameter."""
    resample: Annotated[Share, PERTURB] = 0.25
    """`perturb`: probability that a hyperparameter is drawn again within its bounds instead."""
    mutation: Annotated[float, Field(ge=0.0, allow_inf_nan=False), EVOLUTION] = 0.0
    """Noise on inherited weights, in standard deviations of the weights of each tensor."""

    crossover_numbers: Annotated[Share, PERTURB] = 0.0
    """Probability that a hyperparameter comes from a second parent, the better of two others drawn
    at random. The hyperparameter is then perturbed."""
    crossover_layers: Annotated[Share, EVOLUTION] = 0.0
    """Probability that a layer comes from the second parent."""

    @property
    def objectives(self) -> tuple[str, ...]:
        return (self.fitness,) if isinstance(self.fitness, str) else self.fitness

    @property
    def episode_metrics(self) -> tuple[str, ...]:
        return episode_metrics_of(self.objectives)

    @property
    def on(self) -> bool:
        return self.every is not None

    @property
    def inherits_training(self) -> bool:
        """Return whether newborn policies inherit more than weights."""
        return self.on and self.inherit == "all"
