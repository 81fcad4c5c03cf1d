"""`run.log_level`: the level of the log files of all processes."""

import logging
import subprocess
import sys

import pytest

import remuda
from remuda.coordinator.logs import log_to
from remuda.ui.cli.main import run
from support import Tape

WORDS = (
    *("train", "treasure_hunt", "--env.num_envs", "2", "--run.turns", "200"),
    *("--policy.network.hidden", "8", "--policy.iqn.quantiles", "4"),
    *("--run.evaluate_episodes", "0", "--checkpoint.evaluate_episodes", "0"),
)
LEVELS = ("debug", "info", "warning", "error")


class Talker(Tape):
    """Logs a message of each level when it is made."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        for level in LEVELS:
            logging.getLogger("game").log(getattr(logging, level.upper()), "I am %s", level)


def logs_of(directory):
    return {path.name: path.read_text() for path in (directory / "logs").iterdir()}


def told_in(text):
    return [level for level in LEVELS if f" {level.upper()} game: I am {level}" in text]


@pytest.mark.parametrize("level", LEVELS)
def test_the_coordinator_writes_messages_from_its_level_on(level, tmp_path):
    log, before = logging.getLogger("remuda.somewhere"), logging.getLogger("remuda").level
    with log_to(tmp_path / "coordinator.log", level):
        for each in LEVELS:
            log.log(getattr(logging, each.upper()), "%s", each)
    lines = (tmp_path / "coordinator.log").read_text().splitlines()
    assert [line.split()[-1] for line in lines] == list(LEVELS[LEVELS.index(level) :])
    assert logging.getLogger("remuda").level == before


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("level", ["debug", "warning", "error"])
def test_the_processes_of_roles_and_of_environments_do_too(level, tmp_path):
    directory = tmp_path / "run"
    remuda.train(
        "coordinator.test_log_level:Talker",
        schedule="lockstep",
        env={"num_envs": 2, "workers": 2},
        run={"turns": 40, "evaluate_episodes": 0, "directory": directory, "log_level": level},
        checkpoint={"evaluate_episodes": 0},
    )
    logs = logs_of(directory)
    assert told_in(logs["actor.log"]) == list(LEVELS[LEVELS.index(level) :])
    assert (" INFO learner" in "".join(logs.values())) == (level == "debug")


SCRIPT = """
import logging
import remuda

logging.basicConfig(level=logging.{own}, format="MINE %(message)s")

if __name__ == "__main__":
    remuda.train(
        "treasure_hunt", schedule="lockstep", env={{"num_envs": 2}},
        run={{"turns": 40, "evaluate_episodes": 0, "directory": "run", "log_level": "{level}"}},
        checkpoint={{"evaluate_episodes": 0}},
    )
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(("own", "level"), [("DEBUG", "warning"), ("ERROR", "info")])
def test_a_script_that_sets_up_logging_itself_does_not_change_it(own, level, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT.format(own=own, level=level))
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True, timeout=120)
    text = logs_of(tmp_path / "run")["actor.log"]
    assert "MINE" not in text
    assert text.count(" INFO actor: ready") == (level == "info")


@pytest.mark.parametrize("level", ["debug", "info", "warning"])
def test_the_coordinator_logs_the_course_of_a_run(level, tmp_path):
    remuda.train(
        "rock_paper_scissors",
        schedule="sequential",
        policy={"algorithm": "ppo"},
        run={"turns": None, "seconds": 1.0, "evaluate_episodes": 1, "directory": tmp_path / "run"}
        | {"log_level": level},
        checkpoint={"every": 0.01, "evaluate_episodes": 1},
        view="quiet",
    )
    path = tmp_path / "run/logs/coordinator.log"
    text = path.read_text() if path.exists() else ""
    course = (
        "training begins",
        "checkpoint 1 holds the run after",
        "evaluation of checkpoint 1: mean return",
        "training ends after",
        "greedy play of 1 episodes begins",
        "greedy play ends after",
    )
    assert [words in text for words in course] == [level != "warning"] * len(course)
    assert ("agent_0 version" in text) == (level == "debug")


def test_a_level_that_is_none_is_refused_by_name(capsys):
    assert run([*WORDS, "--run.log_level", "loud"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "run.log_level" in line
    assert all(level in line for level in LEVELS)
