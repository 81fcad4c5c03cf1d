"""Convert words of the command line to what a field holds: a text stays as it was written."""

from __future__ import annotations

import os
import types
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from remuda.config import read_yaml

NONE = ("None", "none")
TRUTH = "true false yes no on off 1 0 t f y n none null"
SWITCHES = {*TRUTH.split(" "), ""}
"""Words that may follow a boolean flag: those that pydantic reads, and those that it refuses."""
SINGLE = (bool, int, float, str, Path, types.NoneType)
"""Types whose value is one word."""


def is_tuple(kind: Any) -> bool:
    """Return whether a field of this type takes any number of words."""
    return get_origin(kind) is tuple


def is_switch(kind: Any) -> bool:
    """Return whether a field of this type is a boolean, so that its flag needs no value."""
    choices = set(_choices(kind))
    return bool in choices and choices <= {bool, types.NoneType}


def takes_pairs(kind: Any) -> bool:
    """Return whether a field of this type maps texts to texts, as in `--seat agent_0=random`."""
    return get_origin(kind) is dict and get_args(kind) == (str, str)


def count_words(words: list[str], kind: Any) -> int:
    """Return how many of the words behind a flag are its value.

    A number, text or path is one word; a boolean is none if the first word is no boolean. Of lists
    and mappings in YAML all that follow each other count. Where several texts or a number are
    allowed, a single number counts alone. Otherwise all words count.
    """
    choices = _choices(kind)
    if not words:
        return 0
    if any(one not in SINGLE and get_origin(one) is not Literal for one in choices):
        if takes_texts(kind):
            is_alone = is_number(words[0]) and not (words[1:] and is_number(words[1]))
            return 1 if is_alone and {int, float} & set(choices) else len(words)
        return len(list(takewhile(is_yaml, words))) or len(words)
    if is_switch(kind) and words[0].lower() not in SWITCHES:
        return 0
    return 1


def takes_texts(kind: Any, or_paths: bool = False) -> bool:
    """Return whether a field of this type may hold several texts (or several paths)."""
    several = [one for one in _choices(kind) if is_tuple(one)]
    return bool(several) and all(
        _is_text(one) or (or_paths and one is Path) for one in _choices(get_args(several[0])[0])
    )


def is_number(word: str) -> bool:
    """Return whether YAML reads a word as a number."""
    return type(_read_yaml(word)) in (int, float)


def is_yaml(word: str) -> bool:
    """Return whether a word is a list or a mapping in YAML."""
    return word[:1] + word[-1:] in ("[]", "{}")


def value_of(words: list[str], kind: Any) -> Any:
    """Return the value that words mean for a field of type `kind`; only a tuple may have none."""
    choices = _choices(kind)
    tuples = [one for one in choices if is_tuple(one)]
    if tuples and len(words) == 1 and words[0].startswith("["):
        listed = _read_yaml(words[0], as_texts=takes_texts(kind))
        if isinstance(listed, list):
            is_nested = any(is_tuple(one) for one in _choices(get_args(tuples[0])[0]))
            is_one = is_nested and not all(isinstance(one, list) for one in listed)
            return [listed] if is_one else listed
    if is_tuple(kind) or len(words) > 1:
        each = get_args(tuples[0])[0] if tuples else Any
        return [_value_of_word(word, each) for word in words]
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
    """Return the members of a union, without what restricts their values."""
    if get_origin(kind) is Annotated:
        return _choices(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return [one for part in get_args(kind) for one in _choices(part)]
    return [kind]


def _is_text(kind: Any) -> bool:
    is_name = get_origin(kind) is Literal and all(isinstance(x, str) for x in get_args(kind))
    return kind is str or is_name


def _read_yaml(word: str, as_texts: bool = False) -> Any:
    """Read a word as YAML; what is no YAML stays a text, and `as_texts` all that is in a list."""
    import yaml

    try:
        return yaml.load(word, Loader=yaml.BaseLoader) if as_texts else read_yaml(word)
    except (yaml.YAMLError, ValueError):  # also numbers of thousands of digits
        return word
