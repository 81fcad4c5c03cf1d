from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from metric_lines import line_of
from refusals import refuses
from remuda.config import Config, load_config, write_config
from remuda.errors import RunDirectoryError
from remuda.runs.metrics import PolicyRecord, Record
from remuda.ui.plots.charts import learning_chart, smooth
from remuda.ui.plots.drawing import Picture
from remuda.ui.reports.html import render
from remuda.ui.reports.report import draw_parts, write_report
from remuda.ui.reports.results import COLUMNS, print_files, print_results, remarks
from remuda.ui.reports.summary import read_run
from remuda.ui.terminal.numbers import clock, number, rate

ENDED = "all turns were played"


def a_policy(i: int, mean_return: float | None = None) -> PolicyRecord:
    return PolicyRecord(
        mean_return=mean_return,
        episodes=10 * i,
        loss=0.5 / i if i > 1 else None,
        updates=100 * (i - 1),
        updates_per_second=20.0,
        version=i,
        staleness=4.0 if i > 1 else None,
        steps=1000 * i,
        replay_fill=0.5,
        replay_ratio=0.64 if i > 1 else None,
        redrawn=0,
        epsilon=0.1,
        busy=0.7,
        nonfinite=0,
        halted=False,
    )


def a_record(i: int, names: list[str], episode_metrics: Any = None) -> Record:
    return Record(
        seconds=5.0 * i,
        turns=1000 * i,
        agent_steps=1000 * i * len(names),
        turns_per_second=200.0,
        agent_steps_per_second=200.0 * len(names),
        waits=0,
        wait_seconds=0.0,
        overtaken=0,
        shares={"env": 0.3, "infer": 0.5, "write": 0.1, "weights": 0.05, "wait": 0.0},
        policies={name: a_policy(i, float(i + k)) for k, name in enumerate(names)},
        episode_metrics=dict(episode_metrics or {}),
    )


def a_run(
    path: Path, names: list[str], records: int = 40, evaluated: bool = True, **episode_metrics: Any
) -> Path:
    """A run directory as training leaves it."""
    path.mkdir(exist_ok=True)
    write_config(Config(), path / "config.yaml")
    lines = [line_of(a_record(i, names)) + "\n" for i in range(1, records + 1)]
    (path / "metrics.jsonl").write_text("".join(lines))
    agents = {name: {"mean": 40.0 + k, "standard_error": 0.5} for k, name in enumerate(names)}
    summary = {
        "game": "treasure_hunt",
        "schedule": "async",
        "seed": 3,
        "ended": ENDED,
        "seconds": 5.0 * records,
        "turns": 1000 * records,
        "agent_steps": 1000 * records * len(names),
        "agent_steps_per_second": 200.0 * len(names),
        "waits": 2,
        "layout": "1 actor process, 2 learner processes, one per policy, on cpu",
        "version": "0.1.0",
        "restarts": {},
        "halted": [],
        "notes": [],
        "processors": {},
        "earlier": 0.0,
        "evaluation": {"episodes": 200, "agents": agents} if evaluated else None,
    }
    (path / "summary.json").write_text(json.dumps(summary | episode_metrics))
    return path


def assert_pictures(run: Path) -> None:
    for name in ("learning.png", "throughput.png"):
        with Image.open(run / name) as image:
            assert image.width > 1000
            assert len(np.unique(np.asarray(image.convert("L")))) > 20, f"{name} is blank"


def test_the_report_names_every_policy_and_fact(tmp_path: Path) -> None:
    run = a_run(tmp_path, ["red", "green", "blue"])
    page = write_report(run)
    assert page == run / "report.html"
    html = page.read_text()
    for words in ("red", "green", "blue", "40.0 ± 0.50", "treasure_hunt", ENDED, "waited 2 times"):
        assert words in html
    assert 'data-from="learning.png"' in html
    assert 'data-from="throughput.png"' in html
    assert "play.gif" not in html
    assert_pictures(run)
    assert not list(run.glob(".*")), "a temporary file was left"


