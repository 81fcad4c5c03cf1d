"""Train with your own director: it freezes a copy of the highest-rated policy from time to time.

python examples/own_director.py [TURNS]
"""

import sys
from collections.abc import Mapping
from typing import Any

import remuda
from remuda.population import Command, Freeze, Ledger, Population


class KeepTheBest:
    """Freeze the highest-rated policy every `EVERY` matches; `remuda.population.Director`."""

    EVERY = 500

    def __init__(self) -> None:
        self.frozen_at = 0  # matches finished at the last copy

    def step(
        self,
        population: Population,
        ledger: Ledger,  # noqa: ARG002
        versions: Mapping[str, int],  # noqa: ARG002
    ) -> list[Command]:
        """Return the commands to carry out now; called whenever matches have ended."""
        if population.matches - self.frozen_at < self.EVERY:
            return []
        self.frozen_at = population.matches
        best = max(population.learning, key=lambda member: member.rating)
        return [Freeze(best.ref.policy)]

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"frozen_at": self.frozen_at}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.frozen_at = state["frozen_at"]


def main() -> None:
    """Train three policies against each other and the copies, and list the copies."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    result = remuda.train(
        "kuhn_poker",
        policy={"algorithm": "ppo"},
        population={
            "policies": 3,
            "matchmaker": "random",
            "director": "own_director:KeepTheBest",
            "snapshots": {"keep": 5},
        },
        run={"turns": turns, "evaluate_episodes": 0},
    )
    print("frozen copies:", *remuda.load(result).frozen)


if __name__ == "__main__":
    main()
