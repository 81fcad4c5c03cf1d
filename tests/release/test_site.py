"""The site: built without a dead link, it shows what is in the package, from itself alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
def test_it_is_built_strictly_with_every_page(site):
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").stat().st_size > 5000
    python = (site / "python.html").read_text()
    for name in ("remuda.train", "remuda.Run", "remuda.Policy.act"):
        assert f'id="{name}"' in python


@pytest.mark.slow
def test_it_loads_nothing_from_elsewhere_and_is_searched_offline(site):
    for page in site.glob("*.html"):
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img)[^>]*src="([^"]*)"', text)
        loaded += re.findall(r'<link[^>]*rel="(?:stylesheet|icon)"[^>]*href="([^"]*)"', text)
        assert not [each for each in loaded if each.startswith(("http:", "https:", "//"))], page
    assert list((site / "search").glob("search_index.js*"))
