from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import remuda
from refusals import refuses
from remuda.errors import UsageError
from remuda.runs.metrics import Goal, PolicyRecord, Record
from remuda.ui.terminal import live
from remuda.ui.terminal.live import LiveView, PlainView, QuietView, find_view, make_view
from remuda.ui.terminal.live_picture import History, LivePicture, Recent, sparkline

GOAL = Goal(
    game="treasure_hunt",
    schedule="async",
    directory=Path("runs/treasure_hunt-20260101-120000"),
    turns=100_000,
    seconds=None,
    layout="1 actor process, 4 learner processes, one per policy, on cpu",
)

POLICY = PolicyRecord(
    mean_return=12.5,
    episodes=40,
    loss=0.125,
    updates=1200,
    updates_per_second=240.0,
    version=120,
    staleness=5.25,
    steps=24_000,
    replay_fill=0.37,
    replay_ratio=0.64,
    redrawn=0,
    epsilon=0.42,
    busy=0.71,
    nonfinite=0,
    halted=False,
)
NOTHING_YET = replace(
    POLICY, mean_return=None, episodes=0, loss=None, updates=0, staleness=None, replay_ratio=None
)


def a_record(seconds: float = 60.0, policies: int = 4, policy: PolicyRecord = POLICY) -> Record:
    return Record(
        seconds=seconds,
        turns=int(400 * seconds),
        agent_steps=int(1600 * seconds),
        turns_per_second=400.0,
        agent_steps_per_second=1600.0,
        waits=0,
        wait_seconds=0.0,
        overtaken=0,
        shares={"env": 0.32, "infer": 0.41, "write": 0.08, "weights": 0.02, "wait": 0.0},
        policies={f"agent_{i}": policy for i in range(policies)},
    )


def a_console(width: int, height: int = 30) -> Console:
    return Console(width=width, height=height, file=io.StringIO(), force_terminal=False)


def lines_of(picture: LivePicture, width: int, height: int = 30) -> list[str]:
    console = a_console(width, height)
    console.print(picture)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def a_picture(*records: Record, goal: Goal = GOAL) -> LivePicture:
    picture = LivePicture(goal)
    for record in records:
        picture.add(record)
    return picture


def test_a_wide_terminal_shows_everything() -> None:
    text = "\n".join(lines_of(a_picture(a_record()), 140))
    for words in (
        "treasure_hunt  async",
        "runs/treasure_hunt-20260101-120000",
        GOAL.layout,
        "24%   1:00 elapsed, 3:10 left",
        "24,000 turns   400 turns/s   1,600 agent-steps/s   never waited",
        "env 32%  infer 41%  write  8%  weights  2%  wait  0%",
    ):
        assert words in text
    row = next(line for line in text.splitlines() if "agent_3" in line)
    assert " ".join(row.split()) == "agent_3 12.5 ▄ 0.12 240 71% 5.2 0.64 0.42 120 37%"


def test_a_narrow_terminal_keeps_what_matters_most() -> None:
    lines = lines_of(a_picture(a_record()), 80)
    assert max(map(len, lines)) <= 80
    heading = next(line for line in lines if line.startswith(" policy"))
    for word in ("return", "loss", "updates/s", "busy", "stale"):
        assert word in heading
    assert "version" not in heading
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("size", [-9_999_999.0, -1.23456e30])
def test_large_numbers_are_not_cut(size: float) -> None:
    large = replace(POLICY, mean_return=size, loss=size)
    lines = lines_of(a_picture(a_record(policy=large)), 80)
    row = next(line for line in lines if "agent_0" in line)
    assert row.split()[1] == f"{size:.0e}"
    assert "…" not in row


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, lines_of(a_picture(a_record()), width))) <= width


ON_POLICY = replace(POLICY, entropy=1.25, policy_loss=-0.0312, value_loss=3.5)


def test_a_policy_s_own_loss_stands_apart_from_the_total() -> None:
    lines = lines_of(a_picture(a_record(policy=ON_POLICY)), 110)
    heading = next(line for line in lines if line.startswith(" policy"))
    assert "loss  " in heading
    assert "policy loss  value loss  entropy" in heading
    row = next(line for line in lines if "agent_0" in line)
    assert " ".join(row.split()) == "agent_0 12.5 ▄ 0.12 240 71% 5.2 -0.0312 3.50 1.25"
    narrow = "\n".join(lines_of(a_picture(a_record(policy=ON_POLICY)), 80))
    assert "policy loss" not in narrow
    assert "stale" in narrow


def test_what_is_not_known_yet_is_a_dash() -> None:
    lines = lines_of(a_picture(a_record(policy=NOTHING_YET)), 140)
    row = next(line for line in lines if "agent_0" in line)
    assert " ".join(row.split()) == "agent_0 – – 240 71% – – 0.42 120 37%"


def test_before_the_first_record() -> None:
    assert "the processes are starting" in "\n".join(lines_of(LivePicture(GOAL), 80))


def test_64_policies_fill_the_terminal_and_no_more() -> None:
    lines = lines_of(a_picture(a_record(policies=64)), 80, height=24)
    assert len(lines) == 23
    shown = sum("agent_" in line for line in lines)
    assert lines[-1] == f" ... and {64 - shown} more"


