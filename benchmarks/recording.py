"""The results of a benchmark: rows of a table, and the bars that it is held to.

Every benchmark makes its `Results` and finishes with them, and so has these flags:

--record       writes benchmarks/figures/NAME.json, from which `figures.py` fills in the pages
--json         prints the same as JSON
--against SRC  runs the benchmark in turns with the package in another folder, such as the `src`
               of an older tree, so often as --pairs says; prints medians, ratios and their spread

A recorded file says what was run, when, and on what kind of machine; no name of a host, no path.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import median, stdev
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
FIGURES = Path(__file__).resolve().parent / "figures"
Cell = float | str | bool | None


@dataclass(frozen=True)
class Bar:
    """A figure, and what it is held to."""

    what: str
    figure: Cell
    held_to: str
    met: bool


class Results:
    """The results of one benchmark."""

    def __init__(self, name: str) -> None:
        """Begin with nothing found.

        Args:
            name: of the file that it is recorded in.
        """
        self.name = name
        self.so_far = ""
        """The finished runs of an unfinished row. It replaces no complete row."""
        self.commits: tuple[str, ...] = ()
        """The commits of its parts, if they differ from this one."""
        self.parts: list[dict[str, Cell]] = []
        """The runs behind the rows; they are in no table."""
        self.rows: list[dict[str, Cell]] = []
        self.bars: list[Bar] = []

    def row(self, cells: Mapping[str, Cell]) -> None:
        """Add a row; its first cell is what it is called."""
        self.rows.append({column: _plain(cell) for column, cell in cells.items()})

    def table(self, table: Table) -> None:
        """Add all rows of a table whose cells are words."""
        heads = [str(column.header) for column in table.columns]
        for cells in zip(*(column.cells for column in table.columns), strict=True):
            self.row(dict(zip(heads, map(str, cells), strict=True)))

    def bar(
        self, what: str, figure: float, *, most: float | None = None, least: float | None = None
    ) -> None:
        """Hold a figure to a bar; with `most` equal to `least` it must be just that."""
        met = (most is None or figure <= most) and (least is None or figure >= least)
        if most is not None and most == least:
            held_to = text(most)
        else:
            bounds = [f"at most {text(most)}"] if most is not None else []
            bounds += [f"at least {text(least)}"] if least is not None else []
            held_to = ", ".join(bounds)
        self.bars.append(Bar(what, _plain(figure), held_to, bool(met)))

    def figures(self) -> dict[str, Any]:
        """All that was found, as JSON has it."""
        return {"rows": self.rows, "bars": [asdict(bar) for bar in self.bars]}

    def finish(self, options: argparse.Namespace) -> None:
        """Print what was found, and record it with --record."""
        record = self.record()
        if options.out:
            options.out.write_text(json.dumps(record | {"source": str(_package())}))
        if options.json:
            print(json.dumps(record))
        else:
            self.show()
        if options.record:
            self.write()

    def write(self) -> None:
        """Record what was found: under a temporary name until it is complete."""
        FIGURES.mkdir(exist_ok=True)
        part, whole = FIGURES / f"{self.name}.part.json", FIGURES / f"{self.name}.json"
        file = part if self.so_far else whole
        file.write_text(json.dumps(self.record(), indent=1, ensure_ascii=False) + "\n")
        if not self.so_far:
            part.unlink(missing_ok=True)
            print(f"recorded as {file.relative_to(ROOT)}; `make figures` puts it into the pages")

    def record(self) -> dict[str, Any]:
        """Return the content of the file: the figures and their origin."""
        return {
            "command": command(sys.argv),
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine(),
            "commit": ", ".join(self.commits) or commit_of_package(),
            "python": platform.python_version(),
            "torch": metadata.version("torch"),
            "numpy": metadata.version("numpy"),
            **({"so_far": self.so_far} if self.so_far else {}),
            "figures": self.figures(),
            **({"runs": self.parts} if self.parts else {}),
        }

    def show(self) -> None:
        """Print the table, and each bar with whether it was met."""
        console = Console(width=None if sys.stdout.isatty() else 140)
        names = columns(self.rows)
        table = Table(*names)
        for row in self.rows:
            table.add_row(*(text(row.get(name)) for name in names))
        console.print(table)
        for bar in self.bars:
            verdict = "met" if bar.met else "MISSED"
            console.print(f"{bar.what}: {text(bar.figure)} (held to: {bar.held_to}): {verdict}")


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line, with the flags that all benchmarks have."""
    add = parser.add_argument
    add("--record", action="store_true", help="write the figures to benchmarks/figures")
    add("--json", action="store_true", help="print JSON")
    add("--against", type=Path, metavar="SRC", help="run in turns with the package in this folder")
    add("--pairs", type=int, default=3, help="how often each is run, with --against")
    add("--out", type=Path, help=argparse.SUPPRESS)  # for the runs of --against
    parser.allow_abbrev = False  # what is recorded is the command, word by word
    options = parser.parse_args()
    if options.against is not None:
        _in_turns(options)
        raise SystemExit
    return options


