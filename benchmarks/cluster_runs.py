"""Runs over nodes on this machine, watched from beside: what benchmarks of clusters share.

A run is in a separate process (`alone`), which all that it starts can be recognised by: a variable
of the environment. A thread beside it (`watch`) reads what the head's shared memory holds, many
times a second, and may kill, stop or pin what belongs to a node.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from remuda.assembly.assembly import Assembly
from remuda.cluster import cluster as clusters
from remuda.cluster.channel import Count
from remuda.cluster.ray_local import members
from remuda.config import load_config, overlay
from remuda.runs.metrics import Goal, Record
from remuda.runs.result import Result
from remuda.system.scoreboard import Learn, Play
from remuda.training import run as training
from remuda.types import Array, RoleStatus

MARK = "REMUDA_BENCHMARK"
"""A variable of the environment of all that a run starts."""
LOOK = 0.05
"""Seconds between two looks."""
HOME = ("local-0", "local-1", "local-2", "local-3", "local-4")
"""The names of nodes on this machine."""
WARM_UP = 4.0
"""Seconds of play that are not counted."""
ENDING = 5.0
"""Seconds that what a run started has to be gone after its end."""
QUIET: dict[str, Any] = {
    "run": {"turns": 10**9, "evaluate_episodes": 0, "log_every": 0.5, "live": False},
    "checkpoint": {"every": 3600, "evaluate_episodes": 0},
}


@dataclass
class Left:
    """The remains of a run."""

    processes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def alone(function: Callable[..., Any], *args: Any) -> tuple[Any, Left]:
    """Call a function of the program in a separate process; also returns what it left behind.

    Args:
        function: of a module of this folder, by whose name it is found again.
        args: for it; it returns what can be pickled.
    """
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="out-") as home:
        # Ray's directory, and those of nodes, are made in here. Its name must be a short one.
        temporary = Path(tempfile.mkdtemp(prefix="b-"))
        asked, told = Path(home) / "asked", Path(home) / "told"
        module = Path(sys.modules[function.__module__].__file__ or "").stem
        asked.write_bytes(pickle.dumps((module, function.__name__, args)))
        child = "import sys; sys.path.insert(0, sys.argv[1]); import cluster_runs as c; c.answer()"
        subprocess.run(
            [sys.executable, "-c", child, str(Path(__file__).parent), str(asked), str(told)],
            env={**os.environ, MARK: mark, "TMPDIR": str(temporary)},
            check=False,
        )
        end = time.monotonic() + ENDING
        while (there := marked(mark)) and time.monotonic() < end:
            time.sleep(0.1)
        left = Left([f"{p.pid} {' '.join(p.cmdline())[:80]}" for p in _alive(there)])
        for process in there:  # so that the next run is not disturbed; it is printed above
            with contextlib.suppress(psutil.Error):
                process.kill()
        left.files = sorted(str(path.relative_to(temporary)) for path in temporary.rglob("*"))
        shutil.rmtree(temporary, ignore_errors=True)
        if not told.exists():
            raise SystemExit("the run failed; its output is above")
        return pickle.loads(told.read_bytes()), left


def answer() -> None:
    """Run the process of `alone`."""
    asked, told = map(Path, sys.argv[2:4])
    name, function, args = pickle.loads(asked.read_bytes())
    found = getattr(__import__(name), function)(*args)
    told.write_bytes(pickle.dumps(found))


def marked(mark: str | None = None) -> list[psutil.Process]:
    """All that a run started, and its own process."""
    wanted = f"{MARK}={mark or os.environ[MARK]}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, psutil.Error):
                if wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(psutil.Process(int(entry)))
    return found


def _alive(processes: Sequence[psutil.Process]) -> Iterator[psutil.Process]:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process


@dataclass(frozen=True)
class Look:
    """The contents of the head's shared memory at a moment."""

    time: float
    epoch: int
    turns: tuple[float, ...]
    """One entry for each actor."""
    trained: tuple[float, ...]
    """For each policy: on-policy steps that were trained on..."""
    updates: tuple[float, ...]
    """...and the updates behind its weights."""
    versions: tuple[int, ...]
    """For each policy, of its newest snapshot here."""


