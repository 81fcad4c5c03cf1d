"""What `remuda analyse` leaves on the screen and on the disk is whole and right."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

import remuda
from remuda.analysis.payoffs.payoffs import exact
from remuda.analysis.society.society import society
from remuda.envs.recorded import PlayedEpisodes
from remuda.evaluation.evaluate import RecordedPlay
from remuda.ui.analysis.screen import SocietyReport, print_societies
from remuda.ui.cli.main import run
from remuda.ui.terminal.live import PlainView


def screen(show, width=80):
    console = Console(width=width, record=True, file=io.StringIO())
    show(console)
    return console.export_text()


@pytest.mark.slow
def test_large_payoffs_are_told_in_full(tmp_path, capsys):
    rng = np.random.default_rng(0)
    lines = ["row,column,row_return,column_return"]
    for one, other in [(0, 1), (0, 2), (1, 2)] * 30:
        lines.append(f"p{one},p{other},{160 + rng.normal(0, 20)},{130 + rng.normal(0, 20)}")
    path = tmp_path / "matches.csv"
    path.write_text("\n".join(lines))
    assert run(["analyse", str(path), "--samples", "60"]) == 0
    table = capsys.readouterr().out.partition("ranking: ")[0]
    assert "e+" not in table
    assert " to 1" in table


def group(*rewards, **facts):
    """A society of two agents, one turn an episode."""
    given = np.array(rewards, np.float64)[:, None, :]
    return society(("a", "b"), given, np.ones(len(given), int), facts)


def test_measures_that_no_run_tells_are_left_out():
    one = group((1.0, 2.0), (2.0, 1.0), f=[np.nan, np.nan], g=[1.0, 2.0])
    report = SocietyReport(("x", "y"), (one, one), ({}, {}), ("greedy", "greedy"))
    shown = screen(lambda console: print_societies(report, console), 200)
    assert "nan" not in shown
    assert "g: 1.50 on average" in shown
    assert "\nf: " not in shown
    assert "f" not in report.common


@pytest.mark.slow
def test_files_beside_each_other_have_their_pictures_beside_them(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(",x,y\nx,0,1\ny,-1,0\n")
    assert run(["analyse", "a.csv", "b.csv", "--out", ".", "--samples", "50"]) == 0
    assert (tmp_path / "a" / "payoffs.png").is_file()
    assert (tmp_path / "b" / "payoffs.png").is_file()


@pytest.mark.slow
def test_files_of_one_name_do_not_share_a_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(",x,y\nx,0,1\ny,-1,0\n")
    np.savez(tmp_path / "a.npz", matrix=np.array([[0.0, 1.0], [-1.0, 0.0]]))
    assert run(["analyse", "a.csv", "a.npz", "--out", ".", "--samples", "50"]) == 0
    assert (tmp_path / "a-csv" / "payoffs.png").is_file()
    assert (tmp_path / "a-npz" / "payoffs.png").is_file()


@pytest.mark.parametrize(
    "text",
    [",x,y\nx,0,1e308\ny,-1e308,0\n", "row,column,row_return,column_return\nx,y,1e200,-1e200\n"],
)
def test_payoffs_whose_squares_overflow_are_refused(tmp_path, capsys, text):
    path = tmp_path / "large.csv"
    path.write_text(text)
    assert run(["analyse", str(path), "--samples", "50"]) in (1, 2)
    told = capsys.readouterr().err
    assert "is larger than 1e+100" in told
    assert len(told.strip().splitlines()) == 1


def test_large_payoffs_from_python_are_seen_to_be_zero_sum():
    matrix = np.array([[0.0, 1e200], [-1e200, 0.0]])
    assert exact(matrix, matrix.T, symmetric=True).is_zero_sum
    assert not exact(matrix, -matrix.T + 1e200, symmetric=False).is_zero_sum


class CutGame:
    """Of what `play_recorded` records, that which tells how many episodes were over."""

    num_envs = 2
    agents = ()

    def __init__(self, over):
        self.episodes_over = over

    def played(self, most=None):
        rewards = [[[1.0, 2.0]], [[3.0, 2.0]]] * min(most, 9)
        lengths, took_part = np.ones(2 * most, int), np.ones((2 * most, 2), bool)
        return PlayedEpisodes(("agent_0", "agent_1"), np.array(rewards), took_part, lengths, {})

    def observed(self, agents):
        return None


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    """A run in which each agent has one policy for good."""
    return remuda.train(
        "prisoners_dilemma",
        schedule="sequential",
        policy={"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 20}},
        run={
            "turns": 300,
            "evaluate_episodes": 0,
            "directory": tmp_path_factory.mktemp("runs") / "fixed",
        },
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
    ).directory


def cut(monkeypatch, over):
    played = RecordedPlay(CutGame(over), 200, "the time was up")
    monkeypatch.setattr("remuda.ui.analysis.extras.play_recorded", lambda *_, **__: played)


@pytest.mark.slow
def test_that_play_was_cut_is_told(fixed, capsys, tmp_path, monkeypatch):
    cut(monkeypatch, (3, 8))
    assert run(["analyse", str(fixed), "--out", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 agents, 6 greedy episodes" in shown
    assert "cut: The time was up after 11 of 200 episodes; 6 count" in shown
    assert "Long episodes are missing" in shown
    written = json.loads((tmp_path / "analysis.json").read_text())
    told = {"asked": 200, "over": 11, "counted": 6, "why": "the time was up"}
    assert written["cut"] == told
    assert "Long episodes are missing" in written["in_words"]["cut"]


@pytest.mark.slow
def test_means_of_short_episodes_alone_are_refused(fixed, capsys, tmp_path, monkeypatch):
    cut(monkeypatch, (0, 8))
    assert run(["analyse", str(fixed), "--out", str(tmp_path)]) in (1, 2)
    told = " ".join(capsys.readouterr().err.split())
    assert "8 of 200 episodes finished in 10 s, but none in 1 of 2 environment copies" in told
    assert not (tmp_path / "analysis.json").exists()
