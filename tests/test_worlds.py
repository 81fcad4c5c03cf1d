"""The table of other people's worlds, quickly: that it can be made."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_world_is_measured(tmp_path):
    """A fiftieth of the turns, without the other library; what is not installed is left out."""
    words = [sys.executable, "worlds.py", "--quick", "--alone", "--out", str(tmp_path / "found")]
    done = subprocess.run(words, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path / "found").read_text())["figures"]
    named = {row["world"] for row in found["rows"]}
    assert {"spread", "speaker", "tag", "lbf_coop", "rware", "pendulum", "tic_tac_toe"} <= named
    for row in found["rows"]:
        if row["world"] != "tic_tac_toe":
            assert float(row["greedy"].split()[0]) == float(row["greedy"].split()[0])


def test_the_perfect_player_makes_no_mistake(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from perfect import CROSS, EMPTY, NOUGHT, best_moves

    empty = (EMPTY,) * 9
    assert best_moves(empty, CROSS)[0] == 0  # a draw, if both play well
    wins = (CROSS, CROSS, EMPTY, NOUGHT, NOUGHT, EMPTY, EMPTY, EMPTY, EMPTY)
    assert best_moves(wins, CROSS) == (1, (2,))
    assert best_moves(wins, NOUGHT) == (1, (2, 5))  # at once, or by two threats
    lost = (CROSS, CROSS, EMPTY, CROSS, NOUGHT, EMPTY, EMPTY, EMPTY, EMPTY)
    assert best_moves(lost, NOUGHT)[0] == -1
