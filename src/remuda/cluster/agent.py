"""The agent of a node: the process that hosts the node's roles and executes the head's requests.

The roles are actors, learners and the bridge, which exchanges data with other nodes. One thread,
the keeper, owns the runtime, checks it, and executes requests between two checks. `poll` returns
the status of the last check. If the agent dies, a pipe (`Lifeline`) ends its child processes, and
the bridges of other nodes lose their links to this node.
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
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import cloudpickle

from remuda.assembly.assembly import Assembly
from remuda.cluster.bridge import listen
from remuda.cluster.handover import CheckpointFiles, HandoverState, rings_of
from remuda.cluster.node import Node
from remuda.cluster.nodes import Addresses, Placement
from remuda.errors import RemudaError, RoleDiedError
from remuda.policies.initial import InitialWeights
from remuda.policies.spec import PolicySpec
from remuda.population.members.imported import Imported
from remuda.population.run_spec import RunSpec
from remuda.runtime.layout import Layout
from remuda.runtime.processes import ProcessRuntime
from remuda.system.checkpoint.store import Checkpoints, Manifest
from remuda.system.processes import client as forkserver
from remuda.system.processes.logs import level_of_children
from remuda.system.timeline import TimedSpan
from remuda.types import RoleStatus

log = logging.getLogger(__name__)

TURN = 60.0  # seconds that an out-of-order request waits for earlier ones
HOME = "remuda-node-"  # prefix of an agent's directory, before its process id and random letters
LOOK = 0.1  # seconds between two checks by the keeper


def sweep_homes() -> None:
    """Remove directories of dead agents on this machine, by the process ids in their names."""
    for home in Path(tempfile.gettempdir()).glob(f"{HOME}*-*"):
        process = home.name.removeprefix(HOME).split("-")[0]
        if process.isdecimal() and not Path(f"/proc/{process}").exists():
            shutil.rmtree(home, ignore_errors=True)


@dataclass(frozen=True)
class NodeRecipe:
    """The arguments from which each node's agent builds the run's shared memory."""

    spec: RunSpec
    specs: tuple[PolicySpec, ...]
    layout: Layout
    imported: tuple[Imported, ...]
    number: int
    nodes: int  # maximum number of nodes
    secret: bytes
    initial: Mapping[str, bytes]  # files of initial weights, by file name; may be empty
    checkpoints: str  # the shared checkpoint directory; if empty, nodes send files to the head
    address: str  # address at which this node listens
    ports: range

    def packed(self) -> bytes:
        return cloudpickle.dumps(self)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class NodeStatus:
    """The state of a node at its keeper's last check."""

    is_ready: bool = False
    is_played: bool = False
    compiled: int = 0
    roles: tuple[RoleStatus, ...] = ()
    news: tuple[str, ...] = ()
    fatal: RoleDiedError | None = None
    traffic: tuple[tuple[int, ...], ...] = ()  # [nodes][columns of `Count`]
    epoch: int = 0  # number of the newest placement in effect on the node


P = ParamSpec("P")
T = TypeVar("T")


class Keeper:
    """A thread that owns a runtime: it watches the runtime, and executes requests in between."""

    def __init__(self, watch: Callable[[], None]) -> None:
        self._watch = watch
        self._requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]
        self._requests = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def do(self, request: Callable[[], T]) -> T:
        """Let the keeper call `request`; return its result or raise its exception."""
        result: Future[T] = Future()
        self._requests.put((request, result))
        return result.result()

    def _run(self) -> None:
        while True:
            try:
                request, result = self._requests.get_nowait()
            except queue.Empty:
                self._watch()
                continue
            try:
                result.set_result(request())
            except BaseException as error:
                result.set_exception(error)


