"""What tests of nodes share: waiting for what is true at last, and a driver that can be killed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

TOY = "toy_agents:Toy"


def until(what, seconds):
    """Ask again and again, for what is true at last; seconds that it took."""
    began = time.monotonic()
    while True:
        found = what()
        took = time.monotonic() - began
        if found:
            return found, took
        assert took < seconds, f"not within {seconds} s"
        time.sleep(0.02)


def is_there(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


DRIVER = """
import json, sys, time
from remuda.cluster.ray_nodes import RayNodes
from remuda.config import load_config
nodes = RayNodes(load_config({"cluster": json.loads(sys.argv[1])}))
nodes.gather()
nodes.start(1, "toy_agents:Toy", ("1",))
child = nodes.call(1, "begin_child").result(60)
agent = nodes.call(1, "who").result(60)[1]
local = nodes.local
print(json.dumps({
    "child": child,
    "agent": agent,
    "sessions": list(local.sessions.values()) if local else [],
    "directory": str(local.directory) if local else "",
    "keeper": local._keeper.pid if local else 0,
}), flush=True)
time.sleep(600)
"""


def driven(cluster):
    """A process that drives nodes, and what it told of them."""
    search = os.pathsep.join(path for path in sys.path if path)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(cluster)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": search},
    )
    with driver.stdout:
        told = json.loads(driver.stdout.readline())
    return driver, told
