"""Files that a release has besides its code agree with it."""

from pathlib import Path

import yaml

from remuda.version import __version__

ROOT = Path(__file__).resolve().parents[1]


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == __version__
    assert cited["license"] == "MIT"
    assert {"cff-version", "message", "title", "authors"} <= set(cited)


def test_issue_templates_have_a_head():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"):
        _, head, _ = path.read_text().split("---", 2)
        assert set(yaml.safe_load(head)) == {"name", "about"}
