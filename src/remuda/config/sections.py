"""The base of all sections of the configuration, and conditions of their fields."""

from __future__ import annotations

import ast
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import attrgetter, getitem
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from pydantic_core import PydanticCustomError

from remuda.config.algorithm_registry import BUILT_IN, AlgorithmEntry, Takes
from remuda.config.algorithm_registry import Section as AlgorithmSection
from remuda.system.loading import add_code, code_of


def at_most(most: int, why: str) -> AfterValidator:
    """Refuse a larger integer, with the reason."""

    def check(value: int) -> int:
        if value > most:
            raise PydanticCustomError("too_large", f"at most {most:,} is allowed, {why}")
        return value

    return AfterValidator(check)


Share = Annotated[float, Field(ge=0.0, le=1.0)]
Finite = Annotated[PositiveFloat, Field(allow_inf_nan=False)]
"""A finite number above 0."""
MOST = at_most(10**15, "so that sums stay exact")
Count = Annotated[PositiveInt, MOST]
"""A count whose sums fit 64 bits."""
CountOrNone = Annotated[NonNegativeInt, MOST]
"""A `Count`, or 0."""
LARGEST = at_most(2**31 - 1, "since sizes have 32 bits")
Size = Annotated[PositiveInt, LARGEST]
"""The size of an array or network, or a number of processes."""
SizeOrNone = Annotated[NonNegativeInt, LARGEST]
"""A `Size`, or 0."""
WIDEST = at_most(10**8, "since more would not fit in memory in practice")
Width = Annotated[PositiveInt, WIDEST]
"""A number of units, channels, frames or quantiles; a kernel size or a stride."""
WidthOrNone = Annotated[NonNegativeInt, WIDEST]
"""A `Width`, or 0."""


