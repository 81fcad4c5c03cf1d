"""Names that mean something to a terminal, a page or a path are told as they are."""

import io
import warnings

import numpy as np
import pytest
from rich.console import Console

from remuda.analysis.payoffs.from_files import read_file
from remuda.analysis.payoffs.game_of_meetings import game_of_meetings
from remuda.analysis.payoffs.payoffs import from_sums
from remuda.analysis.payoffs.sums import ROWS, add_up
from remuda.analysis.population_report import analyse
from remuda.analysis.society.society import society
from remuda.evaluation.tournaments.engine import Tournament
from remuda.solvers.exploit.bounds import Candidate, LowerBound, MeanReturn, SeatBound
from remuda.ui.analysis.exploiting import print_bound
from remuda.ui.analysis.screen import (
    Report,
    SocietyReport,
    directories,
    print_report,
    print_societies,
)
from remuda.ui.analysis.sources import AnalysisSource, labels_of
from remuda.ui.analysis.tournament import MatchProgress, print_tournament
from remuda.ui.cli.main import run
from remuda.ui.plots.drawing import FORMATS
from remuda.ui.reports.analysis_page import draw_pictures, page_of
from remuda.ui.terminal.numbers import number

ODD = ("[red]", "[/bold]", "<b>&amp;</b>", "$x_{1}$", "'\"%s{0}", "../up", "对手", "é́ \t")


def screen(show, width=200):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    show(console)
    return console.file.getvalue()


def test_a_tournament_of_odd_names():
    count = len(ODD)
    found = Tournament(ODD, np.zeros((count, count)), np.ones((count, count)), 10)
    shown = screen(lambda console: print_tournament("own:[/Game]", found, console))
    assert shown.startswith("own:[/Game]: mean return")
    for name in ODD[:-1]:
        assert shown.count(name) == 2


def test_progress_of_a_game_of_an_odd_name():
    console = Console(width=80, file=io.StringIO(), force_terminal=True)
    with MatchProgress("own:[/Game]", lambda: False, console) as progress:
        progress(1, 2)
    assert "own:[/Game]" in console.file.getvalue()


def test_names_of_wide_letters_fit_into_the_terminal():
    names = tuple("棋手" * 8 + str(place) for place in range(4))
    found = Tournament(names, np.zeros((4, 4)), np.ones((4, 4)), 10)
    shown = screen(lambda console: print_tournament("tag", found, console), 80)
    for name in names:
        assert name in shown


def test_exploited_seats_of_odd_names():
    mean = MeanReturn(1.0, 0.1, 100)
    chosen = Candidate("[/red]", True, mean)
    seats = tuple(
        SeatBound(name, MeanReturn(0.0, 0.1, 100), (chosen,), chosen, mean)
        for name in ("[/a]", "[b]")
    )
    found = LowerBound("own:[/Game]", "[/t]", {}, 2, seats, 0.1, directory="[/x]")
    shown = screen(lambda console: print_bound(found, console))
    for name in ("[/a]", "[b]", "[/red]", "[/t]", "own:[/Game]"):
        assert name in shown


def test_societies_with_odd_measures():
    rewards = np.random.default_rng(0).normal(size=(5, 1, 2))
    one = society(("[/a]", "[b]"), rewards, [1] * 5, {"apples[/x]": np.arange(5.0)})
    both = SocietyReport(("[/r]", "[s]"), (one, one), ({}, {}), ("greedy", "greedy"))
    shown = screen(lambda console: print_societies(both, console))
    assert "apples[/x]" in shown
    assert "[/r]" in shown
    alone = SocietyReport(("[/r]",), (one,), ({},), ("greedy",))
    assert "[/a]" in screen(lambda console: print_societies(alone, console))


