"""Open files: few, however large a run is; and a word where even these are too many."""

import os
import subprocess
import sys

import pytest

CROWD = """
import os, resource, sys
soft, hard = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from remuda.assembly.assembly import Assembly
from remuda.config import load_config
from remuda.errors import RemudaError
from remuda.runtime.layout import make_layout
from remuda.training.prepare import prepare
actors = int(sys.argv[3])
config = load_config({
    "game": "support:Tape",
    "env": {"num_envs": actors, "options": {"num_agents": 8}},
    "actor": {"processes": actors},
    "learners": {"processes": 8},
    "policy": {"network": {"hidden": (4,)}, "experience": {"capacity": 2000}},
    **({"population": {"matchmaker": "random"}} if actors == 1 else {}),
})
prepared = prepare(config)
before = len(os.listdir("/proc/self/fd"))
try:
    assembly = Assembly(prepared.spec, make_layout(config, 8), specs=prepared.specs)
except RemudaError as error:
    print("refused:", error)
else:
    print(len(os.listdir("/proc/self/fd")) - before, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def crowd(*words):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", CROWD, *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow_cases("100")
@pytest.mark.parametrize("actors", [pytest.param(1, marks=pytest.mark.slow), 100])
def test_eight_agents_with_a_hundred_actors_need_few_open_files(actors):
    opened, limit = map(int, crowd(256, 1024, actors).split())
    assert opened < 20 + actors + 8  # a wake-up for each process, and a few files for all memory
    assert limit == 1024  # the soft limit went up to the hard one


@pytest.mark.slow
def test_more_processes_than_open_files_allow_are_refused_in_a_sentence():
    said = crowd(200, 200, 100)
    assert said.startswith("refused: 108 processes need about ")
    assert "the limit is 200" in said
    assert "actor.processes" in said
