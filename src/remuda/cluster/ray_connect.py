"""The connection to Ray: import it when it is needed, find its head, join as a driver, poll it."""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from remuda.cluster.member import GAP
from remuda.cluster.ray_local import ENVIRONMENT, LOOPBACK
from remuda.errors import RemudaError
from remuda.system.processes.child import STOPPING_SIGNALS

LOG = logging.getLogger(__name__)
OLDEST = (2, 40)  # the oldest supported version of Ray, as in the extra of pyproject.toml
REACH_LIMIT = 3.0  # seconds within which a Ray head must answer at the address
# The first bytes of a gRPC client over HTTP/2 (RFC 9113, section 3.4), with empty settings.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


def import_ray(local: bool) -> ModuleType:
    """Import Ray, and check its version."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Else Ray would end this process 60 seconds after Ray's control service is gone.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(10**8))
    if local:
        os.environ.update(ENVIRONMENT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
    except ImportError as error:
        raise RemudaError(
            f"cluster: Ray cannot be imported ({error}); install it: pip install -e '.[cluster]'"
        ) from None
    installed = version_of(ray.__version__)
    if installed < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise RemudaError(
            f"cluster: Ray {ray.__version__} is too old, {oldest} is the oldest supported version; "
            "install a newer one on all nodes: pip install -e '.[cluster]'"
        )
    if local:  # needed if the user's code has already imported Ray
        constants: Any = ray._private.ray_constants
        constants.ENABLE_RAY_CLUSTER = False
    return ray


def version_of(text: str) -> tuple[int, int]:
    """Return major and minor version; an unreadable version counts as supported."""
    parts = text.split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return OLDEST


def find_address(ray: ModuleType, address: str) -> str:
    """Return `host:port` of the head at `cluster.address`."""
    head = "" if address == "auto" else address
    try:
        if address == "auto":
            head = ray._private.services.canonicalize_bootstrap_address("auto") or ""
        host, _, port = head.rpartition(":")
        _greet(host.strip("[]"), int(port))
    except Exception as error:  # Ray raises various errors if it finds none
        why = f"answers at {head} ({error})" if head else "runs on this machine"
        raise RemudaError(
            f"cluster.address is {address!r}, and no Ray cluster {why}: start one with "
            "`ray start --head`, join it with `ray start --address HOST:PORT`, or use cluster.local"
        ) from error
    return head


def _greet(host: str, port: int) -> None:
    """Check within seconds that a gRPC server answers; Ray would try for minutes."""
    with socket.create_connection((host, port), REACH_LIMIT) as connection:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return  # the greeting would be encrypted
        connection.settimeout(REACH_LIMIT)
        connection.sendall(GREETING)
        answer = connection.recv(9, socket.MSG_WAITALL)
        if len(answer) < 9 or answer[3] != 4:  # the type of the first frame: settings
            raise ConnectionError("the server there is not a Ray head")


def connect(ray: ModuleType, address: str, setting: str, code: Sequence[str] = ()) -> None:
    """Join the cluster as a Ray driver, so agents end with this process."""
    if ray.is_initialized():
        raise RemudaError(
            "this process has already called ray.init, but Remuda must join the cluster itself: "
            "call ray.shutdown() before training"
        )
    options: dict[str, Any] = {"address": address, "namespace": f"remuda-{uuid.uuid4().hex}"}
    if address.startswith(LOOPBACK):
        options["_node_ip_address"] = LOOPBACK
    if code:
        options["runtime_env"] = {"py_modules": list(code)}
    with _own_signals(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Keep Ray's messages about dead workers and nodes out of the terminal.
            worker: Any = ray._private.worker
            if getattr(worker, "print_to_stdstream", _to_log) is not _to_log:
                _ray_prints.append(worker.print_to_stdstream)
                worker.print_to_stdstream = _to_log
            ray.init(**options, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:
            _restore_output(ray)
            why = " ".join(str(error).split())[:300]
            raise RemudaError(
                f"cluster.address is {setting!r}: the Ray cluster at {address} cannot be joined: "
                f"{why}"
            ) from error


def disconnect(ray: ModuleType) -> None:
    """Leave the cluster, and restore Ray's output."""
    with _own_signals():
        ray.shutdown()
    _restore_output(ray)


def _restore_output(ray: ModuleType) -> None:
    if _ray_prints:
        ray._private.worker.print_to_stdstream = _ray_prints.pop()


_ray_prints: list[Any] = []  # Ray's own print function, while this module replaces it


def _to_log(data: Mapping[str, Any], *_: object, **__: object) -> None:
    for line in data.get("lines", ()):
        LOG.info("Ray: %s", line)


@contextmanager
def _own_signals() -> Iterator[None]:
    kinds = STOPPING_SIGNALS
    before = {kind: signal.getsignal(kind) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            if handler is not None and signal.getsignal(kind) is not handler:
                signal.signal(kind, handler)


@dataclass(frozen=True)
class NodeSnapshot:
    """Ray's list of nodes."""

    entries: Sequence[Mapping[str, Any]]  # entries of the living nodes, this machine's first
    free: Mapping[str, Mapping[str, float]]  # free resources of each node, by Ray's node id


class NodePoller:
    """A thread that queries Ray's nodes, because a query hangs if Ray's control service is dead."""

    def __init__(self, list_nodes: Callable[[], NodeSnapshot]) -> None:
        self._list_nodes = list_nodes
        self._queries: queue.SimpleQueue[Future[NodeSnapshot] | None] = queue.SimpleQueue()
        self._query: Future[NodeSnapshot] | None = None  # the running query
        self._queried_at = self._checked_at = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ray-nodes", daemon=True)
        self.failure = ""  # the error of the running query's last attempt

    def newest(self) -> NodeSnapshot | None:
        """Return the answer of a finished query once; start a query if none is running."""
        now = time.monotonic()
        if now > self._checked_at + GAP:
            # This process itself was stopped: an answer may have arrived without being read.
            self._queried_at += now - self._checked_at
        self._checked_at = now
        if self._thread.ident is None:
            self._thread.start()
        if self._query is None:
            self._query, self._queried_at = Future(), now
            self._queries.put(self._query)
        if not self._query.done():
            return None
        query, self._query = self._query, None
        return query.result()

    @property
    def waits(self) -> float:
        return 0.0 if self._query is None else self._checked_at - self._queried_at

    def stop(self) -> None:
        """Stop the thread; a query that hangs is abandoned."""
        self._stopped.set()
        self._queries.put(None)
        if self._thread.ident is not None:
            self._thread.join(1.0)

    def _work(self) -> None:
        while (query := self._queries.get()) is not None:
            while not (query.done() or self._stopped.is_set()):
                try:
                    query.set_result(self._list_nodes())
                    self.failure = ""
                except Exception as error:
                    self.failure = f"{type(error).__name__}: {error}"
                    LOG.info("Ray does not list its nodes: %s", self.failure)
                    self._stopped.wait(1.0)
