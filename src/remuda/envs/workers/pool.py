"""Copies of a game in several processes, for slow Python environments.

The parent (an actor) writes a request (`REQUESTED`, commands, seeds, actions) into shared memory
and wakes the workers. Each worker serves the request for its copies, writes the results and `DONE`
(after an error also `FAILED` and a message), and wakes the parent. A turn takes one such round trip
for each group of agents, and one at its end. While workers work, the parent sleeps and does not
touch their arrays, and vice versa. If a worker dies, the parent notices within a second and raises
an error, and its supervisor restarts the parent with new workers. If the parent dies, the workers
die with it. A worker whose start was lost because the fork server died is started again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from remuda.envs.description import declared_options
from remuda.envs.live_options import SIZE
from remuda.envs.registry import Game, find_game
from remuda.envs.scripted import possibilities
from remuda.envs.vector_env import VectorEnv
from remuda.envs.workers.process import (
    BEGIN,
    DONE,
    END,
    FAILED,
    MESSAGE,
    OF_THE_USER,
    REQUESTED,
    RESET,
    STOP,
    Share,
    WorkerStatus,
    work,
)
from remuda.errors import RemudaError, UnguardedScriptError, UserCodeError
from remuda.system.loading import code_of
from remuda.system.memory.atomic import load, store
from remuda.system.memory.lifeline import Lifeline
from remuda.system.memory.shared import SharedArrays
from remuda.system.memory.waiting import Wakeup
from remuda.system.processes import client as forkserver
from remuda.system.processes.child import UNGUARDED, script_name
from remuda.system.processes.process import Process
from remuda.types import Array, Bools, Integers, TurnResult

GLANCE = 1.0  # seconds between checks of a worker that does not answer
ATTEMPTS = 3  # times that a start lost with the fork server is repeated, for each worker
ENDING = 5.0  # seconds for workers to end, both on request and after they are killed


class WorkerEnvs(VectorEnv):
    """A game stepped by several processes; it cannot be saved in mid-episode or rendered."""

    def __init__(
        self,
        game: Game | str,
        num_envs: int,
        workers: int,
        *,
        check: bool = True,
        first_copy: int = 0,
        status: WorkerStatus | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
        stream: tuple[int, str] = (0, ""),
    ) -> None:
        """Start the workers, and wait until all are ready; if one fails, stop all.

        Args:
            game: the game, or its name.
            num_envs: number of copies, over all workers.
            workers: number of processes; at most `num_envs` are used.
            check: whether the values of another library's game are checked.
            first_copy: the number of its first copy among the copies of all actors.
            status: shows the supervisor of this process which workers this process waits for.
            options: the game's options.
            stream: seed and name from which each worker seeds the global random generators.
        """
        game = find_game(game) if isinstance(game, str) else game
        self.num_envs, self.first_copy = num_envs, first_copy
        options = dict(options)
        single = game.make(1, **options)
        self.agents, self.turn_groups = single.agents, single.turn_groups
        self.episode_metrics = single.episode_metrics
        self.can_observe_together = single.can_observe_together
        self.may_return_at_once = single.may_return_at_once
        self.changeable_options = declared_options(single)
        self._changed: dict[str, Any] = {}
        self._options = single.options()
        single.close()
        self._group_of = {agent: group for group in self.turn_groups for agent in group}
        self._next_group = dict(pairwise(self.turn_groups))
        workers = min(workers, num_envs)
        self._shared = shared = SharedArrays(self._layout(workers))
        self.active: Bools = shared["active"]
        if single.rewards_so_far is not None:
            self.rewards_so_far = shared["rewards"]
        metrics = dict(zip(self.episode_metrics, shared["episode_metrics"], strict=True))
        self._result = TurnResult(
            shared["rewards"], shared["terminated"], shared["truncated"], metrics
        )
        self.notes = {}
        self._noted = [0] * workers
        self._fresh: set[int] = set()  # agents whose observations are up to date
        self._begins = False
        self._status, self._stream = status, stream
        self._wakeup = Wakeup()
        self._lifeline = Lifeline()
        self._words = self._shared["words"].reshape(-1)
        self._requests = 1  # the first request: make the copies
        self._shared["words"][:, REQUESTED] = 1
        self._wakeups = [Wakeup() for _ in range(workers)]
        self._shares = self._divide(game, options, check)
        self._lost = [0] * workers  # lost starts of each worker, because the fork server died
        self._processes: list[Process] = []
        try:
            for share in self._shares:
                self._processes.append(self._spawn(share))
            self._await()
        except BaseException:  # Ctrl-C too: only this object knows the workers that were started
            self._release()
            raise

    def _divide(self, game: Game, options: dict[str, Any], check: bool) -> list[Share]:
        workers = len(self._wakeups)
        bounds = [self.num_envs * i // workers for i in range(workers + 1)]
        return [
            Share(
                index=i,
                game=game,
                options=options,
                code=code_of(options),
                first=bounds[i],
                end=bounds[i + 1],
                shared=self._shared,
                wakeup=wakeup,
                parent_wakeup=self._wakeup,
                check=check,
                first_copy=self.first_copy,
                status=self._status,
                stream=self._stream,
            )
            for i, wakeup in enumerate(self._wakeups)
        ]

    def reset(self, seeds: Integers, mask: Bools) -> None:
        if self._shared["acts"].any():
            self._ask()
        self._shared["seeds"][:], self._shared["mask"][:] = seeds, mask
        self._ask(RESET)

    def set_option(self, name: str, value: Any) -> None:
        """Include the value in the next request to reset."""
        self._changed[name] = value
        text = json.dumps(self._changed).encode()
        options = self._shared["options"]
        options[: len(text)] = np.frombuffer(text, np.uint8)
        options[len(text) :] = 0
        self._shared["option_changes"][0] += 1

    def begin_turn(self) -> None:
        """Include the start of the turn in the next request."""
        self._begins = True
        self._fresh.clear()

    def observe(self, agent: int, out: Array) -> None:
        self._look(agent)
        out[...] = self._shared[f"observations {agent}"]

    def mask(self, agent: int, out: Bools) -> None:
        self._look(agent)
        out[...] = self._shared[f"mask {agent}"]

    def act(self, agent: int, actions: Array) -> None:
        """Store actions; they are sent once the whole group has acted, or an agent observes."""
        acts = self._shared["acts"]
        if acts[agent]:
            self._ask()  # it has acted already, and no agent has observed since
        self._shared[f"actions {agent}"][...] = actions
        acts[agent] = True
        self._fresh.clear()
        group = self._group_of[agent]
        following = self._next_group.get(group)
        if following is not None and acts[list(group)].all():
            self._look_all(following)  # the last group's actions are sent by `end_turn`

    def end_turn(self) -> TurnResult:
        self._ask(END)
        noted = self._shared["noted"].tolist()
        if noted != self._noted:
            self._noted = noted
            for notes in self._shared["notes"]:
                text = bytes(notes).rstrip(b"\0").decode(errors="ignore")
                self.notes = json.loads(text or "{}") | self.notes
        return self._result

    def options(self) -> dict[str, Any]:
        return dict(self._options)

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the workers; empty once they have ended."""
        return [pid for process in self._processes if (pid := process.pid) is not None]

    def close(self) -> None:
        """Ask the workers to end, and kill those that do not."""
        if not self._processes:
            return
        self._requests += 1
        for i, wakeup in enumerate(self._wakeups):
            self._shared["todo"][i, STOP] = True
            store(self._words, 3 * i + REQUESTED, self._requests)
            wakeup.ring()
        self._join()
        self._release()

    def _release(self) -> None:
        """Kill the living workers, and release everything; a second call is harmless."""
        for process in self._processes:
            process.kill()
        self._join()
        for process in self._processes:
            process.close()
        self._processes = []
        self._lifeline.close()

    def _join(self) -> None:
        limit = time.monotonic() + ENDING
        for process in self._processes:
            process.join(max(limit - time.monotonic(), 0.0))

    def _look(self, agent: int) -> None:
        if agent not in self._fresh:
            self._look_all(self._group_of[agent])

    def _look_all(self, group: tuple[int, ...]) -> None:
        self._shared["observes"][list(group)] = True
        self._ask()
        self._fresh.update(group)

    def _ask(self, *what: int) -> None:
        """Let all workers serve a request, and wait for them."""
        if not self._processes:
            raise RemudaError("the workers of the environment (env.workers) have ended")
        todo = self._shared["todo"]
        todo[:, BEGIN] = self._begins
        for request in what:
            todo[:, request] = True
        self._requests += 1
        for i, wakeup in enumerate(self._wakeups):
            store(self._words, 3 * i + REQUESTED, self._requests)
            wakeup.ring()
        self._await()
        todo[:] = False
        self._shared["acts"][:] = self._shared["observes"][:] = False
        self._begins = False
        self._fresh.clear()

    def _await(self) -> None:
        """Sleep until every worker has answered; kill all and raise a RemudaError if one fails."""

        def all_done() -> bool:
            return not any(map(self._owes, range(len(self._wakeups))))

        waited = False
        while not self._wakeup.wait(all_done, GLANCE):
            waited = True
            for i, process in enumerate(self._processes):
                self._look_at(i, process)
        for i in range(len(self._wakeups)):
            self._look_for_failure(i)
            if waited and self._status is not None:
                self._status.set_waiting(i, None)
        if self._status is not None:
            self._status.count_answer()

    def _look_at(self, worker: int, process: Process) -> None:
        """Check on a worker, and report to the supervisor whether the actor waits for it."""
        code = process.exitcode  # read first, because a worker writes its message before it ends
        self._look_for_failure(worker)
        if self._status is not None:
            waiting = self._owes(worker) and code is None
            self._status.set_waiting(worker, process.pid if waiting else None)
        if code is None:
            return
        if code == UNGUARDED:
            self._release()
            raise UnguardedScriptError(script_name())
        if process.was_lost and self._lost[worker] < ATTEMPTS:
            self._lost[worker] += 1
            process.close()
            self._processes[worker] = self._spawn(self._shares[worker])
            return
        why = process.failure and f"could not be started: {process.failure}"
        self._fail(worker, why or f"ended with exit code {code}")

    def _owes(self, worker: int) -> bool:
        return load(self._words, 3 * worker + DONE) != self._requests

    def _look_for_failure(self, worker: int) -> None:
        failed = self._shared["words"][worker, FAILED]
        if self._owes(worker) or not failed:
            return
        message = bytes(self._shared["message"][worker]).rstrip(b"\0").decode(errors="ignore")
        if failed != OF_THE_USER:
            self._fail(worker, message)
        self._release()
        raise UserCodeError(f"{message}; in worker {worker} of the environment (env.workers)")

    def _fail(self, worker: int, what: str) -> NoReturn:
        self._release()
        raise RemudaError(f"worker {worker} of the environment (env.workers): {what}")

    def _layout(self, workers: int) -> dict[str, tuple[tuple[int, ...], Any]]:
        num_envs, num_agents = self.num_envs, len(self.agents)
        each = (num_envs, num_agents)
        layout: dict[str, tuple[tuple[int, ...], Any]] = {
            "words": ((workers, 3), np.int64),
            "todo": ((workers, 4), np.bool_),
            "message": ((workers, MESSAGE), np.uint8),
            "notes": ((workers, MESSAGE), np.uint8),
            "noted": ((workers,), np.int64),
            "options": ((SIZE if self.changeable_options else 0,), np.uint8),
            # counts the calls of `set_option`, and for each worker the calls that it has seen
            "option_changes": ((1,), np.int64),
            "options_seen": ((workers,), np.int64),
            "seeds": ((num_envs,), np.int64),
            "mask": ((num_envs,), np.bool_),
            "acts": ((num_agents,), np.bool_),
            "observes": ((num_agents,), np.bool_),
            "active": (each, np.bool_),
            "rewards": (each, np.float32),
            "terminated": (each, np.bool_),
            "truncated": (each, np.bool_),
            "episode_metrics": ((len(self.episode_metrics), num_envs), np.float64),
        }
        for i, spec in enumerate(self.agents):
            observed, acts = spec.observation_space, spec.action_space
            layout[f"observations {i}"] = ((num_envs, *(observed.shape or ())), observed.dtype)
            layout[f"actions {i}"] = ((num_envs, *(acts.shape or ())), acts.dtype or np.int64)
            if spec.masked:
                layout[f"mask {i}"] = ((num_envs, possibilities(spec)), np.bool_)
        return layout

    def _spawn(self, share: Share) -> Process:
        name = f"env-{share.index}"
        try:
            return forkserver.start(work, (share,), name=name, lifeline=self._lifeline)
        except OSError as error:
            raise RemudaError(
                f"worker {share.index} of the environment (env.workers) could not be started: "
                f"{error.strerror}; lower env.workers"
            ) from None