def test_policies_that_just_fit_are_all_shown() -> None:
    lines = lines_of(a_picture(a_record(policies=14)), 80, height=24)
    assert len(lines) == 23
    assert "agent_13" in lines[-1]


def test_a_tiny_terminal_still_shows_a_policy() -> None:
    assert any("agent_0" in line for line in lines_of(a_picture(a_record()), 80, height=3))


def test_names_are_no_markup() -> None:
    record = replace(a_record(), policies={"[red]x": POLICY})
    assert any("[red]x" in line for line in lines_of(a_picture(record), 80))


def test_a_long_path_keeps_its_end() -> None:
    goal = replace(GOAL, directory=Path("/very/long" * 20) / "treasure_hunt-7")
    assert lines_of(LivePicture(goal), 80)[0].endswith("/treasure_hunt-7")


def test_an_interval_without_episodes_keeps_the_return() -> None:
    quiet = a_record(61.0, policy=replace(POLICY, mean_return=None))
    row = next(line for line in lines_of(a_picture(a_record(), quiet), 140) if "agent_0" in line)
    assert row.split()[1] == "12.5"


def test_recent_weighs_and_forgets() -> None:
    recent = Recent()
    assert recent.value is None
    recent.add(10.0, weight=3, seconds=0.0)
    recent.add(20.0, weight=1, seconds=0.0)
    assert recent.value == pytest.approx(12.5)
    recent.add(None, weight=1, seconds=1e9)
    recent.add(math.nan, weight=1, seconds=1e9)
    assert recent.value == pytest.approx(12.5)
    recent.add(5.0, weight=1, seconds=1e9)
    assert recent.value == pytest.approx(5.0)


def test_history_spans_the_whole_run_in_few_points() -> None:
    history = History()
    for i in range(10_000):
        history.add(float(i), weight=1, seconds=0.25)
    points = history.resample(10)
    assert len(points) == 10
    assert points == sorted(points)
    assert points[0] < 1_000
    assert points[-1] > 8_500


def test_sparkline() -> None:
    assert sparkline([]) == ""
    assert sparkline([3.0, 3.0]) == "▄▄"
    assert sparkline([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]) == "▁▂▃▄▅▆▇█"


def test_live_view_says_above_and_closes_twice() -> None:
    out = io.StringIO()
    console = Console(width=80, height=30, file=out, force_terminal=True)
    view = LiveView(console)
    view.say("before the start")
    view.start(GOAL)
    view.show(a_record())
    view.say("a [learner] was late")
    view.log(a_record())
    view.close()
    view.close()
    text = out.getvalue()
    assert "before the start" in text
    assert "a [learner] was late" in text
    assert text.rindex("agent_3") > text.index("was late")
    assert text.endswith("\x1b[?25h")  # the cursor is given back


def test_plain_view_prints_a_line_per_log(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainView()
    view.start(GOAL)
    view.show(a_record())
    view.log(a_record(policies=2, policy=NOTHING_YET))
    view.log(a_record(policies=64, policy=NOTHING_YET))
    view.log(a_record(policies=2))
    view.log(a_record(policies=2, policy=NOTHING_YET))
    view.log(a_record(policies=64))
    view.say("something happened")
    view.close()
    start, none, silent, two, kept, many, said = capsys.readouterr().out.splitlines()
    assert start.startswith("treasure_hunt, async, in runs/")
    assert two == (
        "   1:00   24%  24,000 turns  1,600 agent-steps/s  return agent_0 12.5 agent_1 12.5"
    )
    assert none.endswith("return agent_0 – agent_1 –")
    assert silent.endswith("return –")
    assert kept == two  # no episode ended, and the return before is still what is known
    assert many.endswith("return 12.5 (12.5 to 12.5)")
    assert said == "something happened"


@pytest.mark.parametrize(
    ("wanted", "terminal", "kind"),
    [(True, True, LiveView), (True, False, PlainView), (False, True, PlainView)],
)
def test_make_view(
    monkeypatch: pytest.MonkeyPatch, wanted: bool, terminal: bool, kind: type
) -> None:
    monkeypatch.setattr(live.sys.stdout, "isatty", lambda: terminal)
    assert isinstance(make_view(wanted), kind)


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live.sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_view(True), PlainView)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(make_view(True), LiveView)


def test_a_view_has_a_name_or_is_an_object():
    own = PlainView()
    assert find_view(own, live=True) is own
    assert isinstance(find_view("quiet", live=True), QuietView)
    assert isinstance(find_view("plain", live=True), PlainView)
    assert isinstance(find_view(None, live=False), PlainView)
    with refuses(UsageError, "'silent'", "quiet"):
        find_view("silent", live=True)


def test_a_quiet_run_prints_nothing(tmp_path, capfd):
    result = remuda.train(
        "rock_paper_scissors",
        schedule="sequential",
        policy={"algorithm": "ppo"},
        run={"turns": 20, "directory": tmp_path / "run", "evaluate_episodes": 2},
        checkpoint={"evaluate_episodes": 0},
        view="quiet",
    )
    assert result.finished
    assert capfd.readouterr() == ("", "")
