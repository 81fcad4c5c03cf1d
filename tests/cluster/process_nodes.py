"""Nodes that are processes on this machine, without Ray: what tests of runs need of a cluster."""

import importlib
import multiprocessing
import os
import signal
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError

from remuda.cluster.nodes import HEAD, NodeInfo
from remuda.errors import NodeLostError, RemudaError


class ProcessCall:
    def __init__(self):
        self.future = Future()

    def done(self):
        return self.future.done()

    def result(self, timeout=None):
        try:
            return self.future.result(timeout)
        except LateError:
            raise TimeoutError from None


class ProcessNodes:
    """As `remuda.cluster.nodes.Nodes`; each node is a process and its children."""

    def __init__(self, count, cores=2):
        self._infos = [NodeInfo(i, f"node-{i}", "127.0.0.1", cores, 0) for i in range(count)]
        self.processes, self._connections, self._calls = {}, {}, {}
        self._lost, self._locks, self._next = [], {}, 0

    def gather(self):
        return list(self._infos)

    def start(self, number, agent, args):
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=_serve, args=(theirs, agent, args), daemon=False)
        process.start()
        theirs.close()
        self.processes[number], self._connections[number] = process, ours
        self._calls[number], self._locks[number] = {}, threading.Lock()
        threading.Thread(target=self._listen, args=(number,), daemon=True).start()

    def call(self, number, method, *args):
        call = ProcessCall()
        with self._locks[number]:
            self._next += 1
            name = (number, self._next)
            self._calls[number][name] = call
        try:
            self._connections[number].send((name, method, args))
        except OSError:
            self._fail(number)
        return call

    def pid(self, number):
        return self.processes[number].pid

    def lost(self):
        lost, self._lost = self._lost, []
        return lost

    def joined(self):
        return []

    def give_up(self, number):
        os.kill(self.processes[number].pid, signal.SIGKILL)

    def stop(self):
        for process in self.processes.values():
            process.kill()
            process.join()

    def _listen(self, number):
        while True:
            try:
                name, value, error = self._connections[number].recv()
            except (EOFError, OSError):
                self._lost.append(number)
                self._fail(number)
                return
            call = self._calls[number].pop(name)
            if error is None:
                call.future.set_result(value)
            else:
                call.future.set_exception(error)

    def _fail(self, number):
        with self._locks[number]:
            for call in self._calls[number].values():
                if not call.done():
                    call.future.set_exception(NodeLostError(f"node {number} is gone"))
            self._calls[number].clear()


def _serve(connection, agent, args):
    module, name = agent.split(":")
    made, lock = getattr(importlib.import_module(module), name)(*args), threading.Lock()

    def answer(name, method, args):
        value = error = None
        try:
            value = getattr(made, method)(*args)
        except RemudaError as found:
            error = found
        except Exception as found:
            error = RemudaError(f"{type(found).__name__}: {found}")
        with lock:
            connection.send((name, value, error))

    while True:
        try:
            asked = connection.recv()
        except EOFError:
            os._exit(0)
        threading.Thread(target=answer, args=asked, daemon=True).start()


__all__ = ["HEAD", "ProcessNodes"]
