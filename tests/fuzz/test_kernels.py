"""The compiled kernels on random shapes and values, degenerate ones too.

`make fuzz` tries as many as take about a minute; the quick suite tries a twentieth of them.
"""

import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from fuzz import arithmetic, learning, population, rings

pytestmark = pytest.mark.usefixtures("one_thread")

CASES = {
    arithmetic.products: 600,
    arithmetic.convolutions: 1000,
    arithmetic.q_learning: 240,
    arithmetic.quantiles: 300,
    arithmetic.advantages: 400,
    arithmetic.running_returns: 2000,
    arithmetic.optimizers: 2000,
    arithmetic.softmaxes: 1000,
    arithmetic.greedy: 2000,
    learning.passes: 400,
    learning.rollouts: 60,
    population.ledgers: 2000,
    population.ratings: 2000,
    population.teams: 2000,
    population.frames: 1000,
    population.combinations: 2000,
    rings.transitions: 40,
    rings.sequences: 60,
    rings.rollouts: 80,
    rings.priorities: 600,
}
"""By case, how many times `make fuzz` tries it."""
FEW = 20
"""The quick suite tries each so many times less often."""


def name_of(case):
    return f"{case.__module__.rpartition('.')[2]}.{case.__name__}"


def tried(case, count):
    for seed in range(count):
        random = np.random.default_rng([seed, zlib.crc32(name_of(case).encode())])
        try:
            case(random)
        except Exception as error:
            error.add_note(f"{name_of(case)} with seed {seed}")
            raise


@pytest.mark.slow_cases("rings.sequences-20", "rings.transitions-20")
@pytest.mark.parametrize("share", [FEW, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_kernel_does_what_its_definition_says(case, share):
    tried(case, max(CASES[case] // share, 2))


CHECKED = ("rings.transitions", "rings.rollouts", "rings.priorities", "population.ledgers")
CHECKED += ("population.frames", "arithmetic.advantages", "arithmetic.softmaxes")


@pytest.mark.long
def test_kernels_stay_within_bounds():
    """In a process of its own, where Numba checks each index (NUMBA_BOUNDSCHECK)."""
    folder = Path(__file__).parents[1]
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1"}
    command = [sys.executable, str(Path(__file__)), *CHECKED]
    search = [str(folder), str(folder / "support"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        command,
        env=environment | {"PYTHONPATH": os.pathsep.join(search)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(CHECKED)


if __name__ == "__main__":
    for one, times in CASES.items():
        if name_of(one) in sys.argv[1:]:
            tried(one, max(times // 10, 4))
    print(*sys.argv[1:])
