"""The server has imported all of Remuda that a role needs, so that no role does so by itself."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

OF_THE_GAME = {
    f"remuda.envs.games.{name}" for name in ("treasure_hunt", "rendering", "randomness", "options")
}


@pytest.mark.slow_cases("iqn")
@pytest.mark.parametrize(
    "flags",
    [
        ["--policy.algorithm", "iqn"],
        pytest.param(["--policy.algorithm", "dqn"], marks=pytest.mark.slow),
        pytest.param(["--policy.algorithm", "ppo"], marks=pytest.mark.slow),
        pytest.param(
            ["--policy.algorithm", "dqn", "--policy.network.recurrent", "16"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            [
                *("--policy.algorithm", "ppo", "--population.policies", "3"),
                *("--population.matchmaker", "random"),
            ],
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda flags: "-".join(flags[1::2]),
)
def test_a_role_imports_nothing_of_remuda_but_the_game(tmp_path, flags):
    run = tmp_path / "run"
    command = [sys.executable, "-m", "remuda", "train", "treasure_hunt", *flags]
    command += ["--run.turns", "300", "--learners.processes", "2", "--run.directory", str(run)]
    command += ["--run.evaluate_episodes", "0"]
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    logs = sorted((run / "logs").glob("*.log"))
    assert len(logs) >= 3
    text = "".join(log.read_text() for log in logs)
    found = set(re.findall(r"^import time:.*\| +(\S+)$", text, re.MULTILINE))
    assert found & OF_THE_GAME, "imports are not noted in logs any more"
    late = {name for name in found if name.startswith(("remuda.", "torch."))}
    assert late - OF_THE_GAME == set()


def test_a_run_begins_without_what_only_analyses_and_pictures_need():
    program = """
import importlib, sys
import remuda.training.run, remuda.ui.cli.commands.train
from remuda.system.processes.client import MODULES
for name in MODULES:
    importlib.import_module(name)
print(*sorted({"scipy.special", "scipy.stats", "matplotlib", "tensorboard"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
