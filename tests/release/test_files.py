"""Files that a release has besides its code agree with it."""

import re
from importlib import import_module
from pathlib import Path

import yaml

import remuda
import remuda.api.sorrel
from remuda.system.version import __version__
from remuda.ui.cli.reference import PAGES, python_page

ROOT = Path(__file__).resolve().parents[2]


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == __version__
    assert cited["license"] == "MIT"
    assert {"cff-version", "message", "title", "authors"} <= set(cited)


def test_issue_templates_have_a_head():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"):
        _, head, _ = path.read_text().split("---", 2)
        assert set(yaml.safe_load(head)) == {"name", "about"}


def test_what_may_be_imported_is_documented_and_nothing_else():
    named = re.findall(r"^::: (\S+)$", python_page(), re.MULTILINE)
    assert len(named) == len(set(named))
    public = {f"remuda.{name}" for name in remuda.__all__ if name != "__version__"}
    public |= {f"remuda.api.sorrel.{name}" for name in remuda.api.sorrel.__all__}
    assert set(named) == public
    for name in named:
        module, _, attribute = name.rpartition(".")
        found = getattr(import_module(module), attribute)
        assert (found.__doc__ or "").strip(), f"{name} has no docstring"


def test_every_page_has_its_place_on_the_site():
    class Loader(yaml.SafeLoader):
        pass

    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]

    def pages(part):
        if isinstance(part, str):
            yield part
        for each in (
            part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        ):
            yield from pages(each)

    written = [path.name for path in (ROOT / "docs").glob("*.md")]
    assert sorted(pages(nav)) == sorted([*written, *PAGES, "figures.md"])
