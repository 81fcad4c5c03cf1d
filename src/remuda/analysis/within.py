"""How exploitable each policy is by the others of its population: a lower bound.

If all play one policy, and one player alone changes to another policy j of the population, it gains
u(j, i) - u(i, i). The largest of these gains is the exploitability of i within the population: a
restricted game's best response (Lanctot et al. 2017, "A unified game-theoretic approach to
multiagent reinforcement learning", section 3). What a policy outside the population could gain is
not known, so the exploitability in the game itself is at least as large.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from remuda.analysis.bias import Estimate, check_draws, estimate_from
from remuda.analysis.draws import draws
from remuda.analysis.payoff import Numbers, Payoffs
from remuda.errors import UsageError


@dataclass(frozen=True)
class WithinPopulation:
    """What the best of a population gains against each of its policies.

    Attributes:
        names: [N] of the policies.
        gains: [N] what a player gains that changes to the best response, in units of return; 0
            where it is the policy itself. The largest of several noisy payoffs is too large on
            average, which `corrected` takes out.
        best_responses: [N] the names of the best responses to the mean payoffs.
    """

    names: tuple[str, ...]
    gains: tuple[Estimate, ...] = field(repr=False)
    best_responses: tuple[str, ...]

    @property
    def least(self) -> str:
        """The policy against which the least can be gained."""
        return self.names[int(np.argmin([each.corrected for each in self.gains]))]

    def of(self, name: str) -> Estimate:
        """What is gained against one policy."""
        return self.gains[self.names.index(name)]

    def as_summary(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "what": "the gain of the best response among these policies; a lower bound",
            "policies": [
                {"policy": name, "best_response": best, "gain": gain.as_summary()}
                for name, best, gain in zip(
                    self.names, self.best_responses, self.gains, strict=True
                )
            ],
        }


def within_population(
    payoffs: Payoffs, rng: np.random.Generator, samples: int = 400, level: float = 0.95
) -> WithinPopulation:
    """Work out what the best of a population gains against each of its policies.

    Args:
        payoffs: of a symmetric game; what policies earn against themselves must be known.
        rng: what draws of the payoffs are made with.
        samples: so many.
        level: of the intervals.

    Raises:
        UsageError: the game is not symmetric, or a cell was never played.
    """
    check_draws(samples)
    if not payoffs.symmetric:
        raise UsageError(
            "what policies gain against each other is worked out of a symmetric game; pool the "
            "roles first (`Payoffs.pooled_roles`)"
        )
    missing = payoffs.missing_names()
    if missing:
        raise UsageError(f"these never met: {missing}; let them play (`remuda tournament`)")
    found = _gains(payoffs.matrix)
    drawn = np.array([_gains(each[0]) for each in draws(payoffs, samples, rng)])
    best = (payoffs.matrix - np.diagonal(payoffs.matrix)).argmax(0)
    return WithinPopulation(
        payoffs.names,
        tuple(
            estimate_from(float(gain), of_draws, bounds=(0.0, np.inf), level=level)
            for gain, of_draws in zip(found, drawn.T, strict=True)
        ),
        tuple(payoffs.names[place] for place in best),
    )


def _gains(matrix: Numbers) -> Numbers:
    """[N]: the largest u(j, i) - u(i, i) over j, of what the row j earns against the column i."""
    gains: Numbers = (matrix - np.diagonal(matrix)).max(0)
    return gains
