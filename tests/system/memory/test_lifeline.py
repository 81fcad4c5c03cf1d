"""Children end with their parent, whatever that dies of."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from system.processes.children import wait_for

pytestmark = pytest.mark.process

PARENT = """
import signal, sys, time
from spawned import child_of
if __name__ == "__main__":
    child = child_of(signal.pause)
    child.start()
    print(child.pid, flush=True)
    time.sleep(600)
"""


def test_children_of_tests_end_where_the_tests_are_killed(tmp_path):
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, env=environment
    ) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        try:
            parent.send_signal(signal.SIGKILL)
            parent.wait()
            wait_for(lambda: not _lives(child), 60.0)
        finally:
            if _lives(child):
                child.kill()


def _lives(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
