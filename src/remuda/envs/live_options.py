"""Environment options that change during a run, and shared memory for the changes."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import Any
from zlib import crc32

import numpy as np

from remuda.envs.description import EnvSpec
from remuda.envs.registry import default_options
from remuda.envs.vector_env import VectorEnv
from remuda.errors import CheckpointError, RemudaError, UsageError
from remuda.system.memory.atomic import fence_acquire, fence_release, load, store
from remuda.system.memory.shared import Arena, SharedArrays
from remuda.system.rng import libraries_kept
from remuda.system.user_errors import where_raised

SIZE = 8192  # bytes of JSON text that the changes of a run may take
LENGTH, CHECKSUM = range(2)  # indices of the words that describe the text
RETRIES, PAUSE = 200, 1e-4  # attempts to read a text that is being written, and seconds between

Change = tuple[int, str, Any]
"""The turn from which a change applies (`run.turns`), the option's name, and its value."""


class LiveEnvOptions:
    """Changes of environment options during a run, in shared memory.

    The coordinator writes them. Actors read them when they reset copies.

    1. A change is read completely or not at all, also if the coordinator dies while it writes:
       `revision` is odd while a text is written, and a checksum covers the text.
    2. An actor that cannot read a new text within 20 ms keeps the old values until its next reset.
    3. Changes outlive actors: a restarted actor applies them before its first reset.
    4. A change is in force from a turn, counted over all copies and actors. In `sequential` and
       `lockstep`, a change that is written before that turn is in force from exactly that turn.
    5. Changes are part of a checkpoint, including those that are not in force yet.
    """

    def __init__(self, env: EnvSpec, arena: Arena | None = None) -> None:
        """Start without changes."""
        self.env = env
        size = SIZE // 8 if env.changeable_options else 0
        fields = {"text": ((size,), np.int64), "frame": ((2,), np.int64)}
        self._shared = SharedArrays({**fields, "revision": ((1,), np.int64)}, arena)

    @property
    def words(self) -> SharedArrays:
        """The arrays `text`, `frame`, and `revision`, which is written last."""
        return self._shared

    def changes(self) -> list[Change]:
        """Return all changes by turn; called by the coordinator, which writes them."""
        return self._decoded() or []

    def in_force(self, turns: int) -> dict[str, Any]:
        """Return the changed options with their values after this number of turns."""
        return {name: value for turn, name, value in self.changes() if turn <= turns}

    def values(self, turns: int) -> dict[str, Any]:
        """Return all changeable options with their values after these turns.

        None: the value is not known, or is no plain data.
        """
        known = {**default_options(self.env.game), **self.env.options, **self.env.in_force}
        known |= self.in_force(turns)
        found: dict[str, Any] = {}
        for name in self.env.changeable_options:
            try:
                found[name] = _plain(name, known.get(name))
            except UsageError:  # such as an enum, which only the environment's code can make
                found[name] = None
        return found

    def change(self, name: str, value: Any, turn: int, played: int) -> None:
        """Change an option from a turn, or from now on if more turns are `played`.

        Changes that no later turn needs are forgotten.
        """
        turn = max(turn, played)
        changes = [each for each in self.changes() if each[:2] != (turn, name)]
        changes = sorted([*changes, (turn, name, value)], key=lambda each: each[0])
        last = {name: turn for turn, name, _ in changes if turn <= played}
        self._write([each for each in changes if each[0] >= last.get(each[1], 0)])

    def read(self, since: int) -> tuple[int, list[Change]] | None:
        """Return the revision and all changes by turn; None if unchanged or being written."""
        for attempt in range(RETRIES):
            revision = load(self._shared["revision"], 0)
            if revision == since:
                return None
            if revision % 2 == 0:
                found = self._decoded()
                fence_acquire()
                if found is not None and load(self._shared["revision"], 0) == revision:
                    return revision, found
            if attempt < RETRIES - 1:
                time.sleep(PAUSE)
        return None

    def state(self) -> str:
        """Return all changes as JSON text, for a checkpoint."""
        return json.dumps(self.changes())

    def restore(self, state: object) -> None:
        """Restore what `state` returned.

        Raises:
            CheckpointError: the text is damaged, or the environment declares other options now.
        """
        changes = changes_of(state)
        for _, name, _ in changes:
            if name not in self.env.changeable_options:
                raise CheckpointError(
                    f"the run changed the environment option {name}, and {self.env.game} does not "
                    f"declare it any more; it declares {self._declared()}"
                )
        if changes:
            self._write(changes)

    def check(self, name: object, value: object, turns: int) -> Any:
        """Try a value in a separate environment; return it as plain data.

        Raises:
            UsageError: the option is not declared, the value is not plain data, or the environment
                refuses it.
        """
        if name not in self.env.changeable_options:
            raise UsageError(
                f"{self.env.game} declares no option {name!r} that may change during a run; "
                f"changeable_options are {self._declared()}"
            )
        plain = _plain(str(name), value)
        tried = self.env.with_changed({**self.in_force(turns), str(name): plain})
        try:
            with libraries_kept(), closing(tried.make(1)) as env:
                env.reset(np.zeros(1, np.int64), np.ones(1, np.bool_))
        except Exception as error:  # the user's environment may raise anything
            line = " ".join(str(error).split())
            if not isinstance(error, RemudaError):
                line = where_raised(error) or f"{type(error).__name__}: {line}"
            raise UsageError(
                f"{self.env.game} refuses the option {name} = {plain!r}: {line}"
            ) from error
        return plain

    def _declared(self) -> str:
        return ", ".join(self.env.changeable_options) or "none"

    def _write(self, changes: list[Change]) -> None:
        text = json.dumps(changes).encode()
        if len(text) > SIZE:
            raise UsageError(
                f"the changes of environment options take {len(text):,} bytes as JSON, and at most "
                f"{SIZE:,} fit; change fewer options ahead of time, or pass smaller values"
            )
        words, frame = self._shared["revision"], self._shared["frame"]
        revision = load(words, 0)
        store(words, 0, revision + 1)
        fence_release()
        self._shared["text"].view(np.uint8)[: len(text)] = np.frombuffer(text, np.uint8)
        frame[LENGTH], frame[CHECKSUM] = len(text), crc32(text)
        store(words, 0, revision + 2)

    def _decoded(self) -> list[Change] | None:
        """Return the changes in the text; None if it is incomplete."""
        length, checksum = self._shared["frame"].tolist()
        text = bytes(self._shared["text"].view(np.uint8)[:length])
        if len(text) != length or crc32(text) != checksum:
            return None
        return [(turn, name, value) for turn, name, value in json.loads(text or b"[]")]


