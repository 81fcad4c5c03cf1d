"""The configuration of the population analysis during a run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat

from remuda.config.sections import Only, Section

DEALT = Only(
    when=lambda config: config.population.dealt,
    needs="a population: population.policies, or a population.matchmaker other than fixed",
)
"""Condition: a population whose seats are dealt, which alone has a ledger of matches."""


class AnalysisConfig(Section):
    """Analysis of a population during a run, from the results of its matches."""

    every: NonNegativeFloat | None = 60.0
    """Seconds between two analyses of the payoffs between members: equilibrium, support, diversity,
    cycles. A low-priority process computes them, and the run never waits for it. 0 or None: no
    analysis."""
    members: Annotated[
        int,
        Field(ge=2, le=512),
        Only(
            when=lambda config: config.population.dealt and bool(config.analysis.every),
            needs="a population, and analysis.every",
        ),
    ] = 64
    """The most members in an analysis: learning policies first, then frozen copies, the newest of
    each policy in turn."""
