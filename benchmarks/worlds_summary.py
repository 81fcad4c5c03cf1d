"""All worlds of `worlds.py` in one table, from what was recorded of each; it trains nothing.

python benchmarks/worlds_summary.py --record

Beside the result of each world with its chosen settings is that of PPO's defaults, if it was
recorded (`worlds.py WORLD --defaults --alone --record`). A share of it counts from
the floor, play at random; in tic-tac-toe from games that are all lost to a perfect player. The
result of IQN's defaults is there too (`--defaults iqn`), after as many turns as it had. The best
of greedy and sampled play counts, and of independent policies and one for all. Leduc poker, which
`leduc.py` trains, is measured by its exploitability.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass
from statistics import mean
from typing import Any

from recording import FIGURES, Cell, Results, options_of
from worlds import GAMES, OFF_POLICY, PPO, spread_of
from worlds_known import WORLDS
from worlds_rows import OURS_ACROSS, THEIRS_ACROSS

from remuda.errors import ConfigError

LEAST, OF_WORLDS = 0.9, 2 / 3
"""The share that defaults are to reach, in so many of the worlds."""
ALIKE = 0.95
"""The turns of a row with defaults by those of the other, at least."""
LEDUC, PROGRAM = "leduc_poker", "leduc.self_play.open_spiel"
"""A world with a separate program, and what that records."""
RANDOM_LEDUC = 4.747222 / 2.0
"""The exploitability of play at random: half of NashConv, exactly."""
ORDER = (*WORLDS, "tic_tac_toe", LEDUC)
"""That of the page."""
BESIDE = "beside the other library"
ACROSS = {OURS_ACROSS, THEIRS_ACROSS}
"""Rows of play across: those count where there are some."""
REMUDA, SB3 = "Remuda", "SB3"


@dataclass(frozen=True)
class Recorded:
    """The record of a world: for each library, its returns."""

    command: str
    rows: list[dict[str, Any]]
    bars: list[dict[str, Any]]

    @property
    def is_across(self) -> bool:
        """True if the sides of two libraries met."""
        return any(row["library"] in ACROSS for row in self.rows)

    def turns(self, library: str = REMUDA) -> int:
        """That were trained, with each seed, where a library came to most."""
        return int(self._row(library)["turns"])

    def length(self) -> int:
        """Return the length of a seed's training, which must agree for rows to be compared."""
        return self.turns()

    def seeds(self, library: str = REMUDA) -> int:
        """That were trained, where a library came to most."""
        return int(self._row(library)["seeds"])

    @property
    def floor(self) -> float:
        """The result of random play."""
        return float(self.rows[0]["floor"])

    def random(self) -> str:
        """The same to be read; empty: it was not measured."""
        return f"{self.floor:.2f}"

    def best(self, library: str) -> str:
        """The best of a library's returns, with its standard error; empty: it was not run.

        Where two sides learn, those with the other library's other side count.
        """
        if not any(row["library"].startswith(library) for row in self.rows):
            return ""
        row = self._row(library)
        return max(row["greedy"], row["sampled"], key=_mean)

    def _row(self, library: str) -> dict[str, Any]:
        own = [row for row in self.rows if row["library"].startswith(library)]
        own = [row for row in own if row["library"] in ACROSS] or own
        return max(own, key=lambda row: max(_mean(row["greedy"]), _mean(row["sampled"])))

    def reached(self) -> float:
        """Return Remuda's result: the more, the better."""
        return _mean(self.best(REMUDA))

    def words(self) -> str:
        """The same to be read."""
        return self.best(REMUDA) + ", across" * self.is_across

    def others(self) -> str:
        """Return the other library's result, and its training if that was not as long."""
        if not self.best(SB3):
            return ""
        told = [self.best(SB3), *["across"] * self.is_across]
        if self.seeds(SB3) != self.seeds():
            told.append("1 seed" if self.seeds(SB3) == 1 else f"{self.seeds(SB3)} seeds")
        if not alike(self.turns(SB3), self.turns()):
            told.append(f"{self.turns(SB3):,} turns")
        return ", ".join(told)

    def verdict(self, beside: bool) -> str:
        """Return the bar, and whether it is met; empty: there is none."""
        for bar in reversed(self.bars):
            if bar["what"].endswith(BESIDE) == beside:
                return f"{bar['held_to']}: {'met' if bar['met'] else '**missed**'}"
        return ""


class OfSeeds(Recorded):
    """The rows of a game of two that only Remuda learns, one for each seed."""

    def turns(self, library: str = REMUDA) -> int:  # noqa: ARG002
        """That were trained, with each seed."""
        return int(mean(row["turns"] for row in self.rows))

    def seeds(self, library: str = REMUDA) -> int:  # noqa: ARG002
        """That were trained."""
        return len(self.rows)

    def others(self) -> str:
        """Nothing: the other library does not play it."""
        return ""


class TicTacToe(OfSeeds):
    """Games against a perfect player: the share of those that are not lost."""

    @property
    def floor(self) -> float:
        """To lose every game: it is not measured what play at random comes to."""
        return 0.0

    def random(self) -> str:
        """Nothing."""
        return ""

    def reached(self) -> float:
        """The share of games that are not lost."""
        lost = [row["lost first"] + row["lost second"] for row in self.rows]
        return 1.0 - sum(lost) / (2 * GAMES * len(lost))

    def words(self) -> str:
        """The same to be read."""
        return f"{self.reached():.1%} of games not lost"


