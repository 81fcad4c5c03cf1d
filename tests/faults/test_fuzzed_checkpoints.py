"""Numbers of a checkpoint that were changed, with checksums that fit: a run trains, or says it."""

import subprocess
import sys
from pathlib import Path

import pytest

import checkpoint_fuzz
from remuda.ui.cli.main import run
from remuda.ui.cli.seeds import ONE_OF_SEEDS

SMALL = [
    *("--schedule", "sequential", "--run.live", "false", "--run.evaluate_episodes", "0"),
    *("--policy.network.hidden", "8", "--checkpoint.every", "3600", "--env.num_envs", "3"),
    *("--policy.experience.segment_length", "8", "--checkpoint.evaluate_episodes", "0"),
]
REPLAY = [
    *("--policy.experience.capacity", "400", "--policy.experience.learning_starts", "50"),
    *("--policy.batch_size", "8", "--checkpoint.replay", "true"),
]
LEAGUE = [
    *("--population.matchmaker", "random", "--population.policies", "3"),
    *("--population.snapshots.every", "3", "--population.snapshots.keep", "2"),
]
RUNS = {
    "prioritised": [
        *("treasure_hunt", "--env.options.num_agents", "2", "--policy.algorithm", "dqn", *REPLAY),
        *("--policy.experience.prioritised", "0.6"),
    ],
    "cleanup": ["cleanup", "--env.options.num_agents", "2", "--policy.algorithm", "iqn", *REPLAY],
    "ppo": ["tag", "--env.options.num_agents", "3", "--policy.algorithm", "ppo"],
    "league": ["leduc_poker", "--policy.algorithm", "dqn", *REPLAY, *LEAGUE],
    "births": [
        *("connect_four", "--policy.algorithm", "ppo", *LEAGUE, "--population.births.every", "40"),
        *("--population.births.slots", "1"),
        *("--population.births.games", "5", "--population.births.confidence", "0.5"),
    ],
    "brigade": [
        *("bucket_brigade", "--policy.algorithm", "ppo"),
        *("--population.matchmaker", "round_robin"),
    ],
    "kuhn": ["kuhn_poker", "--policy.algorithm", "ppo", "--policy.network.recurrent", "8"],
    "matrix": ["rock_paper_scissors", "--policy.algorithm", "dqn", *REPLAY],
}
"""Kinds of runs, and the words they begin with."""
TURNS = 700


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """By kind, a run with a checkpoint, made once."""
    found = {}

    def make(kind):
        if kind not in found:
            path = tmp_path_factory.mktemp("fuzzed") / "run"
            game, *words = RUNS[kind]
            words = [*words, *SMALL, "--run.turns", str(TURNS), "--run.directory", str(path)]
            assert run([ONE_OF_SEEDS, game, *words]) == 0  # without a report
            (path / "turns.json").write_text(str(TURNS))
            found[kind] = path
        return found[kind]

    return make


def fuzz(path, first, count):
    script = Path(checkpoint_fuzz.__file__)
    done = subprocess.run(
        [sys.executable, str(script), str(path), str(first), str(count)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stdout + done.stderr[-2000:]


@pytest.mark.process
@pytest.mark.slow  # `make fuzz` runs it each time
def test_changed_numbers_are_trained_on_or_told_in_a_line(begun):
    fuzz(begun("matrix"), 0, 4)


@pytest.mark.long  # for `make fuzz`
@pytest.mark.parametrize("kind", RUNS)
def test_many_changed_numbers_are_trained_on_or_told_in_a_line(kind, begun):
    fuzz(begun(kind), 1000, 16)