def test_parts_drawn_before_the_evaluation_make_the_same_report(tmp_path: Path) -> None:
    run = a_run(tmp_path, ["red", "green"], evaluated=False)
    parts = draw_parts(run)
    a_run(tmp_path, ["red", "green"])
    early = write_report(run, parts).read_text()
    assert "40.0 ± 0.50" in early
    assert early == write_report(run).read_text()


@pytest.mark.parametrize("change", ["records", "policies"])
def test_parts_of_a_run_that_changed_are_drawn_again(tmp_path: Path, change: str) -> None:
    run = a_run(tmp_path, ["red", "green"], evaluated=False)
    parts = draw_parts(run)
    names = ["red", "green"] if change == "records" else ["red", "blue"]
    a_run(tmp_path, names, records=60 if change == "records" else 40)
    early = write_report(run, parts).read_text()
    assert early == write_report(run).read_text()


def test_the_recording_is_shown_if_there_is_one(tmp_path: Path) -> None:
    run = a_run(tmp_path, ["red"])
    (run / "play.gif").write_bytes(b"GIF89a")
    assert 'data-from="play.gif"' in write_report(run).read_text()


def test_the_pictures_of_a_run_in_another_directory_are_inside(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    run = a_run(tmp_path / "here" / "..", ["red"])
    assert 'data-from="learning.png"' in write_report(run).read_text()


QUICK = {(0, 1, False), (1, 1, False), (2, 1, True), (3, 64, True), (0, 64, True)}


@pytest.mark.slow_cases("2-1-True", "3-64-True")
@pytest.mark.parametrize(
    ("records", "policies", "evaluated"),
    [
        pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow)
        for each in product((0, 1, 2, 3), (1, 64), (True, False))
    ],
)
def test_short_runs(tmp_path: Path, records: int, policies: int, evaluated: bool) -> None:
    names = [f"agent_{i}" for i in range(policies)]
    run = a_run(tmp_path, names, records, evaluated)
    html = write_report(run).read_text()
    if records or evaluated:
        assert all(f"</span>{name}</th>" in html for name in names)
    if not evaluated:
        assert "not evaluated" in html
    assert_pictures(run)


def test_a_policy_s_own_loss_is_drawn_apart_from_the_total(tmp_path: Path) -> None:
    def titles() -> list[str]:
        return [axes.get_title() for axes in learning_chart(read_run(run)).axes]

    run = a_run(tmp_path, ["red", "green"])
    assert titles() == ["Return per episode", "Loss"]
    lines = (run / "metrics.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    for i, record in enumerate(told):
        record["policies"]["red"] |= {"policy_loss": -0.01 * i, "value_loss": 2.0**-i}
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in told))
    assert titles() == ["Return per episode", "Loss", "Policy loss", "Value loss"]
    *_, own, values = learning_chart(read_run(run)).axes
    assert values.get_yscale() == "log"
    labels = {label.get_text() for label in values.get_yticklabels()}
    assert "1e-06" in labels, "a number, since the markup of a power of ten is not drawn"
    assert not any("$" in label for label in labels)
    assert own.get_yscale() == "linear"
    assert min(own.lines[0].get_ydata()) == pytest.approx(-0.39)  # as measured; then smoothed
    write_report(run)
    assert_pictures(run)


def test_commands_in_prose_are_code() -> None:
    drawn = Picture("payoff", "Payoffs", "a<b; see `remuda analyse`")
    page = render("section.html", heading="", sentences={}, why="", pictures=[drawn], prefix="")
    assert "a&lt;b; see <code>remuda analyse</code>" in page


@pytest.mark.slow
def test_64_policies(tmp_path: Path) -> None:
    names = [f"agent_{i}" for i in range(64)]
    run = a_run(tmp_path, names)
    html = write_report(run).read_text()
    assert all(f"</span>{name}</th>" in html for name in names)
    assert_pictures(run)


