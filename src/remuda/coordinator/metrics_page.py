"""docs/metrics.md: every column of the metrics, from their declarations.

python -m remuda.coordinator.metrics_page > docs/metrics.md
"""

from __future__ import annotations

from collections.abc import Mapping

from remuda.coordinator.columns import EPISODES, Column
from remuda.coordinator.records import (
    MEMBER_COLUMNS,
    POLICY_COLUMNS,
    POPULATION_COLUMNS,
    RUN_COLUMNS,
    SHARES,
)

HEAD = """# Metrics

A run writes a record every `run.log_every` seconds: a line of JSON in `metrics.jsonl`, an event for
TensorBoard in `tensorboard/`, and a row of what `remuda.load(RUN).metrics()` returns. All three are
made from one table, `src/remuda/coordinator/records.py`, and so is this page:

    python -m remuda.coordinator.metrics_page > docs/metrics.md

| of | means |
| --- | --- |
| total | counted from the start of the run, through resumes |
| newest | when the record is made |
| interval | of the time since the record before |
| episodes | of the episodes that ended in the interval, of all actors; empty where none did |
| updates | mean over the updates of the interval; empty where there was none |

Empty numbers are `null` in `metrics.jsonl`, NaN in the columns of Python, and not written for
TensorBoard. The same holds for a learner's numbers in an interval in which it was restarted. Every
policy has its own numbers, whether its learner trains it alone or in a stack.
"""

POPULATION = """Numbers of several policies together. `newest` means the newest analysis
(`analysis.every`), which a low-priority process computes from the ledger of matches, if seats are
dealt. It covers up to `analysis.members` members: learning policies first, then frozen copies, the
newest of each policy in turn. Pairs that met fewer than 10 times are gaps. Members with the most
gaps are left out, frozen and older copies first, until all the others met each other; `analysed`
is their number. Frozen copies do not meet if one seat is always a live policy's, so that one of
them remains then. Between two members of which one learns, earlier results count as at most 1,000
meetings, so that new ones replace them. Numbers of an analysis are empty until the first one, for
up to `analysis.every` seconds after a resume, and if too few members met.
"""


def page() -> str:
    """Return the text of docs/metrics.md."""
    game = "The mean over episodes of an episode metric of the environment; see docs/games.md."
    parts = [
        HEAD,
        "## Of the run\n",
        _table("column", {_tag("run", each): each for each in RUN_COLUMNS.values()}),
        "\n## Of the actors\n\nShares of the interval, 0 to 1, over all actors.\n",
        _lines(
            ("column", "meaning"),
            [(f"`actor/{name}`", share.meaning) for name, share in SHARES.items()],
        ),
        "\n## Of the game\n",
        _lines(("column", "of", "meaning"), [("`game/NAME`", EPISODES, game)]),
        "\n## Of the population\n\n" + POPULATION,
        _table("column", {_tag("population", each): each for each in POPULATION_COLUMNS.values()}),
        "\n## Of each policy\n",
        _table("column", {_tag("POLICY", each): each for each in POLICY_COLUMNS.values()}, True),
        "\n## Of each member of a population\n\nFrozen copies stand in `metrics.jsonl` only.\n",
        _table("column", {_tag("POLICY", each): each for each in MEMBER_COLUMNS.values()}),
    ]
    return "\n".join(parts)


def _tag(group: str, column: Column) -> str:
    if column.axis:
        return f"`{column.axis}`"
    return f"`{group}/{column.name}`" if column.shown else f"{column.name} (`metrics.jsonl` only)"


def _table(heading: str, columns: Mapping[str, Column], kinds: bool = False) -> str:
    headings = (heading, "unit", "of", *(("algorithm",) if kinds else ()), "meaning")
    return _lines(
        headings,
        [
            (tag, each.unit, each.over, *((each.kind,) if kinds else ()), each.meaning)
            for tag, each in columns.items()
        ],
    )


def _lines(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    print(page(), end="")
