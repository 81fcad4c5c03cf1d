"""Remuda beside its peers: trained agent-steps a second on one game, in turns, in one run.

    python benchmarks/peers.py --sb3 PYTHON --sample-factory PYTHON

Each peer is in a separate environment, with its own `pip install` (stable-baselines3,
sample-factory) and what the game needs (numba, gymnasium, pydantic, safetensors, pillow, imageio);
PYTHON is the interpreter there. All play Treasure Hunt 21 x 21 with eight agents in 64 copies, with
PPO, networks of 64 x 64, rollouts of 128 turns and 4 epochs, on every core there is. Peers are
given the game as one batch of rows at almost no cost, and move all agents at once; Remuda plays it
agent by agent, each seeing what the one before did, and also like its peers, all at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from statistics import median

from recording import ROOT, Results, options_of
from stacks import measure

HERE = Path(__file__).parent
PROGRAMS = HERE / "peer_programs"
PEERS = ROOT / ".peers"
"""The environment that programs install their peers into, unless --peers names another."""
PATIENCE = 240.0
"""Seconds that a program may take longer than its limit; it may not end by itself."""


def peers_python(requirements: str) -> str:
    """Return an interpreter with the packages of a file, installed if they are not yet."""
    python, done = PEERS / "bin" / "python", PEERS / f".{requirements}"
    if not done.exists():
        print(f"installing {requirements} into {PEERS.name}/ (once)", flush=True)
        if not python.exists():
            venv.create(PEERS, with_pip=True)
        pinned = f"torch=={metadata.version('torch').split('+')[0]}"  # as ours, without CUDA
        install = [str(python), "-m", "pip", "install", "-q", pinned]
        subprocess.run(install, check=True)
        subprocess.run([*install, "-r", str(PROGRAMS / requirements)], check=True)
        done.touch()
    return str(python)


def same_packages(name: str, packages: Sequence[str]) -> str:
    """Return a folder with just these packages, for the interpreter that runs this program."""
    folder = PEERS / "for_remuda" / name
    if not folder.exists():
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
        subprocess.run([*install, str(folder), *packages], check=True)
    return str(folder)


def program(python: str, name: str, *words: str) -> Callable[[float], float]:
    """A peer's program: its last word is its rate, or its log holds Sample Factory's figures."""

    def run(seconds: float) -> float:
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(
                [python, name, str(seconds), *words],
                cwd=PROGRAMS,
                env=os.environ | {"PYTHONPATH": str(HERE.parent / "src")},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds + PATIENCE)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            log.seek(0)
            said = log.read()
        rates = re.findall(r"Fps is \(10 sec: ([0-9.]+)", said)
        if rates:
            return float(rates[-1])
        try:
            return float(said.split()[-1])
        except (IndexError, ValueError):
            raise SystemExit(f"{name} {' '.join(words)} failed:\n{said[-2000:]}") from None

    return run


def remuda(shared: bool, together: bool) -> Callable[[float], float]:
    """Eight independent policies."""

    def run(seconds: float) -> float:
        network = {"shared": shared}
        watch = measure(
            seconds + 4.0, policy={"network": network}, env={"observe_together": together}
        )
        return watch.rates()[1]

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sb3", help="an interpreter with stable-baselines3")
    parser.add_argument("--sample-factory", help="an interpreter with sample-factory")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = options_of(parser)
    trunk, towers = "one trunk for policy and value", "a network each for policy and value"
    entrants: dict[tuple[str, str], Callable[[float], float]] = {
        ("Remuda, 8 policies, agent by agent", trunk): remuda(True, False),
        ("Remuda, 8 policies, all at once", trunk): remuda(True, True),
        ("Remuda, 8 policies, all at once", towers): remuda(False, True),
    }
    if options.sb3:
        shared = "Stable-Baselines3, 1 policy for all"
        for network, word in ((trunk, "trunk"), (towers, "towers")):
            entrants[shared, network] = program(options.sb3, "sb3_shared.py", "16384", word)
        entrants["Stable-Baselines3, 8 learners in a loop", towers] = program(
            options.sb3, "sb3_separate.py"
        )
    if options.sample_factory:
        for count in (1, 8):
            what = f"Sample Factory, {count} polic{'y for all' if count == 1 else 'ies'}"
            entrants[what, trunk] = program(
                options.sample_factory, "sample_factory_run.py", str(count)
            )
    results = Results("peers")
    rates: dict[tuple[str, str], list[float]] = {name: [] for name in entrants}
    for _ in range(options.rounds):
        for name, run in entrants.items():
            rates[name].append(run(options.seconds))
            print(f"{name[0]}, {name[1]}: {rates[name][-1]:,.0f}", flush=True)
    for name, found in rates.items():
        ours = median(rates["Remuda, 8 policies, all at once", name[1]])
        results.row(
            {
                "who": name[0],
                "network": name[1],
                "trained agent-steps/s": median(found),
                "Remuda, all at once, is so many times as fast": ours / median(found),
            }
        )
    best = rates.get(("Stable-Baselines3, 1 policy for all", trunk))
    if best:
        ours = median(rates["Remuda, 8 policies, all at once", trunk])
        results.bar("as fast as the best of Stable-Baselines3, times", ours / median(best), least=2)
    results.finish(options)


if __name__ == "__main__":
    main()
