"""How much of what `worlds.py` comes to, PPO's defaults come to as well.

python benchmarks/worlds.py spread --defaults --alone --record     for each world, first
python benchmarks/worlds_defaults.py --record

It trains nothing: for each world it takes the recorded row with what was chosen for the world, and
the recorded row with `--defaults`, in which nothing is chosen but PPO. What each comes to counts
from the floor, play at random; the better of greedy and sampled play does, and of independent
policies and one for all. In tic-tac-toe it is the share of games that are not lost to a perfect
player.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from recording import FIGURES, Results, options_of

from remuda.errors import ConfigError

LEAST, OF_WORLDS = 0.9, 2 / 3
"""The share that defaults are to reach, in so many of the worlds."""
ALIKE = 0.95
"""The turns of one row by those of the other, at least."""
GAMES = 2_000
"""Of a row of tic-tac-toe, both seats."""


def recorded(name: str) -> tuple[str, list[dict[str, Any]]] | None:
    """The command and the rows that were recorded under a name."""
    file = FIGURES / f"worlds.{name}.json"
    if not file.exists():
        return None
    found = json.loads(file.read_text())
    return found["command"], found["figures"]["rows"]


def reached(rows: list[dict[str, Any]]) -> float:
    """What Remuda comes to in the best of its rows."""
    if "lost first" in rows[0]:
        lost = [row["lost first"] + row["lost second"] for row in rows]
        return 1.0 - sum(lost) / (GAMES * len(lost))
    own = [row for row in rows if row["library"].startswith("Remuda")]
    return max(float(row[way].split()[0]) for row in own for way in ("greedy", "sampled"))


def main() -> None:
    """Compare all worlds that have both rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options = options_of(parser)
    results, shares = Results("worlds_defaults"), []
    for file in sorted(FIGURES.glob("worlds.*.defaults.json")):
        name = file.name.split(".")[1]
        theirs, own = recorded(f"{name}.defaults"), recorded(name)
        if theirs is None or own is None or "--defaults" not in theirs[0]:
            raise ConfigError(f"{name} has no row of both kinds; record it by worlds.py {name}")
        (_, defaults), (_, chosen) = theirs, own
        turns = [rows[0]["turns"] for rows in (defaults, chosen)]
        if min(turns) < ALIKE * max(turns):
            raise ConfigError(f"{name} was trained for unlike numbers of turns: {turns}")
        floor = float(defaults[0].get("floor", 0.0))
        found, tuned = reached(defaults), reached(chosen)
        shares.append((found - floor) / (tuned - floor))
        results.row(
            {
                "world": name,
                "floor": floor,
                "as chosen": tuned,
                "PPO's defaults": found,
                "share": round(shares[-1], 2),
                "seeds": len(defaults) if "seed" in defaults[0] else defaults[0]["seeds"],
            }
        )
    what = f"worlds where defaults reach {LEAST:.0%}, of {len(shares)}"
    results.bar(what, sum(share >= LEAST for share in shares), least=OF_WORLDS * len(shares))
    results.finish(options)


if __name__ == "__main__":
    main()
