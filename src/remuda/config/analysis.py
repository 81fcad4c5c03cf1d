"""The configuration of what is worked out of a population while a run goes on."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat

from remuda.config.sections import Only, Section

DEALT = Only(
    when=lambda config: config.population.dealt,
    needs="a population: population.policies, or a population.matchmaker other than fixed",
)
"""Marks what is for populations whose seats are dealt: the others have no ledger of matches."""


class AnalysisConfig(Section):
    """What is worked out of a population while the run goes on, from the results of its matches."""

    every: NonNegativeFloat | None = 60.0
    """Seconds between two analyses of who earns what against whom: the equilibrium, its support,
    diversity, cycles. A process of low priority works them out, and the run never waits for it.
    0 or None: there is none."""
    members: Annotated[
        int,
        Field(ge=2, le=512),
        Only(
            when=lambda config: config.population.dealt and bool(config.analysis.every),
            needs="a population, and analysis.every",
        ),
    ] = 64
    """The most members that an analysis looks at: policies that learn first, then frozen copies,
    the newest of each policy in turn."""
