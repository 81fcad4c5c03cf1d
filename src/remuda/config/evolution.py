"""The configuration of evolution: who takes over from whom, and what changes on the way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveFloat
from pydantic_core import PydanticCustomError

from remuda.config.sections import Count, Only, Section, Share

EVOLUTION = Only(
    when=lambda config: config.population.evolution.on, needs="population.evolution.every"
)
"""Marks what holds for evolution."""
NUMBERS = Only(
    when=lambda config: (
        config.population.evolution.on and bool(config.population.evolution.numbers)
    ),
    needs="population.evolution.every, and population.evolution.numbers",
)
"""Marks what holds for hyperparameters that evolve."""
PERTURB = Only(
    when=lambda config: (
        config.population.evolution.on
        and config.population.evolution.explore == "perturb"
        and bool(config.population.evolution.numbers)
    ),
    needs="population.evolution.every, population.evolution.numbers, and "
    "population.evolution.explore perturb",
)
"""Marks what holds for numbers that are perturbed, or taken over from two parents."""


class NumberConfig(Section):
    """A hyperparameter that evolves: its bounds, and on which scale it changes."""

    low: float
    """The least that it may be."""
    high: float
    """The greatest."""
    log: bool = False
    """Whether it is drawn, and perturbed by steps, on a logarithmic scale."""


OBJECTIVES = ("return", "rating", "win_rate", "team_return")
"""What policies of every game may be judged by."""
OF_GAME = re.compile(r"game/(.+?)(:max|:min)?")
"""A number that the game tells of each episode, and whether more or less of it is better."""


def _known(names: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Check what policies are judged by: each one of `OBJECTIVES`, or what `OF_GAME` matches."""
    for name in (names,) if isinstance(names, str) else names or ("",):
        if name not in OBJECTIVES and OF_GAME.fullmatch(name) is None:
            told = f"{name} is no objective" if names else "name one at least"
            raise PydanticCustomError(
                "objective",
                f"{told}; allowed are {', '.join(OBJECTIVES)}, and game/NAME, or game/NAME:min "
                "where less is better, for what the game tells of each episode",
            )
    return names


def episode_metrics_of(objectives: Sequence[str]) -> tuple[str, ...]:
    """Of objectives those that the game tells of each episode, by its own names, in order."""
    found = [OF_GAME.fullmatch(objective) for objective in objectives]
    return tuple(match.group(1) for match in found if match is not None)


