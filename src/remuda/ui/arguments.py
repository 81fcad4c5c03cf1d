"""Command-line options: any field of a tree of settings as a dotted flag.

The flags, their help and their defaults come from the fields of a `Section`.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

from pydantic import ValidationError

from remuda.config import Each, Section, explain, fields_of, overlay, unknown_key
from remuda.errors import ConfigError
from remuda.ui.flag_values import (
    count_words,
    is_number,
    is_switch,
    is_tuple,
    is_yaml,
    takes_pairs,
    takes_texts,
    value_of,
)

Tree = dict[str, Any]
S = TypeVar("S", bound=Section)


class _Flag(NamedTuple):
    """A flag with all words up to the next flag, of which the last may not belong to it."""

    key: str
    """The dotted key that it names."""
    kind: Any
    """The type of that field; `Any`: every value is allowed."""
    is_known: bool
    words: list[str]
    has_equals: bool


def read_options(words: Sequence[str], model: type[S], positional: str = "") -> S:
    """Parse and validate the options of a command; a `ConfigError` has one line."""
    return validate(parse_flags(words, model, positional), model)


def validate(tree: Mapping[str, Any], model: type[S]) -> S:
    """Make a section of a tree; a `ConfigError` names the first unknown key or refused value."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(explain(error, model)) from None


def parse_flags(words: Sequence[str], model: type[Section], positional: str = "") -> Tree:
    """Return a tree from words such as `--policy.network.hidden 64 64 --seed=3`.

    Words before the first flag, and words behind a complete value, belong to the field
    `positional`: one word, or any number if the field is a tuple.

    Raises:
        ConfigError: a flag is unknown, repeated or without a value, or a word is left over.
    """
    tree: Tree = {}
    free, flags = _split(words, model)
    lists: set[str] = set()
    for flag in flags:
        key, kind = flag.key, flag.kind
        if not flag.is_known:
            raise ConfigError(_unknown(key, model))
        if takes_pairs(kind) and not (flag.words and is_yaml(flag.words[0])):
            leaf: Any = _pairs(flag)
        else:
            value, behind = _value_words(flag)
            free += behind
            leaf = value_of(value, kind)
        if isinstance(leaf, list) and leaf and takes_texts(kind, or_paths=True):
            if key in lists:
                raise ConfigError(f"--{key} is given twice; write all behind one: --{key} A B")
            lists.add(key)
        for part in reversed(key.split(".")):
            leaf = {part: leaf}
        tree = overlay(tree, leaf)
    return tree | _positional(free, positional, model, tree)


def _split(words: Sequence[str], model: type[Section]) -> tuple[list[str], list[_Flag]]:
    """Return the words before the first flag, and the flags."""
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
    """Find the field that a flag names.

    `-` means `_`, except in names that the user chose, such as a policy's: the keys of mappings,
    unless these hold keyword arguments of any type.
    """
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


def _unknown(key: str, model: type[Section]) -> str:
    keys = fields_of(model)
    if keys.get(key) is None:
        return unknown_key(key, model, "--")
    example = next(each for each in keys if each.startswith(f"{key}."))
    return f"--{key} is a section; name one of its keys, as in --{example}"


def _value_words(flag: _Flag) -> tuple[list[str], list[str]]:
    """Return the words that are a flag's value, and those behind it."""
    count = count_words(flag.words, flag.kind)
    if flag.has_equals:
        if count > 1 and is_number(flag.words[1]):
            raise ConfigError(
                f"what is {flag.words[1]!r} for? --{flag.key}= ends with what it says; write "
                f"--{flag.key} {' '.join(flag.words)}"
            )
        count = 1
    value = flag.words[:count] or (["true"] if is_switch(flag.kind) else [])
    if not value and not is_tuple(flag.kind):
        raise ConfigError(f"--{flag.key} needs a value")
    return value, flag.words[count:]


def _pairs(flag: _Flag) -> dict[str, str]:
    """Return the mapping that words such as `agent_0=me agent_1=random` describe."""
    found = {}
    for word in flag.words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise ConfigError(
                f"--{flag.key} {word}: it needs AGENT=POLICY, as in --{flag.key} agent_0=random"
            )
        found[name] = value
    if not found:
        raise ConfigError(f"--{flag.key} needs AGENT=POLICY, as in --{flag.key} agent_0=random")
    return found


def flags_with_several(
    words: Sequence[str], model: type[Section]
) -> Iterator[tuple[str, list[str]]]:
    """Yield each flag that takes several words, of which the last may not be meant for it."""
    for flag in _split(words, model)[1]:
        count = len(flag.words)
        if count > 1 and not flag.has_equals and count_words(flag.words, flag.kind) == count:
            yield flag.key, flag.words


def _positional(words: Sequence[str], name: str, model: type[Section], tree: Tree) -> Tree:
    if not words:
        return {}
    kind = model.model_fields[name].annotation if name else None
    if name in tree:
        once = f"as in --{name} A B" if is_tuple(kind) else "as one of the two"
        raise ConfigError(
            f"{name} is given twice, as {words[0]!r} and by --{name}; give it once, {once}"
        )
    if name and is_tuple(kind):
        return {name: [value for word in words for value in value_of([word], kind)]}
    if name and len(words) == 1:
        return {name: value_of([words[0]], kind)}
    raise ConfigError(
        f"what is {words[1 if name else 0]!r} for? Options are --NAME VALUE; see --help"
    )


def take_option(words: Sequence[str], option: str, needs: str) -> tuple[list[str], str]:
    """Return the words without `option` and its value, and that value (empty: it is not there)."""
    words, values = take_options(words, option, needs)
    if len(values) > 1:
        raise ConfigError(f"{option} is given {len(values)} times; give it once")
    return words, "".join(values)


def take_options(words: Sequence[str], option: str, needs: str) -> tuple[list[str], list[str]]:
    """Return the words without each `option` and its value, and these values."""
    left, values = [], []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name != option:
            left.append(word)
            continue
        if not equals:
            value = next(rest, "")
        if not value:
            raise ConfigError(f"{option} needs {needs}")
        values.append(os.path.expanduser(value))
    return left, values


def help_of(model: type[Section], program: str, positional: str = "") -> str:
    """Return the help of a command: every flag with its type, default and docstring."""
    import tyro

    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        tyro.cli(model, prog=program, args=["--help"], config=(tyro.conf.FlagConversionOff,))
    _, summary, rest = text.getvalue().rstrip().split("\n\n", 2)
    summary, usage = " ".join(summary.split()), program
    if positional:
        field = model.model_fields[positional]
        word = positional.upper() + (" ..." if is_tuple(field.annotation) else "")
        usage += f" {word if field.is_required() else f'[{word}]'} [OPTIONS]"
        summary += (
            f" {positional.upper()} is --{positional}, which needs no name where it comes first, "
            "or behind the value of an option that takes one."
        )
    return f"usage: {usage}\n\n{wrapped(summary)}\n\n{rest}"


def wrapped(text: str, indent: str = "") -> str:
    """Wrap paragraphs to the terminal's width; `indent` is before each line but the first."""
    width = shutil.get_terminal_size().columns
    parts = text.split("\n\n")
    return "\n\n".join(textwrap.fill(part, width, subsequent_indent=indent) for part in parts)
