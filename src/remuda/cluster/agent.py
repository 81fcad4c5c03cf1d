"""The agent of a node: it hosts the node's roles, and does what the head asks of it.

It is made in a process of its own on its node. One thread, the keeper, owns the runtime and watches
it all the time; what the head asks is done there, between two looks, and `poll` is answered with
what was seen last. If this process dies, its children end by their lifeline, and the bridges of
other nodes lose their links: the head learns of it by whatever brought this process here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cloudpickle

from remuda.assembly import Assembly
from remuda.checkpoint.store import Checkpoints, Manifest
from remuda.cluster.bridge import Listener
from remuda.cluster.estate import Estate, rings_of
from remuda.cluster.node import Node
from remuda.cluster.placement import Placement
from remuda.cluster.plan import Addresses
from remuda.cluster.saved import Saved
from remuda.config import Config
from remuda.errors import RemudaError, RoleDiedError
from remuda.forkserver import client as forkserver
from remuda.forkserver.logs import level_of_children
from remuda.policies.initial import InitialWeights
from remuda.policies.spec import PolicySpec
from remuda.population.imported import Imported
from remuda.runtime.layout import Layout
from remuda.runtime.processes import ProcessRuntime
from remuda.timeline import Span
from remuda.types import AgentSpec, RoleStatus

log = logging.getLogger(__name__)

LONGEST_LOG = 1 << 20
"""Bytes of a log that are handed over."""
TURN = 60.0
"""Seconds that what is asked out of turn waits for what was asked before."""
HOME = "remuda-node-"
"""What the directory of an agent is called, before its process and a few letters."""
LOOK = 0.1
"""Seconds between two looks of the keeper at what it is asked."""


def sweep_homes() -> None:
    """Remove what agents on this machine left that were killed: each names its process."""
    for left in Path(tempfile.gettempdir()).glob(f"{HOME}*-*"):
        process = left.name.removeprefix(HOME).split("-")[0]
        if process.isdecimal() and not Path(f"/proc/{process}").exists():
            shutil.rmtree(left, ignore_errors=True)


@dataclass(frozen=True)
class NodeRecipe:
    """What a node's shared memory is made from; it is the same on every node."""

    config: Config
    specs: tuple[PolicySpec, ...]
    layout: Layout
    facts: tuple[str, ...]
    agents: tuple[AgentSpec, ...]
    imported: tuple[Imported, ...]
    number: int
    nodes: int
    """The most that there will be."""
    secret: bytes
    initial: Mapping[str, bytes]
    """The files of what policies begin with instead of random weights."""
    checkpoints: str
    """Where the run's checkpoints lie, if nodes see them too; empty: parts are handed over."""
    address: str
    """Where this node listens."""
    ports: range

    def packed(self) -> bytes:
        """For another process, with the code that none can import there."""
        return cloudpickle.dumps(self)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Glance:
    """How a node is doing, as its keeper saw it last."""

    is_ready: bool = False
    is_played: bool = False
    compiled: int = 0
    roles: tuple[RoleStatus, ...] = ()
    news: tuple[str, ...] = ()
    fatal: RoleDiedError | None = None
    traffic: tuple[tuple[int, ...], ...] = ()
    """By node, by `Count`."""
    epoch: int = 0
    """Of the placement that its roles live by."""


@dataclass
class Keeper:
    """A thread that owns a runtime: it watches, and does what it is asked in between."""

    asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = field(
        default_factory=queue.SimpleQueue
    )
    watch: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, daemon=True).start()

    def do(self, what: Callable[[], Any]) -> Any:
        """Let the keeper do something; returns what came of it, or raises it."""
        found: Future[Any] = Future()
        self.asked.put((what, found))
        return found.result()

    def _run(self) -> None:
        while True:
            try:
                what, found = self.asked.get(timeout=0.0)
            except queue.Empty:
                self.watch()
                continue
            try:
                found.set_result(what())
            except BaseException as error:
                found.set_exception(error)