class Leduc(OfSeeds):
    """Exploitability of the pool, exactly: the less, the better."""

    @property
    def floor(self) -> float:
        """The result of random play."""
        return -RANDOM_LEDUC

    def random(self) -> str:
        """The same to be read."""
        return f"{RANDOM_LEDUC:.2f}"

    def length(self) -> int:
        """Games; how many turns these have is a matter of how they are played."""
        return int(mean(row["games"] for row in self.rows))

    def reached(self) -> float:
        """Exploitability, below 0, so that more is better here too."""
        return -mean(row["pool"] for row in self.rows)

    def words(self) -> str:
        """It, with its standard error."""
        return f"exploitability {spread_of([row['pool'] for row in self.rows])}"


KINDS: dict[str, type[Recorded]] = {"tic_tac_toe": TicTacToe, LEDUC: Leduc}
"""The kind of record of each world; all others record returns."""


def alike(turns: int, others: int) -> bool:
    """Return whether numbers of turns differ by no more than threads make of one number."""
    return min(turns, others) >= ALIKE * max(turns, others)


def _mean(words: str) -> float:
    return float(words.split(maxsplit=1)[0])


def recorded(world: str, kind: str = "") -> Recorded | None:
    """Return the record of a world, or of its `.defaults` or `.iqn`."""
    file = FIGURES / f"{PROGRAM if world == LEDUC else f'worlds.{world}'}{kind}.json"
    if not file.exists():
        return None
    found = json.loads(file.read_text())
    figures = found["figures"]
    return KINDS.get(world, Recorded)(found["command"], figures["rows"], figures["bars"])


def row_of(
    world: str, chosen: Recorded, defaults: Recorded | None, iqn: Recorded | None
) -> dict[str, Cell]:
    """A line of the table.

    Raises:
        ConfigError: what is to be of defaults is no such row, or PPO's of another number of turns.
    """
    row: dict[str, Cell] = {
        "world": world,
        "random": chosen.random(),
        REMUDA: chosen.words(),
        SB3: chosen.others(),
        "bar": chosen.verdict(beside=False),
        BESIDE: chosen.verdict(beside=True),
        "seeds": chosen.seeds(),
        "turns": chosen.turns(),
        "PPO's defaults": "",
        "share": "",
        "IQN's defaults": "" if iqn is None else f"{iqn.words()} after {iqn.turns():,}",
    }
    if iqn is not None and algorithm_of(iqn) != "iqn":
        raise ConfigError(f"by IQN {world} has no row of --defaults iqn: {iqn.command}")
    if is_by_defaults(world):
        return row | {"PPO's defaults": "the row itself", "share": f"{1:.2f}"}
    if defaults is None:
        return row
    share = share_of(world, chosen, defaults)
    told = "none: nothing was learned" if share is None else f"{share:.2f}"
    return row | {"PPO's defaults": defaults.words(), "share": told}


def is_by_defaults(world: str) -> bool:
    """Return whether nothing was chosen for a world but PPO, so that its row shows defaults."""
    return world in WORLDS and WORLDS[world].settings() == WORLDS[world].settings(PPO)


def algorithm_of(defaults: Recorded) -> str:
    """The one that a row of `--defaults` is of; empty: it is no such row."""
    found = re.search(rf"--defaults(?:[ =]({'|'.join((PPO, *OFF_POLICY))})\b)?", defaults.command)
    return "" if found is None else found[1] or PPO


def share_of(world: str, chosen: Recorded, defaults: Recorded) -> float | None:
    """Return the defaults' result relative to the chosen one, from the floor; None: not above it.

    Raises:
        ConfigError: what is to be of PPO's defaults is no such row, or of another number of turns.
    """
    if algorithm_of(defaults) != PPO:
        raise ConfigError(f"by defaults {world} has no row of --defaults: {defaults.command}")
    if not alike(defaults.length(), chosen.length()):
        lengths = f"{defaults.length():,} and {chosen.length():,}"
        raise ConfigError(f"{world} was trained for unlike numbers of turns or games: {lengths}")
    learned = chosen.reached() - chosen.floor
    return (defaults.reached() - chosen.floor) / learned if learned > 0.0 else None


def summary() -> Results:
    """The table, and the bar of defaults.

    Raises:
        ConfigError: what was recorded as defaults is something else.
    """
    results = Results("worlds_summary")
    shares = []
    for world in ORDER:
        chosen = recorded(world)
        if chosen is None:
            continue
        defaults, iqn = recorded(world, ".defaults"), recorded(world, ".iqn")
        results.row(row_of(world, chosen, defaults, iqn))
        if is_by_defaults(world):
            shares.append(1.0)
        elif defaults is not None:
            shares.append(share_of(world, chosen, defaults))
    worlds = len(results.rows)
    enough = sum(share is not None and share >= LEAST for share in shares)
    what = f"of {worlds} worlds, {len(shares)} tried: where PPO's defaults reach {LEAST:.0%}"
    results.bar(what, enough, least=OF_WORLDS * worlds)
    return results


def main() -> None:
    """Put the table together."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options = options_of(parser)
    try:
        results = summary()
    except ConfigError as error:
        parser.error(str(error))
    if not results.rows:
        parser.error("nothing is recorded: python benchmarks/worlds.py WORLD --record")
    results.finish(options)


if __name__ == "__main__":
    main()
