"""Put what benchmarks recorded into the documentation: `python benchmarks/figures.py [--check]`.

A page has figures between two marks. NAME is that of a file in benchmarks/figures:

    <!-- figures: NAME -->                     the table, its bars, and how it was measured
    <!-- figures: NAME | ROW | COL; COL -->    these columns, of all rows that match
    <!-- figures: NAME | ROW | COL -->         one cell, of the first row that matches
    <!-- figures: NAME | missed -->            how many of its bars are missed: `2 of 90`

    over <!-- figures: stacks.policies | 8 | trained/s -->388,000<!-- /figures --> steps a second

ROW is the text of a row's first cell, or of its first cells: `a; 8`. A `*` matches any text. NAME
is `*` for the missed bars of all files. This program writes the text between the marks, and a test
fails where the text differs from the files. `make site` shows all files on one page (`all_of`).
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from pathlib import Path
from typing import Any

from recording import FIGURES, ROOT, Cell, columns, text

BLOCK = re.compile(r"(<!-- figures: ([^\n]+?) -->).*?(<!-- /figures -->)", re.DOTALL)
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


class FiguresError(Exception):
    """A page asks for a figure that was not recorded."""


def rendered(page: str, folder: Path = FIGURES) -> str:
    """The text of a page, with every figure from the files of a folder."""
    return BLOCK.sub(lambda found: found[1] + _between(found[2], folder) + found[3], page)


def all_of(folder: Path = FIGURES) -> str:
    """Return the page with everything recorded: missed bars first, then a section for each file."""
    records = _records(folder)
    missed = [
        [f"[{name}](#{name})", bar["what"], text(bar["figure"]), bar["held_to"]]
        for name, record in records.items()
        for bar in record["figures"]["bars"]
        if not bar["met"]
    ]
    parts = [
        "---\nsearch: {exclude: true}\n---\n\n# Measured figures",
        "All that benchmarks recorded in `benchmarks/figures/`: tables, bars, commands, dates, "
        "commits and machines. A bar is a limit that a figure is held to. "
        f"Missed bars: {_missed(records)}.",
        _table(["file", "bar", "figure", "held to"], missed),
    ]
    for name, record in records.items():
        parts += [f"## {name} {{#{name}}}", _about(record), _block(record)]
    return "\n\n".join(parts) + "\n"


def _records(folder: Path, name: str = "*") -> dict[str, Any]:
    """Read the files with this name, in which `*` matches any text."""
    found = {p.stem: json.loads(p.read_text()) for p in sorted(folder.glob(f"{name}.json"))}
    if not found:
        raise FiguresError(
            f"figures of {name}: there is no {name}.json; run its benchmark with --record"
        )
    return found


def _about(record: dict[str, Any]) -> str:
    """The first line of the program that recorded it."""
    program = ROOT / record["command"].split()[1]
    return (ast.get_docstring(ast.parse(program.read_text())) or "").split("\n")[0]


def _between(mark: str, folder: Path) -> str:
    name, *where = (part.strip() for part in mark.split("|"))
    records = _records(folder, name)
    if where == ["missed"]:
        return _missed(records)
    record = records[name]
    if not where:
        return f"\n{_block(record)}\n"
    row, column = where
    wanted = [column.strip() for column in column.split(";")]
    rows = [cells for cells in record["figures"]["rows"] if _matches(row, list(cells.values()))]
    if len(wanted) == 1:
        rows = [cells for cells in rows if column in cells]
    if not rows or not set(wanted) <= set(columns(rows)):
        raise FiguresError(f"figures of {name}: there is no {column} of {row} among them")
    if len(wanted) == 1:
        return text(rows[0][column])
    return f"\n{_table(wanted, [[cells.get(c) for c in wanted] for cells in rows])}\n"


def _matches(row: str, cells: list[Cell]) -> bool:
    """Whether the first cells have the text of a mark's ROW."""
    patterns = [re.escape(part.strip()).replace(r"\*", ".*") for part in row.split(";")]
    pairs = zip(patterns, cells, strict=False)
    return len(cells) >= len(patterns) and all(re.fullmatch(p, text(c)) for p, c in pairs)


def _missed(records: dict[str, Any]) -> str:
    bars = [bar for record in records.values() for bar in record["figures"]["bars"]]
    return f"{sum(not bar['met'] for bar in bars)} of {len(bars)}"


def _block(record: dict[str, Any]) -> str:
    rows, bars = record["figures"]["rows"], record["figures"]["bars"]
    parts = []
    if rows:
        parts.append(_table(columns(rows), [[row.get(c) for c in columns(rows)] for row in rows]))
    if bars:
        verdicts = [
            [b["what"], b["figure"], b["held_to"], "met" if b["met"] else "**missed**"]
            for b in bars
        ]
        parts.append(_table(["bar", "figure", "held to", ""], verdicts))
    machine = record["machine"]
    parts.append(
        f"`{record['command']}`{_stopped(record)}, {record['date']}, commit {record['commit']}; "
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']} GiB; "
        f"{machine['gpu'] + '; ' if machine.get('gpu') else ''}"
        f"Python {record['python']}, "
        f"PyTorch {record['torch']}, NumPy {record['numpy']}."
    )
    return "\n\n".join(parts)


def _stopped(record: dict[str, Any]) -> str:
    return f" (stopped after {record['so_far']})" if record.get("so_far") else ""


def _table(head: list[str], rows: list[list[Cell]]) -> str:
    lines = [head, ["---"] * len(head), *([text(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail where they differ"
    )
    options = parser.parse_args()
    stale = []
    for path in PAGES:
        page = path.read_text()
        try:
            new = rendered(page)
        except FiguresError as error:
            raise SystemExit(f"{path.relative_to(ROOT)}: {error}") from None
        if new != page:
            stale.append(str(path.relative_to(ROOT)))
            if not options.check:
                path.write_text(new)
    if stale:
        print(("differ from the files: " if options.check else "written: ") + ", ".join(stale))
    if stale and options.check:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
