"""`remuda status`: what a run is doing, as a table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.coordinator.continuing import way_on
from remuda.coordinator.run_directory import RunDirectory
from remuda.coordinator.status import read_status
from remuda.errors import RunDirectoryError
from remuda.evaluation import way_of
from remuda.ui.numbers import clock, number, percent, rate
from remuda.ui.population_line import population_line

LATE = 5.0
"""Seconds without a sign of life after which a role is shown as late."""
WIDEST = 24
"""Characters of a name that is not broken."""
STYLES = {"running": "green", "done": "cyan", "starting": "yellow", "waiting to restart": "red"}


def current_status(run: RunDirectory) -> dict[str, Any]:
    """The newest status of a run, with `age` in seconds, and whether it is `running`.

    Raises:
        RunDirectoryError: the run has not begun, or ended before its first status.
    """
    if not run.status.exists() and not run.is_running():
        raise RunDirectoryError(f"{run.path} ended before its first status; {way_on(run)}")
    status = read_status(run.status)
    best = run.checkpoints.best()
    return status | {
        "age": time.time() - status["time"],
        "running": run.is_running(),
        "checkpoints": run.checkpoints.numbers(),
        "best": best,
    }


def print_status(path: Path, status: dict[str, Any], console: Console | None = None) -> None:
    """Print a status for people."""
    console = console or Console()
    console.print(_headline(path, status))
    console.print(
        f"{status['turns']:,} turns in {clock(status['seconds'])}, "
        f"{rate(status['agent_steps_per_second'])} agent-steps/s, {_checkpoints(status)}"
    )
    console.print()
    console.print(_roles(status))
    console.print()
    console.print(_policies(status))
    if status.get("members"):
        console.print()
        console.print(_members(status))
    if line := population_line(status.get("population") or {}, console.width):
        console.print(Text("\n") + line)
    for error in status["errors"]:
        when = time.strftime("%H:%M:%S", time.localtime(error["time"]))
        console.print(Text.assemble(("\n" + when, "dim"), "  ", error["message"]))


def _headline(path: Path, status: dict[str, Any]) -> Text:
    if status["running"] and not status["ended"]:
        state = Text(f"running, process {status['coordinator']}", "bold green")
    elif status["ended"]:
        state = Text(f"ended: {status['ended']}", "bold")
    else:
        state = Text(
            f"not running: its coordinator {status['coordinator']} is gone; "
            f"{way_on(RunDirectory(path))}",
            "bold red",
        )
    seen = f"  (seen {status['age']:.0f} s ago)" if status["age"] > LATE else ""
    return Text.assemble(str(path), f"  {status['schedule']}  ", state, (seen, "dim"))


def _checkpoints(status: dict[str, Any]) -> str:
    numbers, best = status["checkpoints"], status["best"]
    if not numbers:
        return "no checkpoint yet"
    words = f"checkpoint {numbers[-1]}"
    if best:
        words += (
            f" (best: {best['checkpoint']}, {way_of(best)} return {number(best['mean_return'])})"
        )
    return words


def _roles(status: dict[str, Any]) -> Table:
    several = any(role.get("node") for role in status["roles"])
    columns = ("role", "process", "state", "heartbeat", "restarts", "last problem")
    table = _table(*(("node",) if several else ()), *columns)
    for column in table.columns[: 1 + several]:
        names = [role["name" if column.header == "role" else "node"] for role in status["roles"]]
        column.min_width = min(max(map(len, names), default=0), WIDEST)
    for role in status["roles"]:
        age, process, state = role["heartbeat_age"], role["pid"], role["state"]
        heartbeat = Text(f"{age:.1f} s ago", "red" if age > LATE else "")
        if status["ended"] or not status["running"]:  # what was last heard of it
            process, state, heartbeat = None, "ended", Text("–")
        table.add_row(
            *((role["node"],) if several else ()),
            role["name"],
            str(process or ""),
            Text(state, STYLES.get(state, "")),
            heartbeat,
            str(role["restarts"]),
            Text(role["problem"]),
        )
    return table


def _policies(status: dict[str, Any]) -> Table:
    table = _table(
        "policy",
        "return",
        "total",
        "version",
        "slot",
        "updates",
        "stale",
        "behind",
        "replay",
        "busy",
        "not finite",
    )
    for name, policy in status["policies"].items():
        halted = Text(f"{policy['nonfinite']}, stopped", "red")
        table.add_row(
            name,
            number(policy["mean_return"]),
            number(policy["total_reward"]),
            f"{policy['version']:,}",
            str(policy["slot"]),
            f"{policy['updates']:,}",
            number(policy["staleness"]),
            "" if policy.get("behind") is None else f"{policy['behind']:,}",
            percent(policy["replay_fill"]),
            percent(policy["busy"]),
            halted if policy["halted"] else str(policy["nonfinite"]),
        )
    return table


def _members(status: dict[str, Any]) -> Table:
    born = any(m["learns"] and m["parent"] for m in status["members"].values())
    table = _table("member", "rating", "wins", "games", "mean return", "total", *["parent"] * born)
    ranked = sorted(status["members"].items(), key=lambda pair: -pair[1]["rating"])
    for name, member in ranked:
        table.add_row(
            Text(name, "" if member["learns"] else "dim"),
            f"{member['rating']:.1f} ± {member['uncertainty']:.1f}",
            percent(member["win_rate"]),
            f"{member['games']:,}",
            number(member["mean_return"]),
            number(member["total_reward"]),
            *[Text(member["parent"] or "", "dim")] * born,
        )
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for heading in headings:
        words = heading in ("role", "policy", "member", "parent", "state", "last problem")
        table.add_column(heading, justify="left" if words else "right", overflow="fold")
    return table