def overlay(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base`, overridden by the leaves of `top`."""
    merged = dict(base)
    for key, value in top.items():
        under = merged.get(key)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        merged[key] = overlay(under, value) if both else value  # type: ignore[arg-type]
    return merged


def by_leaf(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a tree by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        is_deeper = isinstance(value, Mapping)
        found |= by_leaf(value, f"{prefix}{key}.") if is_deeper else {f"{prefix}{key}": value}
    return found


def at_key(tree: Any, key: str, missing: Any = None) -> Any:
    """Return the value at a dotted key of a tree of sections and mappings."""
    for part in key.split("."):
        if isinstance(tree, Mapping):
            tree = tree.get(part, missing)
        else:
            tree = getattr(tree, part, missing)
    return tree


LONGEST_PATH = 4095  # maximum bytes of a path that the system opens


def fault_of_path(text: str) -> str:
    """Return the reason why a text cannot be a path; empty if it can."""
    if not text:
        return "the path is empty; write `.` for the current directory"
    if "\0" in text:
        return "a path cannot contain a NUL byte"
    if len(os.fsencode(text)) > LONGEST_PATH:
        return f"a path cannot have more than {LONGEST_PATH:,} bytes"
    return ""


def _text_of_path(value: object) -> object:
    if not isinstance(value, str | Path):
        return value
    if fault := fault_of_path(str(value)):
        raise PydanticCustomError("path", fault)
    return str(value)


def _expanded(value: object) -> object:
    return os.path.expanduser(value) if isinstance(value, str) else value


PathSetting = Annotated[Path, BeforeValidator(_expanded), BeforeValidator(_text_of_path)]
"""A path, with `~` expanded."""
Reference = Annotated[str, BeforeValidator(_text_of_path)]
"""A path as text, followed by a reference such as `:policy`."""


def _is_truth(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_is_truth, value))
    return isinstance(value, bool)


def _means_numbers(kind: Any) -> bool:
    if kind in (int, float):
        return True
    parts = [_means_numbers(part) for part in get_args(kind)]
    return any(parts) and bool not in get_args(kind) and get_origin(kind) not in (dict, Literal)


class Section(BaseModel):
    """A branch of the tree: frozen, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    NEEDED: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Messages for missing fields without a default."""

    @model_validator(mode="before")
    @classmethod
    def _no_numbers_of_truth(cls, data: Any) -> Any:
        """Refuse booleans for numbers; they would count as 1 and 0."""
        for name, value in data.items() if isinstance(data, Mapping) else ():
            info = cls.model_fields.get(name)
            if info is not None and _is_truth(value) and _means_numbers(info.annotation):
                raise ValueError(f"{name} is {value!r}: give numbers, not true or false")
        return data

    def __getstate__(self) -> dict[Any, Any]:
        """Return the state with the user code that it refers to."""
        return super().__getstate__() | {"code": code_of(self.__dict__)}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        """Register the user code before it is needed."""
        add_code(state["code"])
        super().__setstate__({key: value for key, value in state.items() if key != "code"})


def describe_fields(model: type[Section]) -> None:
    """Give the fields of a section, and of those below, their docstrings as descriptions.

    Only help and reference need them; reading the source of all sections slows every start.
    """
    for kind in model.__mro__:
        if issubclass(kind, Section) and kind is not Section:
            try:
                (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
            except (OSError, TypeError, SyntaxError):  # a user's section without readable source
                continue
            assert isinstance(definition, ast.ClassDef)
            for statement, after in pairwise(definition.body):
                match statement, after:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ) if name in model.model_fields:
                        paragraphs = inspect.cleandoc(text).split("\n\n")
                        joined = "\n\n".join(" ".join(each.split()) for each in paragraphs)
                        field = model.model_fields[name]
                        field.description = field.description or joined
    for field in model.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            describe_fields(field.annotation)


@dataclass(frozen=True)
class Only:
    """The condition under which a field has an effect; see `unused_settings.py`."""

    takes: Takes | None = None  # the data that the policy's algorithm takes; None for any
    section: AlgorithmSection | None = None  # the section of that algorithm; None for any
    when: Callable[[Any], bool] | None = None
    """A test of the policy, or of the whole tree for fields that belong to no policy. If None, the
    settings named in `needs`, before any semicolon, must be set."""
    needs: str = ""
    """The settings that the field needs, for messages: `KEY`, `KEY or KEY`, `KEY VALUE or VALUE`,
    or several of these with a comma between them."""
    instead: str = ""  # keys of a policy that do the same in other algorithms

    def within(self, outer: Only | None) -> Only:
        """Combine the condition of a field with that of its section."""
        if outer is None:
            return self
        takes, section = self.takes or outer.takes, self.section or outer.section
        test = self if self.needs else outer
        return Only(takes, section, test.when, test.needs, self.instead or outer.instead)

    def reads(self, section: Any) -> bool:
        """Return whether the field has an effect in this section."""
        if self._has_algorithm and not self._suits(section.entry):
            return False
        return self.when(section) if self.when is not None else _has(section, self.needs)

    @property
    def _has_algorithm(self) -> bool:
        return self.takes is not None or self.section is not None

    def _suits(self, entry: AlgorithmEntry) -> bool:
        return self.takes in (None, entry.takes) and self.section in (None, entry.section)

    def message(self, entry: AlgorithmEntry | None = None, prefix: str = "") -> str:
        """Explain why the field has no effect, and which settings to use instead.

        `entry` is the policy's algorithm, None for fields that belong to no policy; `prefix`
        precedes the keys of settings in the message.
        """
        if entry is not None and self._has_algorithm and not self._suits(entry):
            strange = {f"{section}." for section in get_args(AlgorithmSection)} - {
                f"{entry.section}."
            }
            use = " and ".join(
                prefix + key
                for key in self.instead.split()
                if not key.startswith(tuple(strange)) and key not in entry.unused
            )
            advice = f"; use {use}" if use else ""
            *others, last = (name for name, other in BUILT_IN.items() if self._suits(other))
            those = f"{', '.join(others)} and {last}" if others else last
            return f"has no effect: it is for {those}, not {entry.name}{advice}"
        return f"has no effect without {self.needs.format(prefix)}"


def _has(section: Any, needs: str) -> bool:
    """Return whether a section has the settings that `Only.needs` lists."""
    for clause in re.split(", and |, ", needs.partition(";")[0].format("")) if needs else ():
        key, *others = clause.replace(" or ", " ").split()
        if others and "." not in others[0]:  # values
            found = attrgetter(key)(section) in others
        else:
            found = any(attrgetter(each)(section) for each in (key, *others))
        if not found:
            return False
    return True


def conditions(
    model: type[BaseModel], prefix: str = "", outer: Only | None = None
) -> Iterator[tuple[str, Only]]:
    """Yield the fields under a section that have a condition; skip the section `policy`."""
    for name, info in model.model_fields.items():
        own = next((part for part in info.metadata if isinstance(part, Only)), None)
        only = own.within(outer) if own is not None else outer
        section = info.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            if name != "policy":  # the conditions there are about one policy
                yield from conditions(section, f"{prefix}{name}.", only)
        elif only is not None:
            yield f"{prefix}{name}", only


def without_idle(
    section: Section, usual: Mapping[str, Any], idle: Iterable[str] = ()
) -> dict[str, Any]:
    """Return a section as plain data, with unused settings reset.

    Settings that have no effect, and those in `idle`, are reset to their values in `usual`.
    """
    tree = section.model_dump(mode="json")
    unread = (key for key, only in conditions(type(section)) if not only.reads(section))
    for key in (*unread, *idle):
        *parents, name = key.split(".")
        reduce(getitem, parents, tree)[name] = reduce(getitem, parents, usual)[name]
    return tree


@dataclass(frozen=True)
class Each:
    """A mark for fields that map names to partial sections, such as `policies`."""

    section: type[Section]
