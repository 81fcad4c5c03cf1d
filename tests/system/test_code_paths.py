"""A run whose code is in modules is opened from any directory."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

MODULE = """
import gymnasium, numpy as np
from gymnasium import spaces
import helper

class Game(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}
    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), helper.PAID, self.t == 5, False, {}
"""
SETTINGS = (
    "policy={'algorithm': 'dqn', 'network': {'hidden': [8]}}, schedule='sequential', "
    "run={'turns': 40, 'directory': 'run', 'evaluate_episodes': 2}, "
    "checkpoint={'evaluate_episodes': 0}"
)
OPENED = """
import remuda
run = remuda.load({path!r})
print("earned", run.evaluate(4).returns.mean())
print("more", remuda.train(resume={path!r}, run={{"turns": 80}}).evaluation.returns.mean())
"""


def python(code, where):
    path = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(p)]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=where,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow_cases("'my_game:Game'")
@pytest.mark.parametrize("given", ["'my_game:Game'", "own"])
def test_a_run_is_opened_from_another_directory(tmp_path, given):
    """Red before: No module named my_game."""
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    (home / "my_game.py").write_text(MODULE)
    (home / "helper.py").write_text("PAID = 2.0\n")
    own = "import my_game\nclass own(my_game.Game): pass\n" if given == "own" else ""
    python(f"import remuda\n{own}remuda.train({given}, {SETTINGS})", home)
    opened = OPENED.format(path=str(home / "run"))
    if given == "own":
        opened = opened.split('print("more"')[0]
    told = python(opened, away)
    assert "earned 10.0" in told
    assert given == "own" or "more 10.0" in told
    if given != "own":
        (away / "my_game.py").write_text(MODULE)
        assert "when the run started it was" in python(opened, away)


@pytest.mark.slow
def test_processes_of_a_tournament_find_the_code_from_another_directory(tmp_path):
    """Red before: the parent makes no environment, and its children looked in no directory."""
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    (home / "my_hunt.py").write_text(
        "from remuda.envs.games.treasure_hunt import TreasureHunt\n"
        "class Hunt(TreasureHunt):\n    pass\n"
    )
    settings = SETTINGS.replace("'turns': 40", "'turns': 10")
    python(f"import remuda\nremuda.train('my_hunt:Hunt', {settings})", home)
    words = ["tournament", f"{home / 'run'}:agent_0", "random", "--episodes", "1"]
    words += ["--processes", "2", "--directory", "t"]
    python(
        "from remuda.ui.cli.main import run\n"
        f"if __name__ == '__main__':\n    assert run({words!r}) == 0",
        away,
    )