class Run:
    """A run in this process: it is a view of it too."""

    def __init__(self, tree: dict[str, Any], directory: Path, keeps: bool = True) -> None:
        self._keeps = keeps  # all looks, or the last alone: they are memory, too
        self.config = load_config(overlay(overlay(QUIET, {"run": {"directory": directory}}), tree))
        self.assembly: Assembly | None = None
        self.cluster: clusters.Cluster | None = None
        self.runtime: Any = None
        self.records: list[Record] = []
        self.said: list[str] = []
        self.looks: list[Look] = []
        self.over = threading.Event()
        self.result: Result | None = None
        self.gathered: Callable[[Run], None] = lambda run: None  # noqa: ARG005
        """Called once the nodes are there, and no agent yet."""

    # As a view.

    def start(self, goal: Goal) -> None: ...

    def show(self, record: Record) -> None: ...

    def close(self) -> None: ...

    def say(self, message: str) -> None:
        self.said.append(message)
        print(f"  {message}", flush=True)

    def log(self, record: Record) -> None:
        self.records[len(self.records) if self._keeps else 0 :] = [record]

    # The options.

    def train(self, beside: Callable[[Run], None] | None = None) -> Run:
        """Train to the end; `beside` is called in a thread, once it plays, and may stop it."""
        with _noted(self):
            threads = [threading.Thread(target=self._look, daemon=True)]
            faults: list[str] = []
            if beside is not None:
                work = beside

                def guarded() -> None:
                    try:
                        if self.wait_for_play():
                            work(self)
                    except Exception:
                        faults.append(traceback.format_exc())
                        self.stop()

                threads.append(threading.Thread(target=guarded, daemon=True))
            for thread in threads:
                thread.start()
            try:
                self.result = training.train(self.config, self)
            finally:
                self.over.set()
                for thread in threads:
                    thread.join()
            if faults:
                raise RuntimeError(faults[0])
        return self

    def stop(self) -> None:
        """End the run, as a signal does."""
        os.kill(os.getpid(), signal.SIGINT)

    def wait_for_play(self) -> bool:
        """Wait until all actors have played and all policies were trained; False: it is over."""
        while not self.over.wait(LOOK):
            if self.looks and min(*self.looks[-1].turns, *self.looks[-1].updates) > 0:
                return True
        return False

    def status(self) -> list[RoleStatus]:
        """All roles, and bridges."""
        found: list[RoleStatus] = self.runtime.status()
        return found

    @property
    def nodes(self) -> Any:
        """The nodes as Ray knows them."""
        assert self.cluster is not None
        return self.cluster._nodes

    def session_of(self, number: int) -> int:
        """The session of a node's processes, by its number in the run."""
        name = self.nodes._nodes[number].info.name  # local-2, or local-2-5 once it came again
        return int(self.nodes.local.sessions[int(name.split("-")[1])])

    def processes_of(self, number: int) -> list[int]:
        """All processes of a node; of the head, this one and its children too."""
        found = members(self.session_of(number))
        if number == 0:
            others = {p for n in self.nodes.local.sessions.values() for p in members(n)}
            found += [p.pid for p in marked() if p.pid not in others]
        return found

    def look(self) -> Look | None:
        """Read the head's shared memory."""
        assembly = self.assembly
        if assembly is None:
            return None
        board, published = assembly.scoreboard, assembly.published
        learn = board.arrays["learn"]
        actors = range(len(assembly.layout.copies))
        return Look(
            time.monotonic(),
            self.runtime.placement.epoch if self.runtime is not None else 0,
            tuple(float(board.play(actor)[Play.TURNS]) for actor in actors),
            tuple(learn[:, Learn.TRAINED].tolist()),
            tuple(learn[:, Learn.UPDATES].tolist()),
            tuple(published.board["versions"].tolist()),  # type: ignore[attr-defined]
        )

    def _look(self) -> None:
        while not self.over.wait(LOOK):
            found = self.look()
            if found is not None:
                self.looks[len(self.looks) if self._keeps else 0 :] = [found]

    def trained_rate(self) -> float:
        """Agent-steps trained a second, after the warm-up."""
        begin = next(i for i, look in enumerate(self.looks) if min(look.updates) > 0)
        first = next(
            look for look in self.looks[begin:] if look.time >= self.looks[begin].time + WARM_UP
        )
        last = self.looks[-1]
        return (sum(last.trained) - sum(first.trained)) / (last.time - first.time)

    def traffic(self) -> Array:
        """[nodes, nodes, counts] by `Count`: what each node counted of its link to each."""
        rows = {0: self.runtime.node.traffic.counts.copy()}
        for number, member in self.runtime.members.items():
            if member.status.traffic:
                rows[number] = np.array(member.status.traffic)
        count = max(rows) + 1
        found = np.zeros((count, count, len(Count)), np.int64)
        for number, row in rows.items():
            found[number] = row[:count]
        return found


@contextlib.contextmanager
def _noted(run: Run) -> Iterator[None]:
    """Pass a run the parts it is built from."""

    class Noted(Assembly):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            run.assembly = self

    @contextlib.contextmanager
    def gathered(config: Any, say: Any) -> Iterator[clusters.Cluster]:
        with clusters.gathered(config, say) as cluster:
            run.cluster, make = cluster, cluster.runtime

            def runtime(*args: Any, **more: Any) -> Any:
                run.runtime = make(*args, **more)
                return run.runtime

            cluster.runtime = runtime  # type: ignore[method-assign]
            run.gathered(run)
            yield cluster

    before = training.Assembly, training.gathered
    training.Assembly, training.gathered = Noted, gathered  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        training.Assembly, training.gathered = before  # type: ignore[misc]


def pin(processes: Sequence[int], cores: set[int]) -> None:
    """Let all threads of some processes, and all that they start from now on, use these cores."""
    for process in processes:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{process}/task"):
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(thread), cores)


def processor(processes: Sequence[int]) -> float:
    """Seconds of a processor that some processes used so far."""
    used = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(process).cpu_times()
            used += times.user + times.system
    return used


def apart(tree: dict[str, Any], nodes: int = 2, learners_at: str = HOME[1]) -> dict[str, Any]:
    """A run over nodes here: actors on the head alone, learners elsewhere."""
    where = {"cluster": {"local": nodes}, "policy": {"node": learners_at}}
    return overlay(overlay(tree, where), {"actor": {"nodes": [HOME[0]]}})


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """Make a directory for a run, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="r-") as name:
        yield Path(name) / "run"
