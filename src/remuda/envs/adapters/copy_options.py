"""Options of single environments that a run may change, passed to each copy before its reset.

A Gymnasium or PettingZoo environment declares their names in `changeable_options`, and takes a
value in its method `set_option(name, value)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda.envs.vector_env import option_names
from remuda.errors import ContractError

DECLARED = "changeable_options"


class CopyOptions:
    """The changed options of an adapter's copies; each copy gets them before its next reset."""

    def __init__(self, copies: Sequence[Any]) -> None:
        owner = _owner(copies[0])
        self.declared: tuple[str, ...] = ()
        if owner is not None:
            self.declared = option_names(getattr(owner, DECLARED), type(owner).__name__)
        if self.declared and not callable(getattr(owner, "set_option", None)):
            raise ContractError(
                f"{type(owner).__name__} declares {DECLARED}, but has no method "
                "set_option(name, value)"
            )
        self._values: dict[str, Any] = {}
        self._waiting: list[dict[str, Any]] = [{} for _ in copies]

    def change(self, name: str, value: Any) -> None:
        """Keep a value for all copies."""
        if name not in self.declared:
            raise NotImplementedError(f"the environment declares no option {name}")
        self._values[name] = value
        for waiting in self._waiting:
            waiting[name] = value

    def replaced(self, copy: int) -> None:
        """Pass all changed options to this copy again: another environment took its place."""
        self._waiting[copy] = dict(self._values)

    def apply(self, copy: int, env: Any) -> None:
        """Pass the values that a copy has not got to its environment, which resets next."""
        waiting = self._waiting[copy]
        if not waiting:
            return
        self._waiting[copy] = {}
        owner = _owner(env)
        for name, value in waiting.items():
            owner.set_option(name, value)


def _owner(env: Any) -> Any:
    """Return the outermost layer of wrappers that declares options; None if none does."""
    while not hasattr(env, DECLARED):
        if "env" not in getattr(env, "__dict__", {}):
            return None
        env = env.env
    return env
