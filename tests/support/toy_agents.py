"""Agents of nodes for tests: what they are asked, they do in the way that a test wants."""

import os
import subprocess
import sys
import threading

from remuda.errors import CannotStartError, ConfigError
from remuda.system.memory.lifeline import Lifeline

CHILD = """
import sys, time
from remuda.system.memory.lifeline import die_with_parent
die_with_parent(int(sys.argv[1]))
time.sleep(600)
"""


class Toy:
    def __init__(self, name, fault=None):
        if fault is not None:
            raise fault
        self.name = name
        self.gate = threading.Event()

    def who(self):
        return self.name, os.getpid(), os.getsid(0)

    def wait(self, seconds):
        return self.gate.wait(seconds)

    def open(self):
        self.gate.set()

    def fail(self, how):
        if how == "config":
            raise ConfigError("policy.x is 3: too much")
        if how == "start":
            raise CannotStartError("no memory for actor 1")
        if how == "unsent":
            return threading.Lock()
        raise KeyError("nobody\nknows")

    def variable(self, name):
        return os.environ.get(name)

    def echo(self, value):
        return value

    def begin_child(self):
        """A process that ends with this one, as those of a run do."""
        self.lifeline = Lifeline()
        self.child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(self.lifeline.descriptor)],
            pass_fds=(self.lifeline.descriptor,),
        )
        return self.child.pid

    def imported(self, module):
        return __import__(module).__file__

    def imported_by_child(self, module):
        code = f"import {module}; print({module}.__file__)"
        return subprocess.check_output([sys.executable, "-c", code], text=True).strip()
