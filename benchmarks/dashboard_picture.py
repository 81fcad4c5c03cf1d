"""The pictures of pages in README.md and docs: `python benchmarks/dashboard_picture.py [RUNS]`.

`make train`'s run gives the report and the dashboard's page of a run; six policies of Kuhn poker
that evolve for a moment, the page of a population. Runs that the directory RUNS holds already, as
`treasure_hunt` and `evolved`, are not trained again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dashboard import browser, serving
from recording import ROOT

PICTURES = ROOT / "docs" / "images"
MADE = ["--policy.network.hidden", "128", "128", "--run.turns", "500000"]  # as in the Makefile
CONFIGURATION = """
game: kuhn_poker
env: {num_envs: 256}
policy:
  algorithm: ppo
  discount: 1.0
  experience: {segment_length: 4}
  ppo: {entropy_cost: 0.1, rollout_length: 4, normalise_advantages: false}
run: {turns: 600000, live: false}
population:
  matchmaker: random
  policies: 6
  evolution:
    every: 10000
    games: 2000
    fitness: return
    draw_first: true
    numbers: {learning_rate: {low: 1.0e-5, high: 1.0e-2, log: true}}
analysis: {every: 5}
"""


def train(run: Path, *words: str) -> None:
    """Train a run, unless it exists."""
    if not run.exists():
        command = [sys.executable, "-m", "remuda", "train", *words, "--run.directory", str(run)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def take(driver: Any, address: str, name: str, canvases: int = 0) -> None:
    """Open a page, wait until it is drawn, and write a picture."""
    driver.get(address)
    while driver.execute_script("return document.querySelectorAll('canvas').length") < canvases:
        time.sleep(0.1)
    time.sleep(3.0)  # until all of it is drawn
    driver.save_screenshot(str(PICTURES / name))
    print(f"wrote {(PICTURES / name).relative_to(ROOT)}")


def main() -> None:
    """Train, and write the pictures of the pages."""
    with tempfile.TemporaryDirectory() as directory:
        runs = Path(sys.argv[1] if sys.argv[1:] else directory).absolute()
        (configuration := Path(directory) / "evolve.yaml").write_text(CONFIGURATION)
        train(runs / "treasure_hunt", "treasure_hunt", *MADE)
        train(runs / "evolved", "--config", str(configuration))
        with serving(runs) as (address, _, _), browser() as driver:
            if driver is None:
                raise SystemExit("there is no Chromium with its driver here")
            take(driver, f"file://{runs}/treasure_hunt/report.html", "report.png")
            take(driver, f"{address}#/run/treasure_hunt", "dashboard_run.png", 2)
            take(driver, f"{address}#/population/evolved", "dashboard.png", 5)


if __name__ == "__main__":
    main()
