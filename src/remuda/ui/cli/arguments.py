"""Command-line options: each field of a settings tree, a `Section`, is a dotted flag."""

from __future__ import annotations

import os
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError

from remuda.config import (
    Each,
    Section,
    explain,
    fields_of,
    overlay,
    read_yaml,
    unknown_key,
)
from remuda.errors import ConfigError

NONE = ("None", "none")
SWITCHES = {"", *("true", "false", "yes", "no", "on", "off", "none", "null"), *"10tfyn"}
Tree = dict[str, Any]
S = TypeVar("S", bound=Section)


class _Flag(NamedTuple):
    """A flag with all words up to the next flag; the last words may be positional arguments."""

    key: str  # the flag's dotted key
    kind: Any  # the type of the key's field; `Any`: every value is allowed
    is_known: bool
    words: list[str]
    has_equals: bool

    @property
    def size(self) -> int:
        """The number of words of the flag's value: one, or all for a list or pairs."""
        if self.has_equals or not self.words:
            return len(self.words[:1])
        if is_tuple(self.kind) or (takes_pairs(self.kind) and not _is_yaml(self.words[0])):
            return len(self.words)
        return 0 if is_switch(self.kind) and self.words[0].lower() not in SWITCHES else 1


def validate(tree: Mapping[str, Any], model: type[S]) -> S:
    """Build a section from a tree; a `ConfigError` names the first unknown key or invalid value."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(explain(error, model)) from None


def parse_flags(words: Sequence[str], model: type[Section], positional: str) -> Tree:
    """Return a tree from words such as `--policy.network.hidden 64 64 --seed=3`.

    Words before the first flag, and words after a complete value, belong to the field
    `positional`: one word, or any number if the field is a tuple.
    """
    tree: Tree = {}
    free, flags = _split(words, model)
    lists: set[str] = set()
    for flag in flags:
        key, kind, value = flag.key, flag.kind, flag.words[: flag.size]
        rest = flag.words[flag.size :]
        if flag.has_equals and rest and type(_read_yaml(rest[0])) in (int, float):
            both = f"; for several write --{key} {' '.join(flag.words)}" if is_tuple(kind) else ""
            raise ConfigError(
                f"unexpected {rest[0]!r}: --{key}= ends with its value, {value[0]}{both}"
            )
        free += rest
        if not flag.is_known:
            keys = fields_of(model)
            if keys.get(key) is None:
                raise ConfigError(unknown_key(key, model, "--"))
            example = next(each for each in keys if each.startswith(f"{key}."))
            raise ConfigError(f"--{key} is a section; name one of its keys, as in --{example}")
        if not value and is_switch(kind):
            value = ["true"]
        if takes_pairs(kind) and not (value and _is_yaml(value[0])):
            leaf: Any = _pairs(key, value)
        elif value or is_tuple(kind):
            leaf = value_of(value, kind)
        else:
            raise ConfigError(f"--{key} needs a value")
        if leaf and isinstance(leaf, list) and takes_texts(kind):
            if key in lists:
                raise ConfigError(
                    f"--{key} is set twice; write all values after one flag: --{key} A B"
                )
            lists.add(key)
        for part in reversed(key.split(".")):
            leaf = {part: leaf}
        tree = overlay(tree, leaf)
    return tree | _positional(free, positional, model, tree)


def _split(words: Sequence[str], model: type[Section]) -> tuple[list[str], list[_Flag]]:
    free: list[str] = []
    flags: list[_Flag] = []
    for word in words:
        if word == "--json":
            flags.append(_flag("format", ["json"], False, model))
        elif word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            flags.append(_flag(name, [value] if equals else [], bool(equals), model))
        else:
            (flags[-1].words if flags else free).append(word)
    return free, flags


def _flag(name: str, words: list[str], has_equals: bool, model: type[Section]) -> _Flag:
    """Find the field of a flag; `-` means `_`, except in names that the user chose."""
    kind: Any = model
    is_open, is_known, parts = False, True, []
    for part in name.split("."):
        is_mapping = get_origin(kind) is dict
        parts.append(
            part if is_mapping and get_args(kind)[1] is not Any else part.replace("-", "_")
        )
        is_open = is_open or is_mapping
        info = kind.model_fields.get(parts[-1]) if _is_section(kind) else None
        if info is not None:
            each = next((mark for mark in info.metadata if isinstance(mark, Each)), None)
            kind = info.annotation if each is None else dict[str, each.section]  # type: ignore[name-defined]
        else:
            is_known = is_known and is_open
            kind = get_args(kind)[1] if is_mapping else Any
    is_known = is_known and (is_open or not _is_section(kind))
    return _Flag(".".join(parts), kind, is_known, words, has_equals)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def _pairs(key: str, words: Sequence[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    wrong = [word for word, parts in zip(words, pairs, strict=True) if not all(parts)]
    if wrong or not pairs:
        found = f" {wrong[0]}: it" if wrong else ""
        raise ConfigError(f"--{key}{found} needs AGENT=POLICY, as in --{key} agent_0=random")
    return {name: value for name, _, value in pairs}


def flags_with_several(
    words: Sequence[str], model: type[Section]
) -> Iterator[tuple[str, list[str]]]:
    """Yield each flag with several words; the last word may be meant as a positional argument."""
    for flag in _split(words, model)[1]:
        if flag.size > 1:
            yield flag.key, flag.words


def _positional(words: Sequence[str], name: str, model: type[Section], tree: Tree) -> Tree:
    if not words:
        return {}
    kind = model.model_fields[name].annotation
    if name in tree:
        once = f"once, as in --{name} A B" if is_tuple(kind) else "only once"
        raise ConfigError(f"{name} is set twice, as {words[0]!r} and by --{name}; set it {once}")
    if is_tuple(kind):
        return {name: [value for word in words for value in value_of([word], kind)]}
    if len(words) == 1:
        return {name: value_of([words[0]], kind)}
    raise ConfigError(
        f"unexpected {words[1]!r}; options are --NAME VALUE, lists --NAME [A,B]; see --help"
    )


def is_tuple(kind: Any) -> bool:
    """Return whether a field of this type takes any number of words."""
    return get_origin(kind) is tuple


def is_switch(kind: Any) -> bool:
    """Return whether a field of this type is a boolean, so that its flag needs no value."""
    choices = set(_choices(kind))
    return bool in choices and choices <= {bool, types.NoneType}


def takes_pairs(kind: Any) -> bool:
    """Return whether this type maps strings to strings, as in `--seat agent_0=random`."""
    return get_origin(kind) is dict and get_args(kind) == (str, str)


def takes_texts(kind: Any) -> bool:
    """Return whether a field of this type may hold several strings or paths."""
    inside = [
        each for one in _choices(kind) if is_tuple(one) for each in _choices(get_args(one)[0])
    ]
    return bool(inside) and not any(each in (int, float) or is_tuple(each) for each in inside)


def _is_yaml(word: str) -> bool:
    return word[:1] + word[-1:] in ("[]", "{}")


def value_of(words: list[str], kind: Any) -> Any:
    """Parse words as a value of type `kind`; only a tuple may have no words."""
    choices = _choices(kind)
    tuples = [one for one in choices if is_tuple(one)]
    if tuples and len(words) == 1 and words[0].startswith("["):
        listed = _read_yaml(words[0], as_texts=takes_texts(kind))
        if isinstance(listed, list):
            is_nested = any(is_tuple(one) for one in _choices(get_args(tuples[0])[0]))
            is_one = is_nested and not all(isinstance(one, list) for one in listed)
            return [listed] if is_one else listed
    if is_tuple(kind):
        return [_value_of_word(word, get_args(kind)[0]) for word in words]
    value = _value_of_word(words[0], kind)
    return [words[0]] if tuples and type(value) not in (int, float, types.NoneType) else value


def _value_of_word(word: str, kind: Any) -> Any:
    choices = _choices(kind)
    if word in [value for one in choices for value in get_args(one) if get_origin(one) is Literal]:
        return word
    if word in NONE and (types.NoneType in choices or str not in choices):
        return None
    if Path in choices:
        return os.path.expanduser(word)
    value = _read_yaml(word)
    may_be_number = type(value) in (int, float) and {int, float} & set(choices)
    return word if str in choices and not may_be_number else value


def _choices(kind: Any) -> list[Any]:
    """Return the members of a union, without constraints."""
    if get_origin(kind) is Annotated:
        return _choices(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return [one for part in get_args(kind) for one in _choices(part)]
    return [kind]


def _read_yaml(word: str, as_texts: bool = False) -> Any:
    """Read a word as YAML; invalid YAML stays a string. `as_texts`: all scalars stay strings."""
    import yaml

    try:
        return yaml.load(word, Loader=yaml.BaseLoader) if as_texts else read_yaml(word)
    except (yaml.YAMLError, ValueError):  # `ValueError`: numbers of thousands of digits
        return word
