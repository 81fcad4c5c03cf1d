"""Errors of users, asserted by their class and the keys they name.

Their wording is in one file, `tests/messages.txt`, by test. After a change of wording run the tests
with `--update-messages` and read what changed in that file. Numbers may differ; <tmp>, <repository>
and <packages> are folders of the machine.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "messages.txt"
UPDATES = "REMUDA_TEST_MESSAGES"  # a folder, in which each process writes what it found
PLACES = (
    (
        re.compile(r"[^\s'\"`(]*/pytest-of-[^/\s]+/pytest-\d+(?:/popen-gw\d+)?/[^/\s'\":,;)]+"),
        "<tmp>",
    ),
    (re.compile(re.escape(str(FILE.parents[1]))), "<repository>"),
    (re.compile(r"[^\s'\"`(]*/site-packages"), "<packages>"),
    (re.compile(r"0x[0-9a-f]+"), "0x0"),
    (re.compile(r"-[0-9a-f]{8}\b"), "-<digest>"),
    (re.compile(r"(\.py, line )\d+"), r"\1#"),
    (re.compile(r"called from line \d+"), "called from line #"),
    (re.compile(r"(\w)\1{20,}"), r"\1..."),
    (re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]"), "?"),
)
MOST = 3  # messages of one test
NUMBERS = re.compile(r"[-+]?\d+(?:[.,:e]\s?[-+]?\d+)*")
_counts: dict[str, int] = {}
_known: dict[str, str] = {}


@contextmanager
def refuses(error, *names: str) -> Iterator[pytest.ExceptionInfo]:
    """Expect an error whose message contains all of `names` and is as in `messages.txt`."""
    with pytest.raises(error) as info:
        yield info
    message = str(info.value)
    missing = [name for name in names if name not in message]
    assert not missing, f"{missing} not in: {message}"
    check_message(message)


def check_message(message: str) -> None:
    """Compare a message with the one in the file, or write it down with `--update-messages`."""
    test = _normal(os.environ["PYTEST_CURRENT_TEST"].rsplit(" ", 1)[0])
    _counts[test] = _counts.get(test, 0) + 1
    if _counts[test] > MOST:
        return
    key = test if _counts[test] == 1 else f"{test} ({_counts[test]})"
    message = _normal(message)
    if folder := os.environ.get(UPDATES):
        with open(Path(folder) / str(os.getpid()), "a") as file:
            file.write(json.dumps([key, message]) + "\n")
        return
    if not _known:
        _known.update(read())
    if key not in _known:
        raise AssertionError(f"no message of {key} in {FILE.name}: use --update-messages")
    if not fits(message, _known[key]):
        raise AssertionError(f"{message}\nis in {FILE.name}, by {key}:\n{_known[key]}")


def read() -> dict[str, str]:
    """Return the messages of the file, by test."""
    found: dict[str, list[str]] = {}
    key = ""
    for line in FILE.read_text().splitlines() if FILE.exists() else ():
        if line.startswith("  "):
            found[key].append(line[2:])
        else:
            key = line
            found[key] = []
    return {key: "\n".join(lines) for key, lines in found.items()}


def update(folder: Path) -> None:
    """Write what the tests' processes found to the file; entries that fit stay as they are."""
    messages = read()
    for part in folder.iterdir():
        for key, message in map(json.loads, part.read_text().splitlines()):
            if key not in messages or not fits(message, messages[key]):
                messages[key] = message
    lines = []
    for key in sorted(messages):
        lines += [key, *(f"  {line}" for line in messages[key].split("\n"))]
    FILE.write_text("\n".join(lines) + "\n")


def fits(message: str, expected: str) -> bool:
    """Return whether two messages are the same but for their numbers."""
    return NUMBERS.sub("#", message) == NUMBERS.sub("#", expected)


def _normal(message: str) -> str:
    for pattern, name in PLACES:
        message = pattern.sub(name, message)
    return message
