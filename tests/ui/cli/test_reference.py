"""The pages of all keys and commands are what their declarations give."""

import re
from pathlib import Path

from remuda.config import Config, fields_of
from remuda.ui.cli.main import COMMANDS
from remuda.ui.cli.reference import PAGES, commands_page, configuration_page

DOCS = Path(__file__).resolve().parents[3] / "docs"


def entries(text):
    """The meaning of each key or option of a text; none has two."""
    entry = r"^### `(\S+)` \{ #\S+ \}\n\n.+\n\{ \.facts \}\n\n(.+)$"
    found = re.findall(entry, text, re.MULTILINE)
    assert len(found) == len(dict(found))
    return dict(found)


def keys_of(model):
    return [key for key, section in fields_of(model).items() if section is None]


def test_no_generated_page_is_kept():
    """`make site` generates them: a file in docs/ could differ from it."""
    assert not [name for name in PAGES if (DOCS / name).exists()]


def test_every_key_has_an_entry_with_its_meaning():
    assert entries(configuration_page()).keys() == set(keys_of(Config))


def test_every_key_is_in_its_section():
    sections = re.split(r"^## (.+)\n", configuration_page(), flags=re.MULTILINE)[1:]
    for heading, text in zip(sections[::2], sections[1::2], strict=True):
        for key in entries(text):
            assert key.rpartition(".")[0] == ("" if heading == "At the top" else heading)


def test_every_command_and_option_has_its_place():
    """Its own entry, one that several commands share, or a key of the configuration."""
    keys = keys_of(Config)
    parts = re.split(r"^## (.+)\n", commands_page(), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    shared = entries(sections["Options of several commands"])
    for name, command in COMMANDS.items():
        text = sections[f"remuda {name}"]
        if command.options is Config:
            assert "](configuration.md)" in text
            continue
        own = entries(text)
        linked = re.findall(r"\[`--(\S+)`\]\(#\1\)", text)
        of_runs = re.findall(r"\[key of `(\w+)`\]\(configuration\.md#\1\)", text)
        for key in keys_of(command.options):
            places = [f"--{key}" in own, key in linked, key.split(".")[0] in of_runs]
            assert sum(places) == 1, f"{name} --{key}"
            assert key not in linked or f"--{key}" in shared
            assert key.split(".")[0] not in of_runs or key in keys


def test_an_option_that_means_the_same_in_all_its_commands_is_listed_once():
    page = commands_page()
    assert len(re.findall(r"^### `--format`", page, re.MULTILINE)) == 1
    assert (
        len(re.findall(r"^### `--episodes`", page, re.MULTILINE)) > 1
    )  # each command's means another
    assert "### `--policy.learning_rate`" not in page