def text(cell: Cell) -> str:
    """The text of a cell: three digits of what is small, all of what is counted."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, str):
        return cell
    return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.3g}"


def error_of(values: list[float]) -> float:
    """The standard error of a mean; of one value 0."""
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def columns(rows: list[dict[str, Cell]]) -> list[str]:
    """All columns, in the order in which they first occur."""
    return list(dict.fromkeys(column for row in rows for column in row))


def command(words: list[str]) -> str:
    """Return the command, without paths of this machine."""
    plain = [Path(word).name if word.startswith(("/", "~", "..")) else word for word in words[1:]]
    return shlex.join(["python", f"benchmarks/{Path(words[0]).name}", *plain])


def machine() -> dict[str, Any]:
    """Describe the kind of machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cpu = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.exists():
        lines = described.read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        cpu = names[0] if names else cpu
    found = {"cores": cores, "cpu": cpu, "memory_gib": round(psutil.virtual_memory().total / 2**30)}
    return found | _gpus()


def _gpus() -> dict[str, str]:
    """The names of the GPUs that this machine has."""
    if shutil.which("nvidia-smi") is None:
        return {}
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return {"gpu": ", ".join(done.stdout.splitlines())} if done.returncode == 0 else {}


def commit_of_package() -> str:
    """The commit of the package that this process measures."""
    return commit(_package().parents[1])


def commit(folder: Path) -> str:
    """Return the commit of a folder, and whether something was changed since."""

    def git(*words: str) -> str:
        asked = ["git", "-C", str(folder), *words]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git(
            "status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks/*.py"
        )
        return git("rev-parse", "--short=7", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("COMMIT", "unknown")  # of a copy without its history


def _plain(cell: Cell) -> Cell:
    """A number that JSON knows, with as many digits as say something."""
    if cell is None or isinstance(cell, bool | str | int):
        return cell
    number = round(float(cell), 9)
    return int(number) if number == int(number) and abs(number) >= 100 else float(f"{number:.5g}")


def _package() -> Path:
    """The folder of the package that this process measures."""
    import remuda

    assert remuda.__file__ is not None
    return Path(remuda.__file__).resolve().parent


def _in_turns(options: argparse.Namespace) -> None:
    """Run this very benchmark with each of two packages, one after the other, several times."""
    other = options.against.resolve()
    if not (other / "remuda").is_dir():
        raise SystemExit(f"--against {options.against}: there is no folder remuda in it")
    words, flags = [], iter(sys.argv[1:])
    for word in flags:
        if word in ("--against", "--pairs"):
            next(flags)
        elif word not in ("--record", "--json") and not word.startswith(("--against=", "--pairs=")):
            words.append(word)
    found: dict[str, list[dict[str, Any]]] = {"other": [], "this": []}
    folders = {"other": other, "this": _package().parent}
    for i in range(options.pairs):
        for which, folder in folders.items():
            print(f"pair {i + 1} of {options.pairs}: {which} package", flush=True)
            found[which].append(_one_run(words, folder))
    commits = {which: commit(folder.parent) for which, folder in folders.items()}
    name = Path(sys.argv[0]).stem
    results = Results(".".join([name, *(w for w in words[:1] if w.isidentifier()), "against"]))
    for line, first in enumerate(found["this"][0]["rows"]):
        called, *numbers = first.items()
        for column, cell in numbers:
            if isinstance(cell, bool | str) or cell is None:
                continue
            pairs = [
                (theirs["rows"][line][column], ours["rows"][line][column])
                for theirs, ours in zip(found["other"], found["this"], strict=True)
            ]
            ratios = [ours / theirs for theirs, ours in pairs if theirs]
            results.row(
                {
                    called[0] or "what": called[1],
                    "figure": column,
                    f"other, {commits['other']}": median(theirs for theirs, _ in pairs),
                    f"this, {commits['this']}": median(ours for _, ours in pairs),
                    "ratio": median(ratios) if ratios else None,
                    "lowest": min(ratios, default=None),
                    "highest": max(ratios, default=None),
                }
            )
    results.finish(options)


def _one_run(words: list[str], folder: Path) -> dict[str, Any]:
    """The figures of one run with the package in this folder."""
    with tempfile.TemporaryDirectory() as home:
        out = Path(home) / "figures.json"
        asked = [sys.executable, sys.argv[0], *words, "--out", str(out)]
        done = subprocess.run(asked, env=os.environ | {"PYTHONPATH": str(folder)}, check=False)
        if done.returncode != 0 or not out.exists():
            raise SystemExit(
                f"the run with {folder} failed; the benchmark may need a newer package"
            )
        record = json.loads(out.read_text())
    if not Path(record["source"]).is_relative_to(folder):
        raise SystemExit(f"the package came from {record['source']}, not from {folder}")
    figures: dict[str, Any] = record["figures"]
    return figures