def in_keeper(
    method: Callable[Concatenate[NodeAgent, P], T],
) -> Callable[Concatenate[NodeAgent, P], T]:
    """Run a method in the agent's keeper thread, and wait for its result."""

    @wraps(method)
    def called(agent: NodeAgent, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return agent.keeper.do(lambda: method(agent, *args, **kwargs))

    return called


class NodeAgent:
    """The host of a node's roles. All methods may be called from any thread.

    Requests may arrive out of order, so `replace` waits for the previous epoch's placement.
    """

    def __init__(self, recipe: bytes) -> None:
        forkserver.begin()
        self._recipe: NodeRecipe = pickle.loads(recipe)
        sweep_homes()
        self._home = tempfile.TemporaryDirectory(prefix=f"{HOME}{os.getpid()}-")
        root = Path(self._home.name)
        shared = self._recipe.checkpoints
        self._logs = root / "logs"
        self._level = contextlib.ExitStack()
        self._level.enter_context(level_of_children(self._recipe.spec.config.run.log_level))
        self._checkpoints = Checkpoints(Path(shared) if shared else root / "checkpoints")
        self._logs.mkdir()
        self.node: Node | None = None
        self.runtime: ProcessRuntime | None = None
        self._fatal: RoleDiedError | None = None
        self._news: list[str] = []
        self._status = NodeStatus()
        self._lock = threading.Lock()
        # epoch of the newest placement in effect; 0 before the roles start
        self._epoch, self._epochs = 0, threading.Condition()
        self._wanted = 0  # epoch of the newest placement that the head has requested
        self.keeper = Keeper(watch=self._watch)

    @in_keeper
    def prepare(
        self, saved: CheckpointFiles | None, changed: Mapping[str, Any] | None = None
    ) -> int:
        """Allocate the run's shared memory; return the port where the bridge will listen."""
        recipe = self._recipe
        assembly = Assembly(
            recipe.spec,
            recipe.layout,
            specs=recipe.specs,
            initial=self._initial(),
            imported=recipe.imported,
            sparse=True,
        )
        if saved is not None:
            if not recipe.checkpoints:
                saved.write(self._checkpoints)
            assembly.restore(self._checkpoints, saved.manifest, changed)
        listener = listen(recipe.address, recipe.ports)
        self.node = Node(assembly, recipe.number, recipe.nodes, recipe.secret, listener)
        port: int = listener.getsockname()[1]
        return port

    def start(self, placement: Placement, addresses: Addresses) -> None:
        """Start the roles of this node; `poll` shows when they are ready."""
        try:
            self.keeper.do(lambda: self._start(placement, addresses))
        finally:
            self._enter(placement.epoch)

    def replace(self, placement: Placement, addresses: Addresses, handover: HandoverState) -> None:
        """Change the placement; roles that move here resume from their handover state."""
        self._expect(placement.epoch)
        self._wait_for(placement.epoch - 1)
        try:
            self.keeper.do(
                lambda: self._made.replace(
                    placement, addresses, handover, lambda: self._wanted > placement.epoch
                )
            )
        finally:
            self._enter(placement.epoch)

    def release_actor(self, actor: int, epoch: int) -> None:
        """Stop an actor that the placement of `epoch` puts on another node."""
        self._expect(epoch)
        self.keeper.do(lambda: self._running.move([r for r in self._running.here if r != actor]))

    def rings_of(
        self, actors: Sequence[int], policies: Sequence[str], epoch: int
    ) -> dict[tuple[str, int], Any]:
        """Return this node's copies of the rings of actors that the placement of `epoch` moves."""
        self._expect(epoch)
        return self.keeper.do(lambda: rings_of(self._made.assembly, actors, policies))

    def go(self) -> None:
        self._wait_for(1)
        self.keeper.do(lambda: self._running.go())  # noqa: PLW0108 - evaluated there

    def poll(self) -> NodeStatus:
        """Return the node's status; each message is returned once."""
        with self._lock:
            news, self._news = tuple(self._news), []
            return replace(self._status, news=news)

    @in_keeper
    def begin_save(self, number: int) -> None:
        if not self._recipe.checkpoints:
            # If this fails, each role reports that it cannot write its part.
            with contextlib.suppress(OSError):
                self._checkpoints.partial(number).mkdir(parents=True, exist_ok=True)
        self._running.want_save(number)

    @in_keeper
    def save(self, number: int) -> dict[str, bytes | None]:
        """Wait for this node's parts of a checkpoint; return their bytes, each None if shared."""
        parts = self._running.save(number)
        if self._recipe.checkpoints:
            return dict.fromkeys(parts)
        directory = self._checkpoints.partial(number)
        return {part: (directory / f"{part}.safetensors").read_bytes() for part in parts}

    @in_keeper
    def settle(self, number: int, manifest: Manifest | None) -> None:
        """Complete a checkpoint here, or abandon it if there is no manifest; inform the roles."""
        if self._recipe.checkpoints:
            pass  # the head commits or abandons it
        elif manifest is None:
            self._checkpoints.abandon(number)
        else:
            try:
                for part in (part for role in self._running.roles for part in role.parts):
                    self._checkpoints.carry_over(number, part)  # in case its role was dead or late
                self._checkpoints.commit(replace(manifest, files={}))
                self._checkpoints.keep(2)
            except OSError as error:  # roles here fall back to the previous checkpoint
                log.error("cannot keep checkpoint %d: %s", number, error)
                self._checkpoints.abandon(number)
        self._running.settle(number)

    @in_keeper
    def stamp(self) -> int:
        return self._made.stamp()

    def logs(self) -> dict[str, str]:
        """Return the last MiB of each log of this node's roles."""
        logs = sorted(self._logs.glob("*.log"))
        return {log.stem: log.read_bytes()[-(1 << 20) :].decode(errors="replace") for log in logs}

    def spans(self) -> tuple[float, dict[str, list[TimedSpan]]]:
        return time.perf_counter(), self._made.assembly.spans()

    @in_keeper
    def finish(self) -> int:
        """Stop all roles; return a stamp that follows their last writes (see `make_stamps`)."""
        if self.runtime is not None:
            self.runtime.finish()
        return self.node.stamp() if self.node is not None else 0

    @in_keeper
    def stop(self) -> None:
        if self.runtime is not None:
            self.runtime.stop()
            self.runtime = None
        self._level.close()
        self._home.cleanup()

    def _expect(self, epoch: int) -> None:
        """Announce a newer placement to threads that wait for the links of an older one."""
        with self._epochs:
            self._wanted = max(self._wanted, epoch)

    def _enter(self, epoch: int) -> None:
        with self._epochs:
            self._epoch = max(self._epoch, epoch)
            self._epochs.notify_all()

    def _wait_for(self, epoch: int) -> None:
        with self._epochs:
            self._epochs.wait_for(lambda: self._epoch >= epoch, TURN)

    # Methods that the keeper calls.

    @property
    def _running(self) -> ProcessRuntime:
        assert self.runtime is not None
        return self.runtime

    @property
    def _made(self) -> Node:
        assert self.node is not None
        return self.node

    def _initial(self) -> InitialWeights | None:
        if not self._recipe.initial:
            return None
        directory = Path(self._home.name) / "initial"
        directory.mkdir(exist_ok=True)
        for name, contents in self._recipe.initial.items():
            (directory / name).write_bytes(contents)
        return InitialWeights(directory)

    def _start(self, placement: Placement, addresses: Addresses) -> None:
        self.runtime = self._made.runtime(placement, addresses, self._logs, self._checkpoints)
        self.runtime.spawn()

    def _watch(self) -> None:
        runtime = self.runtime
        if runtime is None:
            time.sleep(LOOK)
            return
        try:
            if self._fatal is None:
                runtime.run_for(LOOK)
        except RemudaError as error:
            self._fatal = RoleDiedError(str(error))
        except Exception as error:  # without a keeper, the node would look alive but do nothing
            log.exception("the keeper failed")
            self._fatal = RoleDiedError(f"{type(error).__name__}: {error}")
        if self._fatal is not None:
            time.sleep(LOOK)
        status = NodeStatus(
            runtime.is_ready,
            runtime.is_played,
            runtime.compiled,
            tuple(runtime.status()),
            (),
            self._fatal,
            # Use a list: tuples made from a generator fill the interpreter's free lists.
            tuple([tuple(row) for row in self._made.traffic.counts.tolist()]),
            self._epoch,
        )
        with self._lock:
            self._news += runtime.news()
            self._status = status
