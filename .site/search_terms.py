"""Compare the pages that the site's search ranks first with those that should be first.

make site && .venv/bin/python .site/search_terms.py

Types each term of the field into the search of site/, in a headless Chromium, and prints a table.
The exit code is 1 if another page than an expected one is first.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

TERMS = {
    "observation": "observations",
    "environment": "bring_your_own_game",
    "opponent": "self_play populations",
    "continuous action": "bring_your_own_game",
    "override": "configuration api",
    "bootstrap": "concepts",
    "mask": "bring_your_own_game",
    "rollout": "concepts",
    "parameter sharing": "sharing",
    "independent PPO": "tutorial",
    "IPPO": "tutorial",
    "centralised critic": "critics",
    "centralized critic": "critics",
    "CTDE": "critics",
    "prioritised fictitious self-play": "leagues",
    "prioritized fictitious self-play": "leagues",
    "PFSP": "leagues",
    "population based training": "evolution evolve",
    "PBT": "evolution evolve",
    "cross-play": "analysis api",
    "Elo": "analysis populations",
    "social dilemma": "games",
    "curriculum": "curriculum",
    "trajectory": "api",
    "confidence interval": "analysis",
}
"""The pages of which one should be first, for each term of the field."""
REFERENCE = {
    "policy.ppo.clip": "configuration",
    "gae_lambda": "configuration",
    "replay_ratio": "configuration",
    "explained_variance": "metrics",
    "frames_per_second": "commands",
    "evaluate_among": "python",
}
"""The same for names that the generated pages hold."""

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
PATIENCE = 60.0

TYPE = """
const box = document.querySelector("[data-md-component=search-query]");
box.focus();
box.value = arguments[0];
box.dispatchEvent(new Event("keyup", {bubbles: true}));
"""
FOUND = """
const links = document.querySelectorAll(".md-search-result__item > a");
const none = document.querySelector(".md-search-result__meta").textContent.includes("No matching");
return [none, [...links].map(link => link.href.match(/(\\w+)\\.html/)[1])];
"""


@contextmanager
def browser() -> Iterator[Any]:
    """Yield a headless Chromium."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(word)
    driver = webdriver.Chrome(options, Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def rankings(site: Path, terms: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of the pages that are found for each term, best first.

    The site is opened as files, without a server.
    """
    found = {}
    with browser() as driver:
        driver.get((site / "index.html").absolute().as_uri())
        driver.execute_script("document.getElementById('__search').click()")
        for term in terms:
            driver.execute_script(TYPE, "")
            _wait(driver, lambda none, pages: not none and not pages)
            driver.execute_script(TYPE, term)
            _wait(driver, lambda none, pages: none or pages)
            found[term] = driver.execute_script(FOUND)[1]
    return found


def _wait(driver: Any, is_reached: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not is_reached(*driver.execute_script(FOUND)):
        if time.monotonic() > until:
            raise TimeoutError("the search does not answer")
        time.sleep(0.02)


def main() -> None:
    """Print the table."""
    if CHROMIUM is None or DRIVER is None:
        raise SystemExit("the search is tried in Chromium: install chromium and chromedriver")
    site = Path(__file__).parents[1] / "site"
    if not site.is_dir():
        raise SystemExit("there is no site here: run make site first")
    expected = TERMS | REFERENCE
    wrong = 0
    print("| term | should be first | is first | rank |\n| --- | --- | --- | --- |")
    for term, pages in rankings(site, expected).items():
        right = expected[term].split()
        rank = next((n for n, page in enumerate(pages, 1) if page in right), None)
        wrong += rank != 1
        cells = term, " or ".join(right), pages[0] if pages else "nothing", rank or "not found"
        print(f"| {' | '.join(map(str, cells))} |")
    print(f"\n{wrong} of {len(expected)} are not first")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
