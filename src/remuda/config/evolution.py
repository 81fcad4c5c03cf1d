"""The configuration of evolution: selection, inheritance and variation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveFloat
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

    low: float
    """The lower bound."""
    high: float
    """The upper bound."""
    log: bool = False
    """Draw and perturb it on a logarithmic scale."""


OBJECTIVES = ("return", "rating", "win_rate", "team_return")
"""Objectives that exist in every environment."""
OF_GAME = re.compile(r"game/(.+?)(:max|:min)?")
"""An episode metric of the environment, and whether to maximise or minimise it."""


def _known(names: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Check objectives: each is one of `OBJECTIVES`, or matches `OF_GAME`."""
    for name in (names,) if isinstance(names, str) else names or ("",):
        if name not in OBJECTIVES and OF_GAME.fullmatch(name) is None:
            fault = f"{name} is no objective" if names else "name one at least"
            raise PydanticCustomError(
                "objective",
                f"{fault}; allowed are {', '.join(OBJECTIVES)}, and game/NAME, or game/NAME:min "
                "where less is better, for an episode metric",
            )
    return names


def episode_metrics_of(objectives: Sequence[str]) -> tuple[str, ...]:
    """Return the episode metrics among objectives, by the environment's names, in order."""
    found = [OF_GAME.fullmatch(objective) for objective in objectives]
    return tuple(match.group(1) for match in found if match is not None)


class EvolutionConfig(Section):
    """Population based training (PBT): weak policies are replaced by copies of better ones.

    A newborn takes the place of a weak policy, with other hyperparameters, while the run continues.
    """

    every: Count | None = None
    """Matches between two selections. None: no evolution."""
    games: Annotated[Count, EVOLUTION] = 100
    """Games that a policy must play after its birth, and after its last evaluation, before it is
    evaluated; at least 10 unless `confidence` is 0. Three of four policies must have played this
    many before any are compared."""
    fitness: Annotated[str | tuple[str, ...], AfterValidator(_known), EVOLUTION] = "return"
    """The objective: the mean `return` of its games, its `rating`, its `win_rate` in meetings,
    `team_return`, the mean return of its team (of all players if there are no teams), or
    `game/NAME`, the mean of an episode metric of the environment (`game/NAME:min` to minimise it).
    Or several of these; the lineage shows the first."""
    select: Annotated[Literal["truncation", "tournament", "t_test", "non_dominated"], EVOLUTION] = (
        "truncation"
    )
    """How parents are selected. `truncation`: the worst policies are replaced by the best, `share`
    of each. `tournament`: each policy meets a random other one, and the worse is replaced.
    `t_test`: the same, with a test of the games of both alone. `non_dominated`: truncation by
    several objectives at once; a policy that trades one for another is not replaced (NSGA-II: Deb
    et al. 2002)."""
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
    """How certain it must be, 0 to 1, that a policy is worse than its replacement's parent. It
    allows for the number of comparisons and for shared luck in common matches. 0: a lower value
    suffices."""
    among: Annotated[Literal["all", "seats"], EVOLUTION] = "all"
    """Possible parents: `all` policies with a suitable network (see `networks`), or those only that
    may take the same `seats`, so that each agent has a separate population."""
    networks: Annotated[Literal["alike", "any"], EVOLUTION] = "alike"
    """`alike`: only policies with equal networks can be parents. `any`: also those that differ in
    the widths or the number of layers. A newborn has the network of its place. If that is wider or
    deeper, it first computes the same as its parent; if narrower, it keeps the part that fits."""
    numbers: Annotated[dict[str, NumberConfig], EVOLUTION] = {}
    """Bounds of each hyperparameter that evolves, such as `learning_rate` or `ppo.entropy_cost`.
    Empty: newborn policies inherit hyperparameters unchanged."""
    inherit: Annotated[Literal["all", "weights"], EVOLUTION] = "all"
    """Inheritance of newborn policies. `all`: weights and training state (optimizer moments, target
    network or anchor, schedules, scale of returns), as far as these fit weights that are mutated,
    crossed or a frozen parent's. `weights`: weights and observation statistics alone."""
    draw_first: Annotated[bool, NUMBERS] = False
    """Draw these hyperparameters within their bounds for each initial policy, instead of using the
    configured ones."""
    explore: Annotated[Literal["perturb", "resample", "pb2"], NUMBERS] = "perturb"
    """How an inherited hyperparameter changes. `perturb`: multiplied by one of `factors`.
    `resample`: drawn again within its bounds. `pb2`: chosen where a model of past results expects
    the most (Parker-Holder et al. 2020)."""
    factors: Annotated[
        tuple[Annotated[PositiveFloat, Field(allow_inf_nan=False)], ...],
        Field(min_length=1),
        PERTURB,
    ] = (0.8, 1.25)
    """Factors of `perturb`, one drawn for each hyperparameter."""
    resample: Annotated[Share, PERTURB] = 0.25
    """`perturb`: the share of hyperparameters that are drawn again instead."""
    mutation: Annotated[float, Field(ge=0.0, allow_inf_nan=False), EVOLUTION] = 0.0
    """Noise on inherited weights, in standard deviations of the weights of each layer."""

    crossover_numbers: Annotated[Share, PERTURB] = 0.0
    """Probability that a hyperparameter comes from a second parent, the better of two others drawn
    at random; it is then perturbed."""
    crossover_layers: Annotated[Share, EVOLUTION] = 0.0
    """Probability that a layer comes from the second parent."""

    @property
    def objectives(self) -> tuple[str, ...]:
        """The objectives, as a tuple."""
        return (self.fitness,) if isinstance(self.fitness, str) else self.fitness

    @property
    def episode_metrics(self) -> tuple[str, ...]:
        """Objectives that are episode metrics, by the environment's names, in order."""
        return episode_metrics_of(self.objectives)

    @property
    def on(self) -> bool:
        """Return whether policies evolve."""
        return self.every is not None

    @property
    def inherits_training(self) -> bool:
        """Return whether newborn policies inherit more than weights."""
        return self.on and self.inherit == "all"
