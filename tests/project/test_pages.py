"""The tutorials and the pages for users of other libraries: their programs and commands run."""

import ast
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = (
    "tutorial.md",
    "bring_your_own_game.md",
    "sharing.md",
    "observations.md",
    "critics.md",
    "deploy.md",
    "from_rllib.md",
    "from_sb3.md",
    "from_ml_agents.md",
)
NEEDS = {"shepherds.py": "bring_your_own_game.md"}
"""Programs that import a program of another page."""
SHORT = {"evaluate_episodes": 2, "live": False, "calibrate": 0}
NOT_HERE = re.compile(
    r"^(pip|source|python3 -m venv|remuda dashboard)|:my_module:|dm_control|shimmy"
)
"""Commands that install, serve until Ctrl-C, or need what tests do not install."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"# (\S+\.(?:py|yaml))\n")


def blocks(page):
    """The language and text of each block of code of a page."""
    return BLOCK.findall((DOCS / page).read_text())


def shorter_program(text):
    return re.sub(r'"turns": [\d_]+', f'"turns": 600, {str(SHORT)[1:-1]}', text)


def shorter(command):
    """The words of a command, with a run of a second."""
    command = re.sub(r"--run.turns \d+", "--run.turns 600", command)
    words = shlex.split(re.sub(r"--seeds \d+", "--seeds 2", command), comments=True)
    if words[:2] == ["remuda", "train"]:
        words += [f"--run.{key}={str(value).lower()}" for key, value in SHORT.items()]
        words += ["--run.turns", "600", "--checkpoint.evaluate_episodes", "0"]
    if words[:2] == ["remuda", "evaluate"]:
        words += ["--episodes", "2"]
    return words


def steps(page):
    """Yield what a reader does, in the order of the page: (file, text) or (None, words)."""
    for language, text in blocks(page):
        name = NAMED.match(text)
        if language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                if line and not NOT_HERE.search(line):
                    yield None, shorter(line)
        elif name:
            yield name[1], shorter_program(text)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS)
def test_a_reader_may_do_what_a_page_shows(page, tmp_path):
    """Each program is written and, unless a later command or program uses it, run."""
    for name, other in NEEDS.items():
        if name in (DOCS / page).read_text():
            for file, text in steps(other):
                if file:
                    (tmp_path / file).write_text(text)
    done = 0
    used = "".join(text for _, text in blocks(page))
    for file, what in steps(page):
        if file is None:
            words = [sys.executable, "-m", *what]
        else:
            (tmp_path / file).write_text(what)
            module = Path(file).stem
            if file.endswith(".yaml") or re.search(rf"\b{module}:|from {module} import", used):
                continue  # a configuration or a module
            words = [sys.executable, file]
        environment = os.environ | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        found = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
        )
        assert found.returncode == 0, f"{words}\n{found.stdout}\n{found.stderr}"
        done += 1
    assert done


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_programs_of_a_page_are_python(page):
    """Those of other libraries too, which are not installed here."""
    for language, text in blocks(page):
        if language == "python":
            ast.parse(textwrap.dedent(text))


WORDS = {
    "observation": "observations.md",
    "environment": "bring_your_own_game.md",
    "opponent": "glossary.md",
    "continuous action": "bring_your_own_game.md",
    "override": "api.md",
    "bootstrap": "concepts.md",
    "mask": "bring_your_own_game.md",
    "rollout": "concepts.md",
    "parameter sharing": "sharing.md",
    "independent PPO": "tutorial.md",
    "IPPO": "tutorial.md",
    "centralised critic": "critics.md",
    "CTDE": "critics.md",
    "curriculum": "curriculum.md",
    "trajectory": "glossary.md",
    "confidence interval": "bring_your_own_game.md",
}
"""Words that people search for, each with the page that must have it."""


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_the_field_is_found_on_its_page(word):
    text = " ".join((DOCS / WORDS[word]).read_text().split())
    assert word.lower() in text.lower()
