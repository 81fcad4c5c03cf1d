"""The ledger: what came of every match, appended and never changed; statistics are views of it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator

from remuda.population.records import Match, PolicyRef, Result


class Ledger:
    """Results of one purpose, and what they add up to between any two policies.

    Between two policies every pair of their seats in a match counts as one meeting; who has the
    greater return has won it, and a draw is half a win for both.
    """

    def __init__(self, purpose: str = "training") -> None:
        self._purpose = purpose
        self.results: list[Result] = []
        self._met: dict[tuple[PolicyRef, PolicyRef], int] = defaultdict(int)
        self._won: dict[tuple[PolicyRef, PolicyRef], float] = defaultdict(float)
        self._earned: dict[tuple[PolicyRef, PolicyRef], float] = defaultdict(float)

    def append(self, result: Result) -> bool:
        """Note a result; False: it is of another purpose, and not noted."""
        if result.match.purpose != self._purpose:
            return False
        self.results.append(result)
        seats, returns = result.match.seats, result.returns
        for i, one in enumerate(seats):
            for j, other in enumerate(seats):
                if i == j:
                    continue
                self._met[one, other] += 1
                self._earned[one, other] += returns[i]
                won = 0.5 if returns[i] == returns[j] else float(returns[i] > returns[j])
                self._won[one, other] += won
        return True

    def meetings(self, one: PolicyRef, other: PolicyRef) -> int:
        """How often they met."""
        return self._met.get((one, other), 0)

    def win_rate(self, one: PolicyRef, other: PolicyRef, doubt: float = 1.0) -> float:
        """The share of meetings that `one` won, draws halved, 0 to 1.

        Args:
            one: whose wins are counted.
            other: against whom.
            doubt: so many meetings are added that went half and half; with 0, and no meeting, 0.5.
        """
        met = self.meetings(one, other)
        if met + doubt == 0.0:
            return 0.5
        return (self._won.get((one, other), 0.0) + 0.5 * doubt) / (met + doubt)

    def payoff(self, one: PolicyRef, other: PolicyRef) -> float:
        """Mean over their meetings of the return of `one`; not a number where they never met."""
        met = self.meetings(one, other)
        return self._earned[one, other] / met if met else float("nan")


def to_line(result: Result) -> str:
    """A result as one line of JSON."""
    match = result.match
    return json.dumps(
        {
            "match": match.id,
            "purpose": match.purpose,
            "seats": [[ref.policy, ref.version] for ref in match.seats],
            "returns": list(result.returns),
            "acted": [list(versions) for versions in result.acted],
            "truncated": result.truncated,
        }
    )


def from_lines(lines: Iterable[str]) -> Iterator[Result]:
    """Results from lines of JSON; a half-written last line is passed over."""
    for line in lines:
        if not line.endswith("\n"):
            return
        data = json.loads(line)
        seats = tuple(PolicyRef(policy, version) for policy, version in data["seats"])
        yield Result(
            Match(data["match"], seats, data["purpose"]),
            tuple(data["returns"]),
            tuple((oldest, newest) for oldest, newest in data["acted"]),
            data["truncated"],
        )
