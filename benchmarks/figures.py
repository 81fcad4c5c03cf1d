"""Put what benchmarks recorded into the documentation: `python benchmarks/figures.py [--check]`.

A page has a figure between two marks, in one of two forms:

    <!-- figures: stacks.policies -->
    ... the table of benchmarks/figures/stacks.policies.json, its bars, and how it was measured
    <!-- /figures -->

    over <!-- figures: stacks.policies | 8 | trained/s -->388,000<!-- /figures --> steps a second

The second is one cell: of the row whose first cell is `8`, the column `trained/s`. `a; 8` names the
row whose first two cells are `a` and `8`. This program writes the text between the marks, and a
test fails where the text differs from the files.
"""

from __future__ import annotations

import argparse
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


def names(page: str) -> set[str]:
    """The files that a page has figures of."""
    return {found[2].split("|")[0].strip() for found in BLOCK.finditer(page)}


def _between(mark: str, folder: Path) -> str:
    name, *where = (part.strip() for part in mark.split("|"))
    try:
        record = json.loads((folder / f"{name}.json").read_text())
    except FileNotFoundError:
        raise FiguresError(
            f"figures of {name}: there is no {name}.json; run its benchmark with --record"
        ) from None
    if not where:
        return f"\n{_block(record)}\n"
    row, column = where
    wanted = [part.strip() for part in row.split(";")]
    for cells in record["figures"]["rows"]:
        first = [text(cell) for cell in list(cells.values())[: len(wanted)]]
        if first == wanted and column in cells:
            return text(cells[column])
    raise FiguresError(f"figures of {name}: there is no {column} of {row} among them")


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
    shown: set[str] = set()
    stale = []
    for path in PAGES:
        page = path.read_text()
        shown |= names(page)
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
    unseen = sorted({path.stem for path in FIGURES.glob("*.json")} - shown)
    if unseen:
        print(f"recorded, and on no page: {', '.join(unseen)}")
    if stale and options.check:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
