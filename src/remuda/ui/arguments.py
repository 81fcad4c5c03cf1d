"""From words on the command line to validated data: any field of a tree as a dotted flag.

The flags, their help and their defaults all come from the fields of a `Section`; nothing about an
option is written twice. Everything that is wrong with them is told in one line.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from pydantic import ValidationError

from remuda.config import Section, explain, fields_of, overlay, unknown_key
from remuda.errors import ConfigError
from remuda.ui.words import (
    is_number,
    is_switch,
    is_tuple,
    key_of,
    lists_texts,
    type_of,
    value_of,
    words_of,
)

Tree = dict[str, Any]
S = TypeVar("S", bound=Section)


SHORT = {"--json": ("--format", "json")}
"""Flags that are short for others."""


def parse_flags(words: Sequence[str], model: type[Section], positional: str = "") -> Tree:
    """A tree from words such as `--policy.network.hidden 64 64 --seed=3`.

    Args:
        words: the command line after the command.
        model: the section whose fields are the flags; `-` and `_` are the same in their names, but
            not in names that a user gave, such as a policy's.
        positional: the field that takes the words that are no flag's: those before the first flag
            and behind the value of one that takes a single word, as `--NAME=VALUE` does. It is one
            word, or where the field is a tuple any number.

    Raises:
        ConfigError: an unknown flag, one without a value, one of several texts that stands twice,
            or a word too many.
    """
    tree: Tree = {}
    own, flags = _parted(words, model)
    keys = fields_of(model)
    several: set[str] = set()
    for name, given, bound in flags:
        section, open_ended = keys.get(name), _open_ended(name, model)
        if (name not in keys or section is not None) and not open_ended:
            raise ConfigError(
                unknown_key(name, model, "--")
                if section is None
                else f"--{name} is a section; name one of its keys, as in "
                f"--{next(key for key in keys if key.startswith(name + '.'))}"
            )
        kind = type_of(name, model)
        used = 1 if bound else words_of(given, kind)
        own += given[used:]
        if bound and given[1:] and words_of(given, kind) > 1 and is_number(given[1]):
            raise ConfigError(
                f"what is {given[1]!r} for? --{name}= ends with what it says; write --{name} "
                f"{' '.join(given)}"
            )
        said = given[:used] or (["true"] if is_switch(kind) else [])
        if not said and not is_tuple(kind):
            raise ConfigError(f"--{name} needs a value")
        leaf = value_of(said, kind)
        if isinstance(leaf, list) and leaf and lists_texts(kind, or_paths=True):
            if name in several:
                raise ConfigError(f"--{name} is given twice; write all behind one: --{name} A B")
            several.add(name)
        for part in reversed(name.split(".")):
            leaf = {part: leaf}
        tree = overlay(tree, leaf)
    return tree | _positional(own, positional, model, tree)


def _parted(
    words: Sequence[str], model: type[Section]
) -> tuple[list[str], list[tuple[str, list[str], bool]]]:
    """The words before the first flag; and each flag, the words behind it, and whether by `=`."""
    own: list[str] = []
    values = own
    flags: list[tuple[str, list[str], bool]] = []
    for word in chain.from_iterable(SHORT.get(each, (each,)) for each in words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            values = [value] if equals else []
            flags.append((key_of(name, model), values, bool(equals)))
        else:
            values.append(word)
    return own, flags


def several_values(words: Sequence[str], model: type[Section]) -> Iterator[tuple[str, list[str]]]:
    """Each flag whose value is several words behind it, the last of which may be no part of it."""
    for name, given, bound in _parted(words, model)[1]:
        if len(given) > 1 and not bound and words_of(given, type_of(name, model)) == len(given):
            yield name, given


def _positional(words: Sequence[str], name: str, model: type[Section], tree: Tree) -> Tree:
    """What words that are no flag's say of the field that takes them.

    Raises:
        ConfigError: there is none, a flag says it too, or there are several and it takes one.
    """
    if not words:
        return {}
    kind = type_of(name, model) if name else None
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
    """The words without `option` and its value, and that value; empty: it is not among them.

    Raises:
        ConfigError: it is there without a value, or more than once.
    """
    words, values = take_options(words, option, needs)
    if len(values) > 1:
        raise ConfigError(f"{option} is given {len(values)} times; give it once")
    return words, "".join(values)


def take_options(words: Sequence[str], option: str, needs: str) -> tuple[list[str], list[str]]:
    """The words without any `option` and its value, and these values, in order.

    Raises:
        ConfigError: it is there without a value.
    """
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


def take_pairs(words: Sequence[str], option: str) -> tuple[list[str], dict[str, str]]:
    """The words without `option` and the `NAME=VALUE` words behind it, and these as a mapping.

    Raises:
        ConfigError: a word behind it is no such pair, or there is none.
    """
    left: list[str] = []
    found: dict[str, str] = {}
    taking = False
    words = [part for word in words for part in _unglued(word, option)]
    for i, word in enumerate(words):
        if word.startswith("--"):
            taking = word == option
            if not taking:
                left.append(word)
            elif i + 1 == len(words) or words[i + 1].startswith("--"):
                raise ConfigError(f"{option} needs AGENT=WHO, as in {option} agent_0=me")
            continue
        name, equals, value = word.partition("=")
        if not taking:
            left.append(word)
        elif not equals or not name or not value:
            raise ConfigError(f"{option} {word}: it needs AGENT=WHO, as in {option} agent_0=me")
        else:
            found[name] = value
    return left, found


def _unglued(word: str, option: str) -> list[str]:
    """`--option=value` as two words; any other as it is."""
    name, equals, value = word.partition("=")
    return [option, value] if name == option and equals else [word]


def validate(tree: Mapping[str, Any], model: type[S]) -> S:
    """A section from a tree.

    Raises:
        ConfigError: the first unknown key or impossible value, in one line.
    """
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(explain(error, model)) from None


def help_of(model: type[Section], program: str, positional: str = "") -> str:
    """The help text of a command: every flag with its type, default and docstring."""
    import tyro

    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        tyro.cli(model, prog=program, args=["--help"], config=(tyro.conf.FlagConversionOff,))
    _, what, rest = text.getvalue().rstrip().split("\n\n", 2)
    words = [program, _argument(positional, model), "[OPTIONS]"] if positional else [program]
    told = f"{' '.join(what.split())}"
    if positional:
        told += (
            f" {positional.upper()} is --{positional}, which needs no name where it comes first, "
            "or behind the value of an option that takes one."
        )
    return f"usage: {' '.join(words)}\n\n{wrapped(told)}\n\n{rest}"


def wrapped(text: str, indent: str = "") -> str:
    """Paragraphs, which blank lines part, in lines that fit the terminal.

    Args:
        text: the paragraphs.
        indent: before each line of one but the first.
    """
    width = shutil.get_terminal_size().columns
    parts = text.split("\n\n")
    return "\n\n".join(textwrap.fill(part, width, subsequent_indent=indent) for part in parts)


def _argument(name: str, model: type[Section]) -> str:
    """How usage has a word that comes before the options."""
    word = f"{name.upper()} ..." if is_tuple(type_of(name, model)) else name.upper()
    return word if model.model_fields[name].is_required() else f"[{word}]"


def _open_ended(name: str, model: type[Section]) -> bool:
    """Whether `name` lies under a field that takes keys of any name."""
    keys = fields_of(model)
    parts = name.split(".")
    parents = [".".join(parts[:i]) for i in range(1, len(parts))]
    return any(_annotation(parent, model) is dict for parent in parents if parent in keys)


def _annotation(name: str, model: type[Section]) -> Any:
    """The type of the field `name`, or the container it is; None if there is no such field."""
    section: Any = model
    for part in name.split("."):
        if not (isinstance(section, type) and issubclass(section, Section)):
            return None
        if part not in section.model_fields:
            return None
        section = section.model_fields[part].annotation
    return getattr(section, "__origin__", section)
