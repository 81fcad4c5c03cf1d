"""The site: built without a dead link, it shows what is in the package, from itself alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.ui.cli.reference import PAGES

pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).resolve().parents[2]
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / ".site")
    import search_terms

GENERATED = ("commands", "configuration", "metrics")
BROKEN = """
const keys = document.querySelectorAll(".md-content h3 > code").length;
const words = [...document.querySelectorAll(".md-content :not(pre) > code")];
const broken = words.filter(word => /^\\S{1,40}$/.test(word.textContent))
                    .filter(word => word.getClientRects().length !== 1)
                    .map(word => word.textContent);
const page = document.documentElement;
return [keys, broken, page.scrollWidth - page.clientWidth];
"""
"""How many keys a page has, the words of code that are broken, and pixels beyond the screen."""


def built(folder):
    """Build the site as `make site` does, into a folder.

    With `-q` MkDocs would count no warnings, so that a dead link would not fail a strict build.
    """
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.process
def test_it_is_built_strictly_with_every_page_and_loads_nothing_from_elsewhere(tmp_path):
    site = built(tmp_path / "site")
    for page in (*(ROOT / "docs").glob("*.md"), *map(Path, PAGES)):
        assert (site / f"{page.stem}.html").stat().st_size > 5000
    python = (site / "python.html").read_text()
    for name in ("remuda.train", "remuda.Run", "remuda.Policy.act"):
        assert f'id="{name}"' in python
    assert 'id="policy.ppo.clip"' in (site / "configuration.html").read_text()
    assert list((site / "search").glob("search_index.js*"))
    for page in site.glob("*.html"):
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img)[^>]*src="([^"]*)"', text)
        loaded += re.findall(r'<link[^>]*rel="(?:stylesheet|icon)"[^>]*href="([^"]*)"', text)
        assert not [each for each in loaded if each.startswith(("http:", "https:", "//"))], page
        assert "md-footer__link" in text or page.name == "404.html"


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.skipif(
    search_terms.CHROMIUM is None or search_terms.DRIVER is None,
    reason="there is no Chromium with its driver",
)
def test_a_browser_shows_keys_unbroken_and_finds_terms_without_a_server(tmp_path):
    site = built(tmp_path / "site")
    with search_terms.browser() as driver:
        for width in (1400, 360):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            for page in GENERATED:
                driver.get((site / f"{page}.html").as_uri())
                keys, broken, beyond = driver.execute_script(BROKEN)
                assert keys > 40
                assert broken == []
                assert beyond <= 0
    expected = search_terms.TERMS | search_terms.REFERENCE
    found = search_terms.rankings(site, expected)
    assert {term: pages[0] for term, pages in found.items() if pages[0] not in expected[term]} == {}
