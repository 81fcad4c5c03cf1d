"""The rows of `worlds.py` on disk: what each run came to, so that a row can be continued."""

from __future__ import annotations

import csv
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recording import FIGURES, Results, command, commit_of_package

OURS, OURS_SHARED = "Remuda", "Remuda, one policy for all"
SHARED, SEPARATE = "SB3, one network for all", "SB3, a learner for each"
OURS_ACROSS, THEIRS_ACROSS = "Remuda against SB3", "SB3 against Remuda"
ACROSS = {
    OURS_ACROSS: (OURS_SHARED, SHARED),
    THEIRS_ACROSS: (SHARED, OURS_SHARED),
    "Remuda against Remuda": (OURS_SHARED, OURS_SHARED),
    "SB3 against SB3": (SHARED, SHARED),
}
"""The training of both sides of cross-play: the one whose returns count, and the other."""


@dataclass(frozen=True)
class Outcome:
    """The result of one library with one seed."""

    greedy: float
    sampled: float
    seconds: float
    curve: list[tuple[float, int, float]]
    """Seconds, turns, and the mean return of episodes that were over lately."""
    commit: str = field(default_factory=commit_of_package)
    """The commit of Remuda that trained it."""

    @property
    def turns(self) -> int:
        """That were played, as far as is known."""
        return self.curve[-1][1] if self.curve else 0


def tell_runs(results: Results, found: Mapping[str, Sequence[Outcome]]) -> None:
    """Add the result of each run, and its commit."""
    every = [outcome for outcomes in found.values() for outcome in outcomes]
    results.commits = tuple(dict.fromkeys(outcome.commit for outcome in every))
    for which, outcomes in found.items():
        for seed, each in enumerate(outcomes):
            results.parts.append(
                {
                    "library": which,
                    "seed": seed,
                    "greedy": each.greedy,
                    "sampled": each.sampled,
                    "seconds": each.seconds,
                    "turns": each.turns,
                    "commit": each.commit,
                }
            )


def with_whole_seeds(
    had: Mapping[tuple[str, int], Outcome], plan: Sequence[tuple[str, int]]
) -> tuple[dict[tuple[str, int], Outcome], list[int]]:
    """The runs of before that can be continued, and the seeds to train again.

    Policies of cross-play must have been trained, by both libraries, by this command.

    Args:
        had: that are recorded.
        plan: what there is to be.
    """
    missing = {seed for which, seed in plan if which in ACROSS and (which, seed) not in had}
    again = sorted({seed for _, seed in had} & missing)
    return {key: outcome for key, outcome in had.items() if key[1] not in missing}, again


COUNTED, SWITCHES = (
    ("--seeds", "--peer-seeds", "--peers", "--out"),
    ("--record", "--go-on", "--json"),
)
"""The options of a command that do not affect training."""


OF_OTHERS = ("--times",), ("--alone", "--separate")
"""How the other library is trained, options and switches: of no matter where it was not."""


def without(command: str, options: Sequence[str], switches: Sequence[str]) -> list[str]:
    """The words of a command but for some options, with their values, and some switches."""
    words, left = iter(shlex.split(command)), []
    for word in words:
        name, is_one_word, _ = word.partition("=")
        if name in options:
            if not is_one_word:
                next(words, None)
        elif name not in switches:
            left.append(word)
    return left


def train_alike(one: str, other: str) -> bool:
    """Return whether two commands train runs of the same library in the same way."""
    rows = [without(words, COUNTED, SWITCHES) for words in (one, other)]
    if any("--alone" in words for words in rows):
        rows = [without(shlex.join(words), *OF_OTHERS) for words in rows]
    return rows[0] == rows[1]


def recorded(called: str) -> dict[tuple[str, int], Outcome]:
    """The runs of a row that the same command recorded, by library and seed.

    It ends here where what is recorded is of another command, or does not list each run; but a
    whole row of that kind is left out if it was started again, and stopped.
    """
    found: dict[tuple[str, int], Outcome] = {}
    whole, part = (FIGURES / f"{called}{kind}.json" for kind in ("", ".part"))
    for file in (each for each in (whole, part) if each.exists()):
        record = json.loads(file.read_text())
        own, refused = command(sys.argv), ""
        if not train_alike(record["command"], own):
            refused = (
                f"{file.name} is of `{record['command']}`, which trains otherwise than "
                f"`{shlex.join(without(own, COUNTED, SWITCHES))}`; say what it says, or leave "
                "--go-on out"
            )
        elif "runs" not in record:
            refused = f"{file.name} does not tell of each run; leave --go-on out"
        if refused and file == whole and part.exists():
            continue
        if refused:
            raise SystemExit(refused)
        curves = curves_in(file.with_suffix(".csv"))
        for run in record["runs"]:
            key = run["library"], run["seed"]
            figures = (run[name] for name in ("greedy", "sampled", "seconds"))
            found[key] = Outcome(*figures, curves.get(key, []), run["commit"])
    return found


def curves_in(file: Path) -> dict[tuple[str, int], list[tuple[float, int, float]]]:
    """The curves that `write_curves` wrote, by library and seed."""
    found: dict[tuple[str, int], list[tuple[float, int, float]]] = {}
    with file.open(newline="") as lines:
        for line in csv.DictReader(lines):
            point = float(line["seconds"]), int(line["turns"]), float(line["return"])
            found.setdefault((line["library"], int(line["seed"])), []).append(point)
    return found


def write_curves(results: Results, name: str, found: dict[str, list[Outcome]]) -> None:
    """Write all points of all curves, for plots."""
    part, whole = FIGURES / f"{results.name}.part.csv", FIGURES / f"{results.name}.csv"
    if not results.so_far:
        part.unlink(missing_ok=True)
    with (part if results.so_far else whole).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("world", "library", "seed", "seconds", "turns", "return"))
        for which, outcomes in found.items():
            for seed, outcome in enumerate(outcomes):
                for seconds, turns, value in outcome.curve:
                    writer.writerow((name, which, seed, f"{seconds:.1f}", turns, f"{value:.4g}"))