def test_nothing_happened_at_all(tmp_path: Path) -> None:
    run = a_run(tmp_path, ["red"], records=3)
    silent = asdict(a_record(1, ["red"]))
    silent |= {"seconds": 0.0, "turns": 0, "agent_steps": 0, "agent_steps_per_second": 0.0}
    silent["policies"]["red"] |= {"mean_return": None, "loss": None, "updates_per_second": 0.0}
    (run / "metrics.jsonl").write_text(json.dumps(silent) + "\n")
    write_report(run)
    assert_pictures(run)


def test_a_half_written_last_line_is_passed_over(tmp_path: Path) -> None:
    run = a_run(tmp_path, ["red"])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"seconds": 1')
    assert len(read_run(run).records) == 40
    write_report(run)


def test_odd_names_are_escaped(tmp_path: Path) -> None:
    run = a_run(tmp_path, ["<b>", "$x_", "[red]"])
    html = write_report(run).read_text()
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    console = Console(width=120, file=io.StringIO())
    print_results(run, console)
    print_files(run, console)
    assert isinstance(console.file, io.StringIO)
    assert "[red]" in console.file.getvalue()


def test_one_episode_has_no_standard_error(tmp_path: Path) -> None:
    agents = {"red": {"mean": 7.0, "standard_error": float("nan")}}
    run = a_run(tmp_path, ["red"], evaluation={"episodes": 1, "agents": agents})
    assert read_run(run).policies[0].evaluated == "7.00"
    write_report(run)


def test_what_is_summarised(tmp_path: Path) -> None:
    (policy,) = read_run(a_run(tmp_path, ["red"])).policies
    assert policy.evaluated == "40.0 ± 0.50"
    assert policy.training_return == pytest.approx(38.0)  # of the intervals 36 to 40
    assert policy.staleness == pytest.approx(4.0)
    assert (policy.episodes, policy.updates, policy.version) == (400, 3900, 40)
    assert policy.replay_ratio == pytest.approx(0.64)


@pytest.mark.slow
def test_what_the_game_tells_of_its_episodes_is_shown(tmp_path: Path) -> None:
    run = a_run(tmp_path, ["red"])
    write_report(run)
    assert not (run / "game.png").exists()
    told = [{"apples_eaten": float(i), "equality": None if i < 3 else 0.5} for i in range(1, 41)]
    lines = [line_of(a_record(i, ["red"], told[i - 1])) + "\n" for i in range(1, 41)]
    (run / "metrics.jsonl").write_text("".join(lines))
    summary = json.loads((run / "summary.json").read_text())
    summary["evaluation"]["episode_metrics"] = {
        "apples_eaten": {"mean": 12.5, "standard_error": 0.25}
    }
    (run / "summary.json").write_text(json.dumps(summary))
    page = write_report(run).read_text()
    for words in ("game.png", "Apples eaten", "12.5 ± 0.25", "38.0", "Equality", "0.50"):
        assert words in page
    with Image.open(run / "game.png") as image:
        assert image.width > 1000
    console = Console(width=80, file=io.StringIO())
    print_results(run, console)
    print_files(run, console)
    assert isinstance(console.file, io.StringIO)
    assert "apples eaten" in console.file.getvalue()


