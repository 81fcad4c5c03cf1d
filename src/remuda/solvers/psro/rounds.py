"""The rounds of matches of a double oracle with trained best responses, as its record has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remuda.evaluation.results import Limits
from remuda.solvers.psro.iterations import Setup
from remuda.solvers.psro.matches import (
    LineUp,
    LineUpSums,
    first_matches,
    level_out,
    play_line_ups,
    share_out,
)
from remuda.solvers.psro.meta_strategy import MetaStrategy
from remuda.solvers.psro.oracles import Named
from remuda.system.rng import make_rng


class StoppedError(Exception):
    """A stop signal during matches or a search: the unfinished step is discarded."""


class Rounds:
    """The rounds so far, and the sums of returns of all line-ups.

    Round 0 of an iteration plays the new line-ups. Round 1 plays more matches of those that matter
    for the mixtures.
    """

    def __init__(
        self,
        setup: Setup,
        record: Callable[[dict[str, Any]], None],
        stopped: Callable[[], bool],
    ) -> None:
        """`record` appends a line to the record."""
        self._setup, self._settings = setup, setup.settings
        self._record, self._stopped = record, stopped
        self._seats = len(setup.env.agents)
        self.sums = LineUpSums(self._seats, setup.settings.symmetric)
        self._done: set[tuple[int, int]] = set()  # rounds played: (iteration, 0 or 1)
        self._first: dict[int, int] = {}  # by iteration, the matches of each new line-up

    def play_new(self, number: int, by_seat: Sequence[Sequence[Named]]) -> None:
        """Play the line-ups that have not met. `by_seat`: the policies that may play each seat."""
        if (number, 0) in self._done:
            return
        counts = tuple(map(len, by_seat))
        played = self.sums.matches(counts)
        new = [line_up for line_up in self.sums.line_ups(counts) if not played[line_up]]
        matches = first_matches(len(new), counts, self._settings.matches)
        self._play(number, 0, dict.fromkeys(new, matches), by_seat, matches)

    def play_more(
        self, number: int, by_seat: Sequence[Sequence[Named]], solve: Callable[[], MetaStrategy]
    ) -> None:
        """Play more matches of the line-ups that matter for the meta-game's strategy."""
        if (number, 1) in self._done:
            return
        strategy = solve()
        counts = tuple(map(len, by_seat))
        first, total = self._first[number], self._settings.matches * (sum(counts) - self._seats + 1)
        if self._seats == 2:
            more = share_out(strategy, self.sums, counts, total, first)
        else:
            more = level_out(strategy, self.sums, counts, total)
        self._play(number, 1, more, by_seat, first)

    def count(self, line: Mapping[str, Any]) -> None:
        """Count the matches of a round, as it is recorded."""
        self._done.add((line["after"], line["round"]))
        self._first[line["after"]] = line["first"]
        for each in line["line_ups"]:
            self.sums.add(each["line_up"], each["sums"])

    def _play(
        self,
        number: int,
        turn: int,
        wanted: Mapping[LineUp, int],
        by_seat: Sequence[Sequence[Named]],
        first: int,
    ) -> None:
        """Play and record a round."""
        played: list[dict[str, Any]] = []
        if wanted:
            line_ups = {
                line_up: [by_seat[seat][policy][1] for seat, policy in enumerate(line_up)]
                for line_up in wanted
            }
            played = play_line_ups(
                self._setup.env,
                line_ups,
                list(wanted.values()),
                int(make_rng(self._settings.seed, "psro", "matches", number, turn).integers(2**62)),
                self._settings.symmetric,
                Limits(interrupted=self._stopped),  # a round may take minutes
            )
            if self._stopped():
                raise StoppedError
        line = {"after": number, "round": turn, "first": first, "line_ups": played}
        self._record(line)
        self.count(line)
