"""The picture of the dashboard in README.md and docs: `python benchmarks/dashboard_picture.py`.

Six policies of Kuhn poker evolve for a moment, and a headless Chromium looks at their page.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dashboard import browser, serving
from recording import ROOT

PICTURE = ROOT / "docs" / "images" / "dashboard.png"
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


def main() -> None:
    """Train, look, and keep what is seen."""
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        (base / "evolve.yaml").write_text(CONFIGURATION)
        words = [sys.executable, "-m", "remuda", "train", "--config", str(base / "evolve.yaml")]
        run = ["--run.directory", str(base / "runs" / "evolved")]
        subprocess.run([*words, *run], check=True, stdout=subprocess.DEVNULL)
        with serving(base / "runs") as (address, _, _), browser() as driver:
            if driver is None:
                raise SystemExit("there is no Chromium with its driver here")
            driver.get(f"{address}#/population/evolved")
            while driver.execute_script("return document.querySelectorAll('canvas').length") < 5:
                time.sleep(0.1)
            time.sleep(3.0)  # until all of it is drawn
            driver.save_screenshot(str(PICTURE))
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