def changes_of(state: object) -> list[Change]:
    """Return the changes in a state of `LiveEnvOptions`; raise CheckpointError if it is damaged."""
    try:
        changes = [(turn, name, value) for turn, name, value in json.loads(str(state))]
        if all(type(turn) is int and type(name) is str for turn, name, _ in changes):
            return changes
    except (TypeError, ValueError, RecursionError):
        pass
    raise CheckpointError("the changes of environment options in the checkpoint are damaged")


def in_force(state: object, turns: int) -> dict[str, Any]:
    """Return the options in force after these turns, from a state of `LiveEnvOptions`."""
    return {name: value for turn, name, value in changes_of(state) if turn <= turns}


def _plain(name: str, value: object) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    try:
        text = json.dumps(plain, allow_nan=False)
        if json.loads(text) == plain:
            return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        pass
    raise UsageError(
        f"the option {name} must be plain data (a finite number, text, bool, None, or lists and "
        f"dictionaries of these); this is {str(value)[:40]!r}"
    )


class OptionSetter:
    """The changed options of one actor's environment."""

    def __init__(self, options: LiveEnvOptions, env: VectorEnv) -> None:
        self._options, self._env = options, env
        self._revision = 0
        self._ahead: list[Change] = []
        self.values: dict[str, Any] = {}  # the changed options of episodes that start now

    def restart(self) -> None:
        """Set all options again when they are next due, after the environment was restored."""
        self._revision = 0

    def set_due(self, turns: int) -> None:
        """Set the options that are in force after these turns; called before each reset."""
        found = self._options.read(self._revision)
        if found is not None:
            self._revision, self._ahead = found
        while self._ahead and self._ahead[0][0] <= turns:
            _, name, value = self._ahead.pop(0)
            self._env.set_option(name, value)
            self.values[name] = value