@pytest.fixture(scope="module")
def analysis():
    """A cycle of odd names that is sure."""
    count = len(ODD)
    one, other = (np.repeat(axis, 30) for axis in np.triu_indices(count, 1))
    rng = np.random.default_rng(3)
    first = rng.normal(np.where((other - one) % 2, 1.0, -1.0), 0.5)
    sums = np.zeros((ROWS, count, count))
    returns = np.stack([first, -first], 1)
    add_up(np.stack([one, other], 1), returns, np.arange(2), True, False, sums)
    return analyse(game_of_meetings(from_sums(ODD, sums, True)), np.random.default_rng(0), 60)


@pytest.mark.slow
def test_an_analysis_of_odd_names(analysis, tmp_path):
    source = AnalysisSource(tmp_path / "x.csv", "x.csv", tmp_path)
    shown = screen(lambda console: print_report(Report((source,), (analysis,), ({},)), console))
    for name in ODD[:-1]:
        assert name in shown
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pictures = draw_pictures(analysis)
        drawn = [each for each in pictures if each.figure is not None]
        assert len(drawn) >= 5
        for each in drawn:
            assert all(len(each.encoded(kind)) > 1000 for kind in FORMATS)
    page = page_of(analysis, pictures)
    assert "<b>&amp;" not in page


@pytest.mark.slow
def test_long_names_take_no_room_from_numbers(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rng = np.random.default_rng(0)
    names = ["a" * 50, "runs/one:policy_0@checkpoint-12", "b"]
    lines = ["row,column,row_return,column_return"]
    for one, other in [(0, 1), (0, 2), (1, 2)] * 30:
        earned = rng.normal(other - one, 1.0)
        lines.append(f"{names[one]},{names[other]},{earned},{-earned}")
    (tmp_path / "m.csv").write_text("\n".join(lines))
    assert run(["analyse", str(tmp_path / "m.csv"), "--samples", "60"]) == 0
    table = capsys.readouterr().out.partition("ranking: ")[0]
    assert "…" not in table
    assert table.count("a") >= 50
    assert max(map(len, table.splitlines())) <= 80


@pytest.mark.parametrize("width", [80, 120])
def test_long_names_of_runs_take_no_room_from_numbers(analysis, tmp_path, width):
    labels = [f"connect_four-20261123-22310{i}-of-a-long-name" for i in range(2)]
    sources = tuple(AnalysisSource(tmp_path / label, label, tmp_path) for label in labels)
    report = Report(sources, (analysis,) * 2, ({}, {}))
    shown = screen(lambda console: print_report(report, console), width).partition("runs: ")[0]
    assert "…" not in shown
    for heading in ("mixed", "value", "within", "diversity"):
        assert heading in shown
    for measure in report.several.common.values():
        assert shown.count(number(measure.values[0])) >= 2
    assert number(report.several.common["value"].values[0]) == "0"


def test_names_in_a_file_are_a_line_each_and_no_command_of_a_terminal(tmp_path):
    (tmp_path / "m.csv").write_text(
        ',"a\nb",\x1b[31mred,对手 1\n'
        + "".join(f"{name},0,0,0\n" for name in ('"a\nb"', "\x1b[31mred", "对手 1"))
    )
    assert read_file(tmp_path / "m.csv").payoffs.names == ("a b", "[31mred", "对手 1")
    np.savez(tmp_path / "m.npz", matrix=np.zeros((2, 2)), names=["a\tb", "\x9bc"])
    assert read_file(tmp_path / "m.npz").payoffs.names == ("a b", "c")


def test_each_of_several_has_a_directory_of_its_own(tmp_path):
    labels = ("p/q-r", "p-q/r", "p.q/r", "up")
    sources = [AnalysisSource(tmp_path / label, label, tmp_path) for label in labels]
    found = directories(sources)
    assert len(set(found)) == len(labels)
    assert not any("/" in name for name in found)


def test_no_label_leads_out_of_a_directory(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    here = tmp_path.__class__
    assert labels_of([here(".."), here(".")]) == ["a", "b"]
