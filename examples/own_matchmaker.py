"""Train with your own matchmaker: each policy in turn meets the highest-rated other policy.

python examples/own_matchmaker.py [TURNS]
"""

import sys

from numpy.random import Generator

import remuda
from remuda.population import Ledger, Matchmaker, Population, Seating


class MeetTheBest(Matchmaker):
    """A matchmaker for two seats; some opponents are drawn at random, so that all are rated."""

    def __init__(self, num_seats: int, explore: float = 0.2) -> None:
        super().__init__(num_seats)
        self.explore = explore

    def seat(self, population: Population, ledger: Ledger, rng: Generator) -> Seating:  # noqa: ARG002
        """Return the policy on each seat of the next match."""
        learning = population.learning
        learner = learning[self.proposed % len(learning)]
        others = [member for member in population.members if member is not learner]
        opponent = max(others, key=lambda member: member.rating)
        if rng.random() < self.explore:
            opponent = others[int(rng.integers(len(others)))]
        seats = (learner.ref, opponent.ref)
        return seats if rng.random() < 0.5 else seats[::-1]


def main() -> None:
    """Train four policies, and show how often each pair met."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    result = remuda.train(
        "kuhn_poker",
        policy={"algorithm": "ppo"},
        population={
            "policies": 4,
            "matchmaker": "own_matchmaker:MeetTheBest",
            "options": {"explore": 0.3},
        },
        run={"turns": turns, "evaluate_episodes": 0},
    )
    payoffs = remuda.load(result).payoffs()
    for name, row in zip(payoffs.names, payoffs.counts, strict=True):
        print(name, *(int(count) for count in row.ravel()))


if __name__ == "__main__":
    main()
