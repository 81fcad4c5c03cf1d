"""`remuda.tournament` as a script calls it."""

import io
import sys

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.errors import UsageError


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_until_it_is_sure(tmp_path):
    found = remuda.tournament(
        ["random", "tactician"],
        game="connect_four",
        until="the best is 95% sure",
        directory=tmp_path / "t",
    )
    assert found.until.words == "tactician"
    assert found.until.reached
    again = remuda.tournament(
        ["random", "tactician"],
        game="connect_four",
        until="the best is 95% sure",
        matches=500,
        directory=tmp_path / "t",
    )
    assert again.until == found.until


def test_options_are_taken_as_the_configuration_of_a_run_takes_them(tmp_path):
    given = {"rounds": np.int64(2)}
    found = remuda.tournament(
        ["random"], game="rock_paper_scissors", options=given, episodes=2, directory=tmp_path / "a"
    )
    plain = remuda.tournament(
        ["random"], game="rock_paper_scissors", options={"rounds": 2}, episodes=2
    )
    assert found.means.tolist() == plain.means.tolist()
    assert '"rounds": 2' in (tmp_path / "a" / "tournament.json").read_text()
    with refuses(UsageError, "options.rounds", "builtins.object"):
        remuda.tournament(["random"], game="rock_paper_scissors", options={"rounds": object()})


@pytest.mark.parametrize(
    "given",
    [
        {"until": "the best is 95% sure", "matches": 0},
        {"processes": 1.5},
        {"seconds": -1},
        {"until": 3},
        {"matches": 10},
        {"until": "soon", "episodes": 3},
        {"until": "soon"},
    ],
)
def test_mistakes_are_told(given):
    with refuses(UsageError):
        remuda.tournament(["random", "random"], game="kuhn_poker", **given)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_terminal_shows_how_far_it_is(terminal, monkeypatch):
    shown = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    until = "the best is 95% sure"
    remuda.tournament(["random", "tactician"], game="connect_four", until=until)
    assert ("sure; least sure: tactician before random" in shown.getvalue()) == terminal
