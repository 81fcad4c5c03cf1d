"""The project's language: plain English in the words of the field.

Docstrings, comments, strings, pages and the scripts of the dashboard are read.
`python tests/test_language.py PATH...` lists the faults of files or folders; `--count` prints only
their number.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = "src"
PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs")
KINDS = (".py", ".md", ".js", ".html")
LIBRARIES = ("echarts.min.js",)

OPENING = re.compile(r"(What|Who|Whether|Of|By|Where|Likewise)\b")
"""How no docstring begins: a function's begins with an imperative, a class's with a noun."""

BARRED = {
    "told, tells": r"\b(told|tells|is to tell)\b",
    "goes on": r"\b(go|goes|went|going|gone) on\b",
    "anew": r"\banew\b",
    "for good": r"\bfor good\b",
    "likewise": r"\blikewise\b",
    "see above": r"\bsee above\b",
    "by name": r"\bby name\b",
    "of its own": r"\bof (its|their|your|our|one's|the user's) own\b",
    "where that can be": r"\bwhere (that|it|they) can( be)?\b(?! \w+ed)",
    "as it is": r"\bas (it is|they are|it was|they were)\b(?! [a-z]+(ed|en)\b)",
    "lies": r"\blies\b",
    "stands": r"\b(stands|stood)\b",
    "said": r"\b(said|asked)\b",
    "whoever": r"\b(whoever|whom|somebody|nobody|someone)\b",
    "Who as a subject": r"(?:(?<=[.!] )|^)Who\b(?![^.?!]*\?)",
    "What is as a subject": (
        r"(?:(?<=[.!] )|^)What (is|was|are|were|its?|they|an?|the)\b(?![^.?!]*\?)"
    ),
    "is laid over": r"\b(laid|lays) over\b|\bgoes? over\b",
    "without a word": r"\bwithout a word\b",
    "mourn, bury": r"\b(mourn|mourns|mourned|bury|buries|buried)\b",
}
"""Private or unclear words, by the name that the list of faults gives them."""
PATTERNS = {
    name: re.compile(p, re.IGNORECASE if not name.endswith("subject") else 0)
    for name, p in BARRED.items()
}
ANY = [
    re.compile("|".join(f"(?:{p.pattern})" for p in PATTERNS.values() if p.flags == flags), flags)
    for flags in {p.flags for p in PATTERNS.values()}
]
"""The same in one search for each way of reading, for the many texts without a fault."""

ALLOWED: dict[tuple[str, str], str] = {}
"""By file and text, why it may stay. At most forty."""


class Fault(NamedTuple):
    """A word or opening that should not be there."""

    file: str
    line: int
    kind: str
    text: str


def is_prose(text: str) -> bool:
    """Whether a string is a sentence or part of one: two words of letters at least."""
    return len(re.findall(r"[A-Za-z']{2,}", text)) > 1 and " " in text.strip()


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Find the docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for statement in body:
            value = getattr(statement, "value", None)
            text = isinstance(value, ast.Constant) and isinstance(value.value, str)
            if text and isinstance(statement, ast.Expr):
                yield value


def of_source(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text and whether it is a docstring, for each text of a module."""
    source = path.read_text()
    tree = ast.parse(source)
    found = {id(node) for node in docstrings(tree)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and (id(node) in found or is_prose(node.value)):
            yield node.lineno, node.value, id(node) in found
    after = [line[line.index("#") :] for line in source.splitlines() if "#" in line]
    if not any(pattern.search(text) for text in after for pattern in ANY):
        return  # to find the comments takes three times as long as all else
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: "), False


def of_page(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text and False, for each line of a script, or of a page outside its code."""
    code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            code = not code
        elif not code:
            yield number, line, False


def faults_of(path: Path) -> Iterator[Fault]:
    """Find the faults of a file."""
    name = path.relative_to(ROOT).as_posix()
    for line, text, is_docstring in of_source(path) if path.suffix == ".py" else of_page(path):
        if is_docstring and OPENING.match(text):
            yield Fault(name, line, "opening", text.splitlines()[0])
        flat = re.sub(r"`[^`]*`", "`code`", " ".join(text.split()))
        if not any(pattern.search(flat) for pattern in ANY):
            continue
        for kind, pattern in PATTERNS.items():
            for match in pattern.finditer(flat):
                around = flat[max(match.start() - 30, 0) : match.end() + 30]
                yield Fault(name, line, kind, around)


def files(*names: str) -> list[Path]:
    """All checked files under these names."""
    found = []
    for name in names:
        path = ROOT / name
        found += [path] if path.is_file() else sorted(path.rglob("*"))
    return [p for p in found if p.suffix in KINDS and p.name not in LIBRARIES]


def faults(*names: str) -> list[Fault]:
    """All faults under these names that are not allowed."""
    return [
        fault
        for path in files(*names)
        for fault in faults_of(path)
        if not any(f == fault.file and text in fault.text for f, text in ALLOWED)
    ]


def test_the_source_is_written_in_the_words_of_the_field():
    found = faults(SOURCE)
    assert not found, f"{len(found)} faults: python tests/test_language.py src"


def test_the_pages_are_written_in_the_words_of_the_field():
    found = faults(*PAGES)
    assert not found, f"{len(found)} faults: python tests/test_language.py README.md docs"


def test_what_is_allowed_is_there_and_little():
    assert len(ALLOWED) <= 40
    for (file, text), reason in ALLOWED.items():
        assert reason
        assert any(text in fault.text for fault in faults_of(ROOT / file)), (file, text)


def main(words: list[str]) -> None:
    """Print faults, or with --count how many there are by kind and by folder."""
    names = [word for word in words if word != "--count"] or [SOURCE, *PAGES]
    found = faults(*(Path(name).absolute().relative_to(ROOT).as_posix() for name in names))
    if "--count" in words:
        for kind, count in Counter(f.kind for f in found).most_common():
            print(f"{count:6} {kind}")
        for folder, count in Counter("/".join(f.file.split("/")[:3]) for f in found).most_common():
            print(f"{count:6} {folder}")
    else:
        for fault in found:
            print(f"{fault.file}:{fault.line}: {fault.kind}: {fault.text}")
    print(f"{len(found)} faults")


if __name__ == "__main__":
    main(sys.argv[1:])