class EvolutionConfig(Section):
    """Population based training: policies that earn less begin anew as copies of better ones.

    They do so in their own places, with other hyperparameters, while the game goes on.
    """

    every: Count | None = None
    """Matches between two looks at who earns more. None: there is no evolution."""
    games: Annotated[Count, EVOLUTION] = 100
    """Games that a policy has played since it was born, and since it was judged last, before it is
    judged; 10 at least, unless `confidence` is 0. Three of four must have played so many before any
    are compared."""
    fitness: Annotated[str | tuple[str, ...], AfterValidator(_known), EVOLUTION] = "return"
    """What policies are judged by: the mean `return` of their games, their `rating`, or the share
    of their meetings that they won (`win_rate`), or the mean return of their team (`team_return`;
    of all who play, where there are no teams), or the mean of what the game tells of each episode
    that they play in (`game/NAME`, by the names of the metrics; with `:min` less is better); or
    several of these, the first of which is what the lineage tells."""
    select: Annotated[Literal["truncation", "tournament", "t_test", "non_dominated"], EVOLUTION] = (
        "truncation"
    )
    """Who takes over from whom. `truncation`: each of the worst from one of the best, as many of
    either as `share` says. `tournament`: everyone meets one other, drawn at random, and the worse
    takes over from the better. `t_test`: likewise, by a test of the games of both alone.
    `non_dominated`: as truncation, by several objectives at once; none that trades one of them for
    another is replaced (NSGA-II: Deb et al. 2002)."""
    share: Annotated[
        float,
        Field(gt=0.0, le=0.5),
        Only(
            when=lambda config: (
                config.population.evolution.on
                and config.population.evolution.select in ("truncation", "non_dominated")
            ),
            needs="population.evolution.every, and population.evolution.select truncation or "
            "non_dominated",
        ),
    ] = 0.25
    """The share of the population that counts as the best, and as the worst."""
    confidence: Annotated[float, Field(ge=0.0, lt=1.0), EVOLUTION] = 0.95
    """How sure it must be that a policy is worse than the one that it takes over from, 0 to 1,
    allowing for all that were compared, and for luck that they had in the same matches. 0: it is
    enough to have earned less."""
    among: Annotated[Literal["all", "seats"], EVOLUTION] = "all"
    """Whom a policy may take over from: `all` with a network like its own (see `networks`), or
    those only that may take the same `seats`, so that each agent of the game has a population of
    its own."""
    networks: Annotated[Literal["alike", "any"], EVOLUTION] = "alike"
    """Whether a policy takes over from those only whose networks are `alike`, or from `any` whose
    network differs in the widths or the number of its layers alone. A newborn has the network of
    its place: where that is wider or deeper it begins by computing what its parent does, where it
    is narrower with what fits."""
    numbers: Annotated[dict[str, NumberConfig], EVOLUTION] = {}
    """By hyperparameter that evolves, such as `learning_rate` or `ppo.entropy_cost`: its bounds.
    None: policies take over weights and hyperparameters as they are."""
    inherit: Annotated[Literal["all", "weights"], EVOLUTION] = "all"
    """What a newborn takes over. `all`: the weights of its parent, and how these are trained: the
    moments of its optimizer, its target network or anchor, how far its schedules are, and how large
    returns are; as far as that fits weights that are mutated or crossed, or a frozen parent's.
    `weights`: these alone, with observations' moments; all else begins anew."""
    draw_first: Annotated[bool, NUMBERS] = False
    """Whether the policies that the run begins with have these drawn within their bounds, each its
    own, instead of what is configured."""
    explore: Annotated[Literal["perturb", "resample", "pb2"], NUMBERS] = "perturb"
    """How a hyperparameter changes when it is taken over. `perturb`: by one of `factors`.
    `resample`: drawn anew within its bounds. `pb2`: where a model of what was earned with which
    hyperparameters so far expects the most (Parker-Holder et al. 2020)."""
    factors: Annotated[
        tuple[Annotated[PositiveFloat, Field(allow_inf_nan=False)], ...],
        Field(min_length=1),
        PERTURB,
    ] = (0.8, 1.25)
    """What `perturb` multiplies by, one of them drawn for each hyperparameter."""
    resample: Annotated[Share, PERTURB] = 0.25
    """`perturb`: the share of hyperparameters that are drawn anew instead."""
    mutation: Annotated[float, Field(ge=0.0, allow_inf_nan=False), EVOLUTION] = 0.0
    """Noise that weights are taken over with, in standard deviations of the weights of each layer.
    """

    crossover_numbers: Annotated[Share, PERTURB] = 0.0
    """How probable it is that a hyperparameter that evolves comes from a second parent: the better
    of two others that are drawn. It is perturbed as if the first had had it."""
    crossover_layers: Annotated[Share, EVOLUTION] = 0.0
    """How probable it is that a layer of the network comes from the second parent."""

    @property
    def objectives(self) -> tuple[str, ...]:
        """What policies are judged by, one thing or several."""
        return (self.fitness,) if isinstance(self.fitness, str) else self.fitness

    @property
    def episode_metrics(self) -> tuple[str, ...]:
        """Of the objectives, those that the game tells of each episode, by its names, in order."""
        return episode_metrics_of(self.objectives)

    @property
    def on(self) -> bool:
        """Whether there is any."""
        return self.every is not None

    @property
    def inherits_training(self) -> bool:
        """Whether newborn policies take over more than weights."""
        return self.on and self.inherit == "all"