class NodeAgent:
    """Hosts the roles of a node. All methods may be called from any thread.

    What is asked without waiting for what was asked before may come first here: so placements wait
    for their turn, by their epoch.
    """

    def __init__(self, recipe: bytes) -> None:
        """Begin with what `NodeRecipe.packed` gave."""
        forkserver.begin()
        self._recipe: NodeRecipe = pickle.loads(recipe)
        sweep_homes()
        self._home = tempfile.TemporaryDirectory(prefix=f"{HOME}{os.getpid()}-")
        root = Path(self._home.name)
        shared = self._recipe.checkpoints
        self._logs = root / "logs"
        self._level = contextlib.ExitStack()
        self._level.enter_context(level_of_children(self._recipe.config.run.log_level))
        self._checkpoints = Checkpoints(Path(shared) if shared else root / "checkpoints")
        self._logs.mkdir()
        self._node: Node | None = None
        self._runtime: ProcessRuntime | None = None
        self._fatal: RoleDiedError | None = None
        self._news: list[str] = []
        self._glance = Glance()
        self._lock = threading.Lock()
        self._epoch, self._epochs = 0, threading.Condition()
        """The newest placement that roles live by; 0: they are not begun."""
        self._wanted = 0
        """The newest that they are to live by, as far as is known here."""
        self._keeper = Keeper(watch=self._watch)

    def prepare(self, saved: Saved | None, changed: Mapping[str, Any] | None = None) -> int:
        """Make the run's shared memory; returns the port where the bridge will listen."""
        return int(self._keeper.do(lambda: self._prepare(saved, changed)))

    def start(self, placement: Placement, addresses: Addresses) -> None:
        """Start the roles that live here; `poll` tells when they are ready."""
        try:
            self._keeper.do(lambda: self._start(placement, addresses))
        finally:
            self._enter(placement.epoch)

    def replace(self, placement: Placement, addresses: Addresses, estate: Estate) -> None:
        """Let roles live elsewhere from now on; those that come here go on from their estate."""
        self._expect(placement.epoch)
        self._wait_for(placement.epoch - 1)
        try:
            self._keeper.do(
                lambda: self._made.replace(
                    self._running,
                    placement,
                    addresses,
                    estate,
                    self._checkpoints,
                    lambda: self._wanted > placement.epoch,
                )
            )
        finally:
            self._enter(placement.epoch)

    def release_actor(self, actor: int, epoch: int) -> None:
        """End an actor that is to live elsewhere in the placement of an epoch."""
        self._expect(epoch)
        self._keeper.do(lambda: self._running.move([r for r in self._running.here if r != actor]))

    def rings_of(
        self, actors: Sequence[int], policies: Sequence[str], epoch: int
    ) -> dict[tuple[str, int], Any]:
        """What is known here of the rings of actors that move in the placement of an epoch."""
        self._expect(epoch)
        found: dict[tuple[str, int], Any] = self._keeper.do(
            lambda: rings_of(self._made.assembly, actors, policies)
        )
        return found

    def go(self) -> None:
        """Let the roles work."""
        self._wait_for(1)
        self._keeper.do(self._go)

    def poll(self) -> Glance:
        """How the node is doing; what is new since the last time is told once."""
        with self._lock:
            news, self._news = tuple(self._news), []
            return replace(self._glance, news=news)

    def begin_save(self, number: int) -> None:
        """Ask all roles for their parts of a checkpoint, and wait for none."""
        self._keeper.do(lambda: self._begin_save(number))

    def save(self, number: int) -> dict[str, bytes | None]:
        """Wait for the parts of a checkpoint that this node's roles write."""
        found: dict[str, bytes | None] = self._keeper.do(lambda: self._save(number))
        return found

    def settle(self, number: int, manifest: Manifest | None) -> None:
        """Tell that a checkpoint is complete, or given up where there is no manifest."""
        self._keeper.do(lambda: self._settle(number, manifest))

    def stamp(self) -> int:
        """Count up the stamp of this node."""
        return int(self._keeper.do(self._stamp))

    def logs(self) -> dict[str, str]:
        """The logs of this node's roles, the last of each: by role."""
        found = {}
        for path in sorted(self._logs.glob("*.log")):
            found[path.stem] = path.read_bytes()[-LONGEST_LOG:].decode(errors="replace")
        return found

    def spans(self) -> tuple[float, dict[str, list[tuple[Span, float, float]]]]:
        """What every role here did when, and what this node's clock shows now."""
        return time.perf_counter(), self._made.assembly.spans()

    def finish(self) -> int:
        """Stop all roles; returns the stamp that comes after all that they wrote."""
        return int(self._keeper.do(self._finish))

    def stop(self) -> None:
        """Stop the bridge too, and leave nothing."""
        self._keeper.do(self._stop)

    def _expect(self, epoch: int) -> None:
        """Tell who waits for the links of an older placement that another one comes."""
        with self._epochs:
            self._wanted = max(self._wanted, epoch)

    def _enter(self, epoch: int) -> None:
        with self._epochs:
            self._epoch = max(self._epoch, epoch)
            self._epochs.notify_all()

    def _wait_for(self, epoch: int) -> None:
        """Wait until roles live by a placement, or have begun to."""
        with self._epochs:
            self._epochs.wait_for(lambda: self._epoch >= epoch, TURN)

    # In the keeper.

    @property
    def _running(self) -> ProcessRuntime:
        assert self._runtime is not None
        return self._runtime

    @property
    def _made(self) -> Node:
        assert self._node is not None
        return self._node

    def _prepare(self, saved: Saved | None, changed: Mapping[str, Any] | None) -> int:
        recipe = self._recipe
        assembly = Assembly(
            recipe.config,
            recipe.specs,
            recipe.layout,
            facts=recipe.facts,
            agents=recipe.agents,
            initial=self._initial(),
            imported=recipe.imported,
            sparse=True,
        )
        if saved is not None:
            if not recipe.checkpoints:
                saved.write(self._checkpoints)
            assembly.restore(self._checkpoints, saved.manifest, changed)
        listener = Listener.on(recipe.address, recipe.ports)
        self._node = Node(assembly, recipe.number, recipe.nodes, recipe.secret, listener)
        return listener.port

    def _initial(self) -> InitialWeights | None:
        """What policies begin with, as files here."""
        if not self._recipe.initial:
            return None
        directory = Path(self._home.name) / "initial"
        directory.mkdir(exist_ok=True)
        for name, contents in self._recipe.initial.items():
            (directory / name).write_bytes(contents)
        return InitialWeights(directory)

    def _start(self, placement: Placement, addresses: Addresses) -> None:
        self._runtime = self._made.runtime(placement, addresses, self._logs, self._checkpoints)
        self._runtime.spawn()

    def _stamp(self) -> int:
        return self._made.stamp()

    def _go(self) -> None:
        self._running.go()

    def _watch(self) -> None:
        """Look after the roles for a moment, and note how they are."""
        runtime = self._runtime
        if runtime is None:
            threading.Event().wait(LOOK)
            return
        try:
            if self._fatal is None:
                runtime.run_for(LOOK)
        except RemudaError as error:
            # Of a class that takes words alone: it crosses to the head.
            self._fatal = RoleDiedError(str(error))
        except Exception as error:  # without its keeper a node would only seem to live
            log.exception("the keeper failed")
            self._fatal = RoleDiedError(f"{type(error).__name__}: {error}")
        if self._fatal is not None:
            threading.Event().wait(LOOK)
        glance = Glance(
            runtime.is_ready,
            runtime.is_played,
            runtime.compiled,
            tuple(runtime.status()),
            (),
            self._fatal,
            # Of a list: tuples made of a generator fill the interpreter's free lists bit by bit.
            tuple([tuple(row) for row in self._made.traffic.counts.tolist()]),
            self._epoch,
        )
        with self._lock:
            self._news += runtime.news()
            self._glance = glance

    def _begin_save(self, number: int) -> None:
        if not self._recipe.checkpoints:
            # Where that cannot be, no role can write its part, and says so.
            with contextlib.suppress(OSError):
                self._checkpoints.partial(number).mkdir(parents=True, exist_ok=True)
        self._running.want_save(number)

    def _save(self, number: int) -> dict[str, bytes | None]:
        parts = self._running.save(number)
        if self._recipe.checkpoints:
            return dict.fromkeys(parts)
        directory = self._checkpoints.partial(number)
        return {part: (directory / f"{part}.safetensors").read_bytes() for part in parts}

    def _settle(self, number: int, manifest: Manifest | None) -> None:
        if self._recipe.checkpoints:
            pass  # the head does it
        elif manifest is None:
            self._checkpoints.abandon(number)
        else:
            try:
                for part in (part for role in self._running.roles for part in role.parts):
                    self._checkpoints.carry_over(number, part)  # of a role that was dead or late
                self._checkpoints.commit(replace(manifest, files={}))
                self._checkpoints.keep(2)
            except OSError as error:  # the one before is what roles here go back to
                log.error("cannot keep checkpoint %d: %s", number, error)
                self._checkpoints.abandon(number)
        self._running.settle(number)

    def _finish(self) -> int:
        if self._runtime is not None:
            self._runtime.finish()
        return self._node.stamp() if self._node is not None else 0

    def _stop(self) -> None:
        if self._runtime is not None:
            self._runtime.stop()
            self._runtime = None
        self._level.close()
        self._home.cleanup()
