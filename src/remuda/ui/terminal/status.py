"""`remuda status`: the state of a run, as tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.coordinator.status import read_status
from remuda.errors import RunDirectoryError
from remuda.evaluation.results import way_of
from remuda.runs.run_directory import CLONED, RunDirectory, how_to_continue
from remuda.ui.terminal.numbers import clock, number, percent, rate
from remuda.ui.terminal.tables import NAME, fitting_table, open_table, population_line

LATE = 5.0  # seconds without a heartbeat after which a role is shown in red
STYLES = {"running": "green", "done": "cyan", "starting": "yellow", "waiting to restart": "red"}
TEXTS = ("role", "policy", "member", "parent", "state", "last problem")  # left-aligned columns


def current_status(run: RunDirectory) -> dict[str, Any]:
    """Return the newest status of a run, with its `age` in seconds and whether it is `running`."""
    if not run.status.exists() and not run.is_running():
        if run.imitation.exists():
            raise RunDirectoryError(f"{run.path} has no status: {CLONED}")
        raise RunDirectoryError(f"{run.path} ended before its first status; {how_to_continue(run)}")
    status = read_status(run.status)
    best = run.checkpoints.best()
    return status | {
        "age": time.time() - status["time"],
        "running": run.is_running(),
        "checkpoints": run.checkpoints.numbers(),
        "best": best,
    }


def print_status(path: Path, status: dict[str, Any], console: Console | None = None) -> None:
    """Print a status of a run as tables."""
    console = console or Console()
    console.print(_headline(path, status))
    console.print(
        f"{status['turns']:,} turns in {clock(status['seconds'])}, "
        f"{rate(status['agent_steps_per_second'])} agent-steps/s, {checkpoint_words(status)}"
    )
    console.print()
    console.print(_roles(status))
    console.print()
    build = partial(_policies, status)
    console.print(fitting_table(build, tuple(POLICY_COLUMNS), POLICY_LEFT_OUT, console))
    if status.get("members"):
        console.print()
        build = partial(_members, status)
        console.print(fitting_table(build, tuple(MEMBER_COLUMNS), MEMBER_LEFT_OUT, console))
    if line := population_line(status.get("population") or {}, console.width):
        console.print(Text("\n") + line)
    for error in status["errors"]:
        when = time.strftime("%H:%M:%S", time.localtime(error["time"]))
        console.print(Text.assemble(("\n" + when, "dim"), "  ", error["message"]))


def _headline(path: Path, status: dict[str, Any]) -> Text:
    coordinator = status["coordinator"]
    if status["running"] and not status["ended"]:
        state = Text(f"running, process {coordinator}", "bold green")
    elif status["ended"]:
        state = Text(f"ended: {status['ended']}", "bold")
    else:
        way = how_to_continue(RunDirectory(path))
        state = Text(f"not running: its coordinator {coordinator} has died; {way}", "bold red")
    age = f"  (last seen {status['age']:.0f} s ago)" if status["age"] > LATE else ""
    return Text.assemble(str(path), f"  {status['schedule']}  ", state, (age, "dim"))


def checkpoint_words(status: dict[str, Any]) -> str:
    """Describe the checkpoints in the status, and which of them is the best."""
    numbers, best = status["checkpoints"], status["best"]
    if not numbers:
        return "no checkpoint yet"
    if not best:
        return f"checkpoint {numbers[-1]}"
    mean = f"{way_of(best)} return {number(best['mean_return'])}"
    return f"checkpoint {numbers[-1]} (best: {best['checkpoint']}, {mean})"


def _roles(status: dict[str, Any]) -> Table:
    nodes = ["node"] if any(role.get("node") for role in status["roles"]) else []
    columns = ("role", "process", "state", "heartbeat", "restarts", "last problem")
    table = open_table(*nodes, *columns, texts=TEXTS)
    for column, key in zip(table.columns, [*nodes, "name"], strict=False):
        longest = max((len(role[key]) for role in status["roles"]), default=0)
        column.min_width = min(longest, NAME)
    for role in status["roles"]:
        age, process, state = role["heartbeat_age"], role["pid"], role["state"]
        heartbeat = Text(f"{age:.1f} s ago", "red" if age > LATE else "")
        if status["ended"] or not status["running"]:
            process, state, heartbeat = None, "ended", Text("–")
        table.add_row(
            *(role[key] for key in nodes),
            role["name"],
            str(process or ""),
            Text(state, STYLES.get(state, "")),
            heartbeat,
            str(role["restarts"]),
            Text(role["problem"]),
        )
    return table


POLICY_COLUMNS: dict[str, Callable[[Any], str | Text]] = {
    "return": lambda p: number(p["mean_return"]),
    "total": lambda p: number(p["total_reward"]),
    "version": lambda p: f"{p['version']:,}",
    "slot": lambda p: str(p["slot"]),
    "updates": lambda p: f"{p['updates']:,}",
    "stale": lambda p: number(p["staleness"]),
    "behind": lambda p: "" if p.get("behind") is None else f"{p['behind']:,}",
    "replay": lambda p: percent(p["replay_fill"]),
    "busy": lambda p: percent(p["busy"]),
    "not finite": lambda p: (
        Text(f"{p['nonfinite']}, stopped", "red") if p["halted"] else str(p["nonfinite"])
    ),
}
"""The columns of the table of policies, with the cell of a policy."""
POLICY_LEFT_OUT = ("slot", "total", "replay", "behind", "stale", "version", "busy")
"""Columns that a narrow terminal leaves out, the least important first."""


def _policies(status: dict[str, Any], headings: Sequence[str]) -> Table:
    table = open_table("policy", *headings, texts=TEXTS)
    for name, policy in status["policies"].items():
        table.add_row(Text(name), *(POLICY_COLUMNS[heading](policy) for heading in headings))
    return table


MEMBER_COLUMNS: dict[str, Callable[[Any], str | Text]] = {
    "rating": lambda m: f"{m['rating']:.1f} ± {m['uncertainty']:.1f}",
    "wins": lambda m: percent(m["win_rate"]),
    "games": lambda m: f"{m['games']:,}",
    "mean return": lambda m: number(m["mean_return"]),
    "total": lambda m: number(m["total_reward"]),
    "welfare": lambda m: number(m.get("welfare")),
    "parent": lambda m: Text(m["parent"] or "", "dim"),
}
"""The columns of the table of members, with the cell of a member."""
MEMBER_LEFT_OUT = ("total", "welfare", "games", "wins")


def _members(status: dict[str, Any], headings: Sequence[str]) -> Table:
    members = status["members"]
    if not any(m["learns"] and m["parent"] for m in members.values()):
        headings = [heading for heading in headings if heading != "parent"]
    table = open_table("member", *headings, texts=TEXTS)
    for name, member in sorted(members.items(), key=lambda pair: -pair[1]["rating"]):
        style = "" if member["learns"] else "dim"
        table.add_row(Text(name, style), *(MEMBER_COLUMNS[each](member) for each in headings))
    return table
