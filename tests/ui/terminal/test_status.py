"""The tables of `remuda status` in a narrow terminal."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from remuda.ui.terminal.status import print_status

NAME = "an_agent_with_a_name_of_forty_characters"


def a_policy(value: float) -> dict[str, Any]:
    return {
        "mean_return": value,
        "total_reward": value,
        "version": 12_345,
        "slot": 1,
        "updates": 1_234_567,
        "staleness": 5.25,
        "behind": 1_800,
        "replay_fill": 0.2,
        "busy": 0.7,
        "nonfinite": 0,
        "halted": False,
    }


def a_member(value: float) -> dict[str, Any]:
    return {
        "rating": 25.0,
        "uncertainty": 1.25,
        "win_rate": 0.5,
        "games": 1_234,
        "mean_return": value,
        "total_reward": value,
        "welfare": value,
        "learns": True,
        "parent": None,
    }


def printed(width: int, value: float, name: str = NAME) -> str:
    status = {
        "turns": 1000,
        "seconds": 10.0,
        "agent_steps_per_second": 100.0,
        "schedule": "async",
        "coordinator": 1,
        "running": True,
        "ended": "",
        "age": 0.0,
        "time": time.time(),
        "checkpoints": [],
        "best": None,
        "errors": [],
        "roles": [],
        "policies": {name: a_policy(value), "b": a_policy(value)},
        "members": {name: a_member(value), "b": a_member(value)},
    }
    console = Console(width=width, file=io.StringIO(), color_system=None)
    print_status(Path("runs/a"), status, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("value", [12.5, -1.23456e30])
@pytest.mark.parametrize("width", [80, 120])
def test_no_heading_and_no_number_is_cut(width: int, value: float) -> None:
    shown = printed(width, value)
    policies = next(line for line in shown.splitlines() if line.startswith("policy"))
    members = next(line for line in shown.splitlines() if line.startswith("member"))
    assert {"return", "updates"} <= set(policies.split())
    assert "not finite" in policies
    assert "rating" in members
    assert "mean return" in members
    rows = [line.split() for line in shown.splitlines() if line.startswith("b ")]
    wanted = "12.5" if value == 12.5 else "-1.23e+30"
    assert all(wanted in row for row in rows)
    assert "1,234,567" in rows[0]


def test_a_wide_terminal_shows_all_columns() -> None:
    heading = next(line for line in printed(160, 1.0).splitlines() if line.startswith("policy"))
    assert {"slot", "total", "version", "stale", "behind", "replay", "busy"} <= set(heading.split())
