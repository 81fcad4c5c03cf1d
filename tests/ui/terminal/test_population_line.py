"""A population in one line: of what is known, as much as there is room for."""

import io
import json

import pytest
from rich.console import Console

from remuda.runs.metrics import (
    AnalysisNumbers,
    Goal,
    MemberRecord,
    Record,
    population_record,
)
from remuda.ui.terminal.live_picture import LivePicture
from remuda.ui.terminal.tables import population_line

ANALYSIS = AnalysisNumbers(
    analysed=5,
    nash_support=3,
    diversity=1.25,
    exploitability=0.125,
    transitive_share=0.72,
)
KNOWN = population_record([1.0, 3.0], [], 20, ANALYSIS, 1.0)


def test_everything_is_told_where_there_is_room():
    assert population_line(KNOWN, 120).plain == (
        "return 2.00 (spread 1.00)   best 3.00   equilibrium 3 of 5   diversity 1.25   "
        "exploitability 0.12   skill 72%"
    )


def test_what_is_not_known_is_not_told():
    assert population_line({}, 80).plain == ""
    alone = population_record([1.0, 3.0], [], 20, None, None)
    assert population_line(alone, 80).plain == "return 2.00 (spread 1.00)   best 3.00"


@pytest.mark.parametrize("width", [0, 12, 18, 30, 48, 49, 60, 90])
def test_no_part_is_cut(width):
    line, whole = population_line(KNOWN, width).plain, population_line(KNOWN, 120).plain
    assert len(line) <= width
    assert whole.startswith(line)
    assert whole[len(line) :][:3] in ("", "   ") or not line


@pytest.mark.parametrize("height", [14, 24])
def test_the_live_view_shows_it_and_fits_the_terminal(height, tmp_path):
    names = [f"policy_{i}" for i in range(30)]
    policy = {"mean_return": 1.0, "loss": None, "staleness": None, "replay_ratio": None}
    policy |= {"updates_per_second": None, "replay_fill": 0.0, "epsilon": 0.0, "busy": None}
    policy |= dict.fromkeys(("episodes", "updates", "version", "steps", "redrawn", "nonfinite"), 0)
    policy |= {"halted": False}
    member = MemberRecord(0, None, 25.0, 8.0, True)
    data = dict.fromkeys(
        ("seconds", "turns", "agent_steps", "turns_per_second", "agent_steps_per_second"), 1
    )
    data |= {"waits": 0, "wait_seconds": 0.0, "overtaken": 0, "shares": {"env": 0.5}}
    data |= {"policies": dict.fromkeys(names, policy), "population": KNOWN}
    data |= {"members": dict.fromkeys(names, vars(member))}
    picture = LivePicture(Goal("connect_four", "async", tmp_path, 100, None, "1 actor process"))
    picture.add(Record.from_json(json.dumps(data)))
    console = Console(width=100, height=height, file=io.StringIO(), force_terminal=False)
    console.print(picture)
    lines = console.file.getvalue().splitlines()
    assert any("equilibrium 3 of 5" in line for line in lines)
    assert len(lines) <= height
    assert "more" in lines[-1]
