"""Generate docs/metrics.md, which lists every column of the metrics.

python -m remuda.runs.metrics_reference > docs/metrics.md
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from string import Template

from remuda.runs.columns import COLUMNS, Column
from remuda.runs.metrics import SHARES
from remuda.system.checkpoint.opening import read_file

GAME = "The mean over episodes of an episode metric of the environment; see docs/games.md."


def page() -> str:
    text = Template(read_file(Path(__file__).with_name("metrics_page.md")).decode())
    return text.substitute(
        run=_columns("run", "run"),
        actors=_table(
            ("column", "meaning"),
            [(f"`actor/{name}`", share.meaning) for name, share in SHARES.items()],
        ),
        game=_table(("column", "of", "meaning"), [("`game/NAME`", "episodes", GAME)]),
        population=_columns("population", "population"),
        policy=_columns("policy", "POLICY", kinds=True),
        member=_columns("member", "POLICY").removesuffix("\n"),
    )


def _columns(table: str, group: str, kinds: bool = False) -> str:
    """Return a table of columns, with the algorithms that report each if `kinds`."""
    headings = ("column", "unit", "of", *(("algorithm",) if kinds else ()), "meaning")
    rows = [
        (_tag(group, each), each.unit, each.over, *((each.kind,) if kinds else ()), each.meaning)
        for each in COLUMNS[table].values()
    ]
    return _table(headings, rows)


def _tag(group: str, column: Column) -> str:
    if column.axis:
        return f"`{column.axis}`"
    return f"`{group}/{column.name}`" if column.shown else f"{column.name} (`metrics.jsonl` only)"


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    print(page(), end="")
