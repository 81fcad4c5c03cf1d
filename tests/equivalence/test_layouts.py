"""Results do not depend on where arrays happen to lie: random settings, in unlike processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from equivalence.layouts import SETTINGS, saved, setting, train_by

QUICK = (1, 3, 8, 36)
"""PPO with towers, IQN with noise, continuous actions, and a shared trunk with tanh."""
LOCKSTEP = (3,)
"""Of the quick ones, those that are run in lockstep too."""
PROGRAM = Path(__file__).with_name("layouts.py")


def run_apart(directory, junk, numbers):
    """Start a process that trains by these settings, with a memory of its own layout."""
    environment = os.environ | {
        "PYTHONHASHSEED": str(junk),
        "MALLOC_TOP_PAD_": str(junk * 4096),
        "MALLOC_MMAP_THRESHOLD_": str(4096 << junk),
        "MALLOC_PERTURB_": str(17 * junk),  # fresh memory holds no zeros
    }
    words = [sys.executable, str(PROGRAM), str(directory), str(junk), *map(str, numbers)]
    with (directory.with_suffix(".log")).open("w") as log:
        return subprocess.Popen(words, env=environment, stdout=log, stderr=log)


def weights_of_both(tmp_path, numbers):
    processes = [run_apart(tmp_path / str(junk), junk, numbers) for junk in (1, 2)]
    codes = [process.wait(timeout=1500) for process in processes]
    logs = [(tmp_path / f"{junk}.log").read_text()[-2000:] for junk in (1, 2)]
    assert codes == [0, 0], "\n".join(logs)
    return {n: [saved(tmp_path / str(junk) / str(n)) for junk in (1, 2)] for n in numbers}


def assert_repeat_themselves(tmp_path, numbers, lockstep):
    found = weights_of_both(tmp_path, numbers)
    differ = [n for n, (one, other) in found.items() if one != other]
    assert not differ, f"settings {differ} depend on where arrays lie, such as {setting(differ[0])}"
    for n in lockstep:
        train_by(n, tmp_path / f"lockstep-{n}", schedule="lockstep")
        assert saved(tmp_path / f"lockstep-{n}") == found[n][0], f"lockstep of {setting(n)}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_repeats_itself_wherever_its_arrays_lie(tmp_path):
    """Weights are equal bit by bit, and their files byte by byte."""
    assert_repeat_themselves(tmp_path, QUICK, LOCKSTEP)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_every_random_setting_repeats_itself_and_equals_lockstep(tmp_path):
    assert_repeat_themselves(tmp_path, range(SETTINGS), range(SETTINGS))
