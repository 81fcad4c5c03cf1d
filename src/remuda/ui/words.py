"""A word of the command line as its field holds it: a text stays one, whatever YAML would read."""

from __future__ import annotations

import os
import types
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from remuda.config import Each, Section, read_yaml

NONE = ("None", "none")
SWITCHES = (
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
    "1",
    "0",
    "t",
    "f",
    "y",
    "n",
    "none",
    "null",
    "",
)
"""What may stand behind a flag that is true or false: what says it, and what says nothing."""
SINGLE = (bool, int, float, str, Path, types.NoneType)
"""Types of which a value is one word."""


def type_of(name: str, model: type[Section]) -> Any:
    """The type of what stands at a dotted name; `Any`: it is of any, or there is no such field."""
    kind: Any = model
    for part in name.split("."):
        if isinstance(kind, type) and issubclass(kind, Section):
            info = kind.model_fields.get(part)
            if info is None:
                return Any
            each = next((mark for mark in info.metadata if isinstance(mark, Each)), None)
            kind = info.annotation if each is None else dict[str, each.section]  # type: ignore[name-defined]
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            return Any
    return kind


def key_of(name: str, model: type[Section]) -> str:
    """The key that a flag means, in which `-` is `_`, but in the names of policies and the like.

    Such a name stands in a mapping of sections, texts or tuples. A mapping to values of any type
    holds keywords of Python, which have no `-`.
    """
    parts: list[str] = []
    for part in name.split("."):
        kind = type_of(".".join(parts), model) if parts else model
        is_name = get_origin(kind) is dict and get_args(kind)[1] is not Any
        parts.append(part if is_name else part.replace("-", "_"))
    return ".".join(parts)


def is_tuple(kind: Any) -> bool:
    """Whether a field of this type takes any number of words."""
    return get_origin(kind) is tuple


def is_switch(kind: Any) -> bool:
    """Whether a field of this type is true or false, and may be said without a word."""
    choices = set(_choices(kind))
    return bool in choices and choices <= {bool, types.NoneType}


def words_of(words: list[str], kind: Any) -> int:
    """How many of the words behind a flag are its value, for a field of this type.

    One is, where the field holds a single number, text or path, and of a number instead of texts,
    but where another follows; none, where it is true or false and the first says neither; of whole
    lists and mappings as YAML has them, those that follow each other, but where texts are meant;
    else all are.
    """
    choices = _choices(kind)
    if not words:
        return 0
    if any(one not in SINGLE and get_origin(one) is not Literal for one in choices):
        if lists_texts(kind):
            alone = is_number(words[0]) and not (words[1:] and is_number(words[1]))
            return 1 if alone and {int, float} & set(choices) else len(words)
        return len(list(takewhile(_is_whole, words))) or len(words)
    if is_switch(kind) and words[0].lower() not in SWITCHES:
        return 0
    return 1


def lists_texts(kind: Any, or_paths: bool = False) -> bool:
    """Whether a field of this type may take several texts; or several paths, too."""
    several = [one for one in _choices(kind) if is_tuple(one)]
    return bool(several) and all(
        _is_text(one) or (or_paths and one is Path) for one in _choices(get_args(several[0])[0])
    )


def is_number(word: str) -> bool:
    """Whether a word is a number where it may be one."""
    return type(_plain(word)) in (int, float)


def _is_whole(word: str) -> bool:
    """Whether a word is a list or a mapping by itself."""
    return word[:1] + word[-1:] in ("[]", "{}")


def value_of(words: list[str], kind: Any) -> Any:
    """What a flag with these words is, for a field of this type.

    Args:
        words: one at least, where the field is no tuple.
        kind: the type, as `type_of` tells it.
    """
    choices = _choices(kind)
    tuples = [one for one in choices if is_tuple(one)]
    texts = lists_texts(kind)
    if tuples and len(words) == 1 and words[0].startswith("["):
        listed = _plain(words[0], texts)  # as YAML and JSON write several
        if isinstance(listed, list):
            each = get_args(tuples[0])[0]
            nested = any(is_tuple(one) for one in _choices(each))
            if nested and not all(isinstance(one, list) for one in listed):
                return [listed]  # one of what may be several
            return listed
    if is_tuple(kind) or len(words) > 1:
        each = get_args(tuples[0])[0] if tuples else Any
        return [_one(word, each) for word in words]
    value = _one(words[0], kind)
    return [words[0]] if tuples and type(value) not in (int, float, types.NoneType) else value


def _one(word: str, kind: Any) -> Any:
    choices = _choices(kind)
    if word in [value for one in choices for value in get_args(one) if get_origin(one) is Literal]:
        return word
    if word in NONE and (types.NoneType in choices or str not in choices):
        return None
    if Path in choices:
        return os.path.expanduser(word)
    value = _plain(word)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if str in choices and not (number and {int, float} & set(choices)):
        return word
    return value


def _choices(kind: Any) -> list[Any]:
    """The types that a field's type leaves open, without what restricts their values."""
    if get_origin(kind) is Annotated:
        return _choices(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return [one for part in get_args(kind) for one in _choices(part)]
    return [kind]


def _is_text(kind: Any) -> bool:
    """Whether a value of this type is a text: any, or one of several that are named."""
    return kind is str or (
        get_origin(kind) is Literal and all(isinstance(each, str) for each in get_args(kind))
    )


def _plain(word: str, texts: bool = False) -> Any:
    """A word as YAML would read it, so that `3`, `true` and `[1, 2]` mean what they say.

    Args:
        word: as it was written.
        texts: whether what is in a list are texts, whatever they look like.
    """
    import yaml

    try:
        return yaml.load(word, Loader=yaml.BaseLoader) if texts else read_yaml(word)
    except (yaml.YAMLError, ValueError):  # also numbers of thousands of digits
        return word
