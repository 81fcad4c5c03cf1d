"""How soon the dashboard shows what there is, and what it costs: `python benchmarks/dashboard.py`.

python benchmarks/dashboard.py                    500 runs with 1,000,000 numbers: first views
python benchmarks/dashboard.py --speed 5          and a run's speed with a page open and without
python benchmarks/dashboard.py --soak 60          and an hour of watching a run in progress
python benchmarks/dashboard.py --night 15000      and as many updates of each page as a night has

A page here is a headless Chromium, where there is one; what the server answers is measured besides.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from recording import Results, options_of

import remuda

RUNS, RECORDS, POLICIES = 500, 100, 2
RUN, BEGUN = 40.0, 15.0
"""Seconds of a run whose speed is measured, and after which it is: a browser that begins takes
processor time, whatever page it opens."""
COLUMNS = 10
"""Numbers of a policy in a record: 500 runs of 100 records of 2 policies are 1,000,000."""


def write_runs(base: Path) -> None:
    """Run directories as training leaves them, by hand."""
    rng = np.random.default_rng(0)
    names = ["mean_return", "episodes", "loss", "updates", "version", "staleness", "steps"]
    names += ["replay_fill", "replay_ratio", "entropy"]
    for run in range(RUNS):
        path = base / f"group-{run // 50}" / f"run-{run}"
        path.mkdir(parents=True)
        settings = f"game: treasure_hunt\nseed: {run}\npolicy:\n  algorithm: ppo\n"
        (path / "config.yaml").write_text(settings + f"  learning_rate: {1e-3 * (1 + run // 50)}\n")
        with (path / "metrics.jsonl").open("w") as file:
            for i in range(1, RECORDS + 1):
                policies = {
                    f"agent_{k}": dict(zip(names, rng.normal(size=COLUMNS).round(5), strict=True))
                    for k in range(POLICIES)
                }
                record = {"seconds": 1.0 * i, "turns": 100 * i, "agent_steps": 200 * i}
                file.write(json.dumps(record | {"policies": policies}) + "\n")


@contextlib.contextmanager
def serving(base: Path) -> Iterator[tuple[str, psutil.Process, float]]:
    """A dashboard: its address, its process, and when that was begun."""
    begun = time.perf_counter()
    words = [sys.executable, "-m", "remuda", "dashboard", str(base), "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield line.split(" at ")[1].split()[0], psutil.Process(process.pid), begun
    finally:
        process.terminate()
        process.wait()


def ask(address: str, name: str, **parameters: Any) -> tuple[Any, float]:
    """Return the server's answer, and the seconds it took."""
    query = urllib.parse.urlencode(parameters, doseq=True)
    begun = time.perf_counter()
    asked = urllib.request.Request(f"{address}api/{name}?{query}", headers={"x-remuda": "1"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        found = json.loads(answer.read())
    return found, time.perf_counter() - begun


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium; None: there is none."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    driver_path = shutil.which("chromedriver")
    if path is None or driver_path is None:
        yield None
        return
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = path
    for word in ("--headless=new", "--no-sandbox", "--window-size=1400,1000"):
        options.add_argument(word)
    driver = webdriver.Chrome(options, Service(driver_path))
    try:
        yield driver
    finally:
        driver.quit()


def first_views(results: Results, base: Path) -> None:
    """How soon there is something to look at."""
    with serving(base) as (address, process, begun):
        while not ask(address, "runs")[0].get("complete"):
            time.sleep(0.01)
        results.bar("all 500 runs known, s after the command", time.perf_counter() - begun, most=4)
        found, took = ask(address, "runs")
        results.bar("table of runs, answer, s", took, most=0.3)
        runs = [run["id"] for run in found["runs"]]
        _, took = ask(address, "run", run=runs[0])
        results.bar("first look at one run, answer, s", took, most=2.0)
        asked = {"run": runs[:60], "column": "mean_return"}
        first = time.perf_counter()
        while not ask(address, "compare", **asked)[0]["complete"]:
            pass
        results.bar("curves of 60 runs, first, s", time.perf_counter() - first, most=2.0)
        took = median(ask(address, "compare", **asked)[1] for _ in range(10))
        results.bar("curves of 60 runs, again, s", took, most=0.3)
        for run in runs:
            ask(address, "run", run=run)
        results.bar("memory after all of it, MiB", process.memory_info().rss / 2**20, most=300)
        pages(results, address)


def pages(results: Results, address: str) -> None:
    """The same in a browser."""
    with browser() as driver:
        if driver is None:
            print("there is no Chromium here: pages are not measured")
            return
        begun = time.perf_counter()
        driver.get(address)
        while not driver.execute_script("return document.querySelectorAll('tbody tr').length"):
            time.sleep(0.01)
        results.bar("first view of 500 runs in a browser, s", time.perf_counter() - begun, most=2)
        run = driver.execute_script("return document.querySelector('tbody a').getAttribute('href')")
        begun = time.perf_counter()
        driver.get(address + run)
        while not driver.execute_script("return document.querySelectorAll('canvas').length"):
            time.sleep(0.01)
        results.bar("first view of a run in a browser, s", time.perf_counter() - begun, most=2)


def training(base: Path, seconds: float) -> list[str]:
    """Return the command of a run that lasts this long."""
    words = [sys.executable, "-m", "remuda", "train", "treasure_hunt", "--run.live", "false"]
    words += ["--run.seconds", str(seconds), "--run.evaluate-episodes", "0"]
    return [*words, "--run.directory", str(base / f"live-{time.time_ns()}")]


def soak(results: Results, base: Path, minutes: float) -> None:
    """Watch a run in progress."""
    run = subprocess.Popen(training(base, 60.0 * minutes), stdout=subprocess.DEVNULL)
    with serving(base) as (address, process, _), browser() as driver:
        took, heaps, until = [], [], time.monotonic() + 60.0 * minutes - 5.0
        live = ""
        while not live:
            runs = ask(address, "runs")[0].get("runs", [])
            live = next((each["id"] for each in runs if each["state"] == "is running"), "")
            time.sleep(0.2)
        if driver is not None:
            driver.get(f"{address}#/run/{urllib.parse.quote(live, safe='')}")
        while time.monotonic() < until:
            columns = ask(address, "run", run=live)[0]["columns"][:40]
            took.append(ask(address, "curves", run=live, column=columns)[1])
            if driver is not None:
                driver.execute_script("window.gc && window.gc()")
                heaps.append(driver.execute_script("return performance.memory.usedJSHeapSize"))
            time.sleep(1.0)
        results.bar("an update of a live run, median, s", median(took), most=0.3)
        results.bar("an update of a live run, greatest, s", max(took), most=2.0)
        results.bar("memory after it, MiB", process.memory_info().rss / 2**20, most=300)
        if len(heaps) > 20:
            quarter = len(heaps) // 4
            grew = min(heaps[-quarter:]) / min(heaps[quarter : 2 * quarter])
            results.bar("page's heap, last quarter by second", grew, most=1.5)
    run.wait()


HASTE = """
const later = window.setTimeout, ask = window.fetch;
window.asked = 0;
window.setTimeout = (what, wait, ...rest) => later(what, wait / 50, ...rest);
window.fetch = (...words) => { window.asked += 1; return ask(...words); };
"""
"""Put into a page before all else: its waits are a fiftieth of what they are, and it counts what
it asks for."""
HELD = {"JSHeapUsedSize": "bytes of its heap", "Nodes": "nodes", "JSEventListeners": "listeners"}
"""The things that an open page could accumulate."""
NIGHT = ["connect_four", "--population.policies", "3", "--population.matchmaker", "random"]
"""A run with a population, so that all pages of it have something to show."""


def night(results: Results, base: Path, updates: int) -> None:
    """Let pages of a run in progress poll as often as they do in a night, in less time."""
    run = base / "live"
    words = [sys.executable, "-m", "remuda", "train", *NIGHT, "--run.live", "false"]
    words += ["--run.seconds", "86400", "--run.log-every", "0.05", "--run.directory", str(run)]
    training = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        with serving(base) as (address, process, _), browser() as driver:
            if driver is None:
                raise SystemExit("there is no Chromium here: a night cannot be measured")
            driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": HASTE})
            driver.execute_cdp_cmd("Performance.enable", {})
            while not (run / "metrics.jsonl").exists():
                time.sleep(0.2)
            for page in ("run", "population", "runs"):  # a timeline is not requested again
                driver.get("about:blank")  # so that each starts fresh
                driver.get(f"{address}#/{page}/{'' if page == 'runs' else 'live'}")
                grown_of(results, driver, page, updates)
            results.bar(
                "server's memory after it, MiB", process.memory_info().rss / 2**20, most=300
            )
    finally:
        training.terminate()
        training.wait()


def grown_of(results: Results, driver: Any, page: str, updates: int) -> None:
    """Compare a page's memory at the end of its updates with that after a quarter of them."""
    found: list[dict[str, float]] = []
    begun = time.monotonic()
    for until in (updates // 4, updates):
        while (asked := driver.execute_script("return window.asked")) < until:
            time.sleep(0.5)
        driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        told = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        found.append({each["name"]: each["value"] for each in told if each["name"] in HELD})
    early, late = found
    row: dict[str, Any] = {
        "page": page,
        "requests": asked,
        "minutes": (time.monotonic() - begun) / 60,
    }
    results.row(row | {words: late[name] for name, words in HELD.items()})
    for name, words in HELD.items():
        results.bar(f"{page}: {words}, at the end by a quarter", late[name] / early[name], most=1.2)


def speed_of(run: Path) -> float:
    """Agent-steps a second of a run, from when a browser had begun and opened its page."""
    metrics = remuda.load(run).metrics()
    seconds, steps = (metrics[name][metrics["seconds"] >= BEGUN] for name in ("seconds", "steps"))
    return float((steps[-1] - steps[0]) / (seconds[-1] - seconds[0]))


def speed(results: Results, base: Path, pairs: int) -> None:
    """A run's speed with its page open, and without, in turns."""
    ratios = []
    for pair in range(pairs):
        found = {}
        # Each is the first of a pair as often as the other: machines change their speed.
        for with_page in (True, False) if pair % 2 else (False, True):
            words = training(base, RUN)
            with contextlib.ExitStack() as opened:
                run = subprocess.Popen(words, stdout=subprocess.DEVNULL)
                if with_page:
                    address, _, _ = opened.enter_context(serving(base))
                    driver = opened.enter_context(browser())
                    if driver is not None:
                        driver.get(f"{address}#/run/{Path(words[-1]).name}")
                run.wait()
            found[with_page] = speed_of(Path(words[-1]))
        ratios.append(found[True] / found[False])
        print(f"with a page open: {ratios[-1]:.3f} of the speed without", flush=True)
    results.bar("a run's speed with its page open, of without", median(ratios), least=0.98)


def main() -> None:
    """Run the chosen measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="watch a run for so long")
    parser.add_argument("--speed", type=int, metavar="PAIRS", help="of runs of 40 seconds")
    parser.add_argument("--night", type=int, metavar="UPDATES", help="of each page, and no more")
    options = options_of(parser)
    if options.night:
        results = Results("dashboard.night")
        with tempfile.TemporaryDirectory() as directory:
            night(results, Path(directory), options.night)
        results.finish(options)
        return
    results = Results("dashboard.soak" if options.soak else "dashboard")
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        write_runs(base)
        first_views(results, base)
        if options.soak:
            soak(results, base, options.soak)
    if options.speed:
        with tempfile.TemporaryDirectory() as directory:
            speed(results, Path(directory), options.speed)
    results.finish(options)


if __name__ == "__main__":
    main()
