"""The pages of all keys and commands are what their declarations give."""

from pathlib import Path

from remuda.config import Config, fields_of
from remuda.ui.cli.main import COMMANDS
from remuda.ui.cli.reference import commands_page, configuration_page, metrics_page

DOCS = Path(__file__).resolve().parents[3] / "docs"
AGAIN = "python -m remuda.ui.cli.reference docs"


def test_the_pages_are_up_to_date():
    assert (DOCS / "configuration.md").read_text() == configuration_page(), AGAIN
    assert (DOCS / "commands.md").read_text() == commands_page(), AGAIN
    assert (DOCS / "metrics.md").read_text() == metrics_page(), AGAIN


def test_every_key_has_a_row_with_its_meaning():
    page = configuration_page()
    leaves = [key for key, section in fields_of(Config).items() if section is None]
    for key in leaves:
        rows = [line for line in page.splitlines() if line.startswith(f"| `{key}` |")]
        assert len(rows) == 1, key
        assert rows[0].rstrip(" |").split(" | ")[-1].strip(), f"{key} says nothing"


def test_every_command_and_option_has_its_place():
    page = commands_page()
    for name, command in COMMANDS.items():
        assert f"## remuda {name}\n" in page
        if command.options not in (None, Config):
            for key, section in fields_of(command.options).items():
                assert section is not None or f"| `--{key}` |" in page