@pytest.mark.parametrize("missing", ["config.yaml", "metrics.jsonl", "summary.json"])
def test_a_missing_file_is_told_in_one_line(tmp_path: Path, missing: str) -> None:
    run = a_run(tmp_path, ["red"])
    (run / missing).unlink()
    with refuses(RunDirectoryError) as caught:
        write_report(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("width", [40, 50, 60, 69])
def test_a_narrow_terminal_is_told_who_earned_what(tmp_path: Path, width: int) -> None:
    names = ["the_first_of_them", "the_second"]
    run = a_run(tmp_path, names)
    (run / "weights").mkdir()
    console = Console(width=width, file=io.StringIO())
    print_results(run, console)
    print_files(run, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for words in ("the_firs", "the_seco", "41.0 ± 0.50"):
        assert words in text
    if width >= 55:
        assert all(name in text for name in names)


@pytest.mark.parametrize("name", ["a", "a_name_of_twenty_letters"])
@pytest.mark.parametrize("width", [56, 70, 80, 96, 110])
def test_no_heading_is_cut(tmp_path: Path, width: int, name: str) -> None:
    run = a_run(tmp_path, [name, "the_second"])
    console = Console(width=width, file=io.StringIO())
    print_results(run, console)
    print_files(run, console)
    assert isinstance(console.file, io.StringIO)
    (heading,) = [line for line in console.file.getvalue().split("\n") if "greedy return" in line]
    known = {"policy", "greedy return", *(name for name, _ in COLUMNS)}
    assert set(re.split(r"\s{2,}", heading.strip())) <= known
    assert f"{name} " in console.file.getvalue()


def test_who_takes_the_seat_of_a_policy_that_never_learns_is_told(tmp_path: Path) -> None:
    run = a_run(tmp_path, ["red", "green"])
    config = load_config({"game": "treasure_hunt", "env": {"scripted": {"green": "random"}}})
    write_config(config, run / "config.yaml")
    console = Console(width=140, file=io.StringIO())
    print_results(run, console)
    print_files(run, console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().split("\n")
    (row,) = [line for line in lines if line.startswith("green")]
    # It earned as much, in as many episodes, and learned nothing.
    assert row.split() == ["green", "(random)", "41.0", "±", "0.50", "39.0", "400", *"––––"]
    assert "green (random)" in write_report(run).read_text()


def test_a_report_opens_alone(tmp_path: Path) -> None:
    run = a_run(tmp_path, ["red", "green"])
    (run / "play.gif").write_bytes(b"GIF89a")
    page = write_report(run)
    text = page.read_text()
    sources = re.findall(r'<img[^>]* src="([^"]*)"', text)
    assert len(sources) >= 3
    assert all(source.startswith("data:image/") for source in sources)
    inside = {base64.b64decode(source.partition("base64,")[2]) for source in sources}
    for name in ("learning.png", "throughput.png", "play.gif"):
        assert (run / name).read_bytes() in inside


@pytest.mark.parametrize("damaged", ["metrics.jsonl", "summary.json"])
def test_a_damaged_file_is_told_in_one_line(tmp_path: Path, damaged: str) -> None:
    run = a_run(tmp_path, ["red"])
    (run / damaged).write_text("[nonsense\n")
    with refuses(RunDirectoryError) as caught:
        write_report(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("width", [80, 140])
def test_print_summary(tmp_path: Path, width: int) -> None:
    run = a_run(tmp_path, ["red", "green"])
    (run / "weights").mkdir()
    write_report(run)
    console = Console(width=width, file=io.StringIO())
    print_results(run, console)
    print_files(run, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for words in ("treasure_hunt", ENDED, "red", "green", "41.0 ± 0.50", "waited 2 times"):
        assert words in text
    assert str(run / "report.html") in text
    assert str(run / "weights") in text
    assert "play.gif" not in text
    assert ("version" in text) == (width > 80)


def test_smooth_is_a_weighted_mean_of_neighbours() -> None:
    values, weights = np.zeros(40), np.ones(40)
    values[:4], weights[3] = (0.0, 10.0, 20.0, 60.0), 3.0
    assert smooth(values, weights)[:4] == pytest.approx([5.0, 10.0, 42.0, 40.0])
    # A twentieth of fewer is no more than one.
    assert smooth(values[:39], weights[:39]).tolist() == values[:39].tolist()


def test_words_for_numbers() -> None:
    assert [number(x) for x in (None, float("nan"), 0, 0.0123, 0.5, 12.34, -1234.5, 1e-5)] == [
        "–",
        "–",
        "0",
        "0.0123",
        "0.50",
        "12.3",
        "-1,234",
        "1e-05",
    ]
    assert [rate(x) for x in (None, 0.0, 12.34, 19_244.0)] == ["–", "0.0", "12.3", "19,200"]
    assert [clock(x) for x in (None, 7, 750, 3723)] == ["–", "0:07", "12:30", "1:02:03"]


@pytest.mark.parametrize(("reached", "is_told"), [(0.056, True), (0.4, False)])
def test_a_replay_ratio_that_was_missed_is_told_with_the_reason(
    tmp_path: Path, reached: float, is_told: bool
) -> None:
    run = a_run(tmp_path, ["red", "green"])
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    records[-1]["policies"]["red"]["replay_ratio"] = reached
    (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    console = Console(width=400, file=io.StringIO())
    print_results(run, console)
    print_files(run, console)
    assert isinstance(console.file, io.StringIO)
    told = f"red trained on at most {number(reached)} samples per step"
    assert (told in console.file.getvalue()) == is_told
    assert "green trained on" not in console.file.getvalue()
    assert (told in write_report(run).read_text()) == is_told


@pytest.mark.parametrize(
    ("processors", "busy", "why"),
    [
        # 0.7 each for two policies: two learners that trained 70% of the time.
        (
            {"actor": 0.9, "learner-red": 0.09, "learner-green": 0.05},
            0.7,
            "trained for 70% of the time, and had a processor for 10% of that: the game and "
            "other programs used the rest",
        ),
        (
            {"actor": 0.9, "learner-red": 0.9, "learner-green": 0.94},
            0.95,
            "trained for 95% of the time and had a processor: their updates take longer",
        ),
        ({"learner-red": 0.2, "learner-green": 0.2}, 0.2, "trained for only 20% of the time"),
        ({"learner-red..green": 0.05}, 0.5, "trained for 100% of the time, and had a processor"),
        ({}, 0.7, "the learners did not keep up with the game"),
    ],
)
def test_why_a_replay_ratio_was_missed_is_told_by_what_the_learners_had(
    tmp_path: Path, processors: dict[str, float], busy: float, why: str
) -> None:
    run = a_run(tmp_path, ["red", "green"], processors=processors)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        for policy in record["policies"].values():
            policy |= {"busy": busy, "replay_ratio": 0.056}
    (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (said,) = remarks(read_run(run))
    assert why in said


STARTS = 500
"""Steps that are collected before the first update."""


def resumed_at_20(
    tmp_path: Path, ratios: tuple[float, float], busy: tuple[float, float], had: float
) -> list[str]:
    """What is told of a run that was resumed after 20 of its 40 records.

    By session: samples a step, and the share of its time that each of two learners trained; in the
    second each had so much of a processor.
    """
    processors = {"learner-red": had, "learner-green": had}
    run = a_run(tmp_path, ["red", "green"], processors=processors, earlier=100.0)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    samples = [0.0, 0.0]
    for i, record in enumerate(records):
        for k, policy in enumerate(record["policies"].values()):
            samples[k] += 1000 * ratios[i >= 20]
            ratio = samples[k] / (policy["steps"] - STARTS)
            policy |= {"busy": busy[i >= 20], "replay_ratio": ratio}
    (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    config = load_config({"policy": {"experience": {"learning_starts": STARTS}}})
    write_config(config, run / "config.yaml")
    return remarks(read_run(run))


def test_why_a_ratio_was_missed_is_told_by_the_session_that_its_processors_are_of(
    tmp_path: Path,
) -> None:
    """Before the resume both trained all the time; in it a tenth of it, with a processor.

    The mean of both sessions beside the processors of one said that other programs had them.
    """
    (said,) = resumed_at_20(tmp_path, (0.05, 0.05), (1.0, 0.2), 0.2)
    assert "trained for only 20% of the time" in said


def test_a_ratio_that_was_missed_only_before_a_resume_is_told_so(tmp_path: Path) -> None:
    (said,) = resumed_at_20(tmp_path, (0.02, 0.6), (1.0, 0.5), 0.6)
    assert "red, green trained on at most 0.31 samples per step" in said
    assert said.endswith("this was before the run was resumed; since then the ratio is 0.62")
