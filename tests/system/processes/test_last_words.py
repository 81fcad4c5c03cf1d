"""What a child prints last, as the traceback that names its fault, is written before it ends."""

import os
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.process

WORDS = 1_500
PROGRAM = f"""
from remuda.system import output
from remuda.system.processes import child

output.never_fail()
for number in range({WORDS}):
    print(number, 90 * "x", flush=True)
print("begun", file=open("begun", "w"), flush=True)
child.end(7)
"""


def test_what_a_child_printed_is_written_though_its_output_is_slow(tmp_path):
    """Red before: what waited for the output was lost with the process."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, cwd=tmp_path
    )
    limit = time.monotonic() + 60.0
    while not os.path.exists(tmp_path / "begun"):  # the pipe holds half of it; nobody reads yet
        assert time.monotonic() < limit
        time.sleep(0.01)
    said, _ = process.communicate(timeout=60.0)
    assert process.returncode == 7
    assert len(said.splitlines()) == WORDS


LOGGED = """
from remuda.system.processes import child

child.log_to("actor.log")
print("something")
"""


def test_a_log_that_is_a_link_leads_nowhere(tmp_path):
    """Red before: in another person's run it led to any file of the user's."""
    (tmp_path / "actor.log").symlink_to(tmp_path / "other")
    subprocess.run([sys.executable, "-c", LOGGED], cwd=tmp_path, check=True, timeout=60.0)
    assert not (tmp_path / "other").exists()
