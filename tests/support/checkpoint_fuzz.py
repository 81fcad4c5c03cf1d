"""Changes numbers in the checkpoint of a run, with checksums that fit, and resumes it.

    python tests/support/checkpoint_fuzz.py RUN FIRST COUNT

Each case is a seed. A child of this process resumes a copy of the run for each of them, one after
the other; first an unchanged copy, which must train. The others may train, or say in one line what
is wrong. Anything else is printed, with its seed, and the exit code is 1. A child that dies or
hangs is a fault of the case that it was at, and another one takes the next.
"""

import gc
import hashlib
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np

from remuda.system.checkpoint.state import pack, unpack
from remuda.ui.cli.program import HALTED

LIMIT = 120.0
"""Seconds after which a child hangs: a case takes less than one."""
TURNS = 60
"""Turns that a run goes on for."""
WHOLE = [-1, 1, 7, 63, 2**31, 2**40, 2**62, -(2**31), -(2**62), 2**63 - 1, -(2**63)]
REAL = [-1.0, 0.5, 3.0, 1e9, 1e30, -1e300, float("inf"), float("-inf"), float("nan"), 2.0**62]
PLAIN = [None, True, -1, 0, 3, 2**40, 10**400, -0.5, 1e300, "word", "", [], [1], {}, {"a": 1}]


def leaves(state, path=()):
    """The paths of all values of a state that are no names and values."""
    for name, value in state.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name)


def changed_array(array, draw):
    """The array with one number, or all of it, changed; and in words how."""
    array = np.array(array)
    if draw.random() < 0.05:
        return array.reshape(-1)[: array.size // 2], "half of it"
    if not array.size:
        return np.zeros((1, *array.shape), array.dtype), "one more"
    at = draw.randrange(array.size)
    flat = array.reshape(-1)
    if array.dtype == np.bool_:
        value = draw.choice([2, 1, 255])
        flat.view(np.uint8)[at] = value
    elif array.dtype.kind == "f":
        value = draw.choice(REAL)
        with np.errstate(over="ignore"):
            flat[at] = value
    else:
        limits = np.iinfo(array.dtype)
        value = draw.choice([*WHOLE, limits.max, limits.min, int(flat[at]) + 1, array.size])
        value = min(max(value, int(limits.min)), int(limits.max))
        flat[at] = value
    if draw.random() < 0.1:
        flat[:] = flat[at]
        return array, f"all {value}"
    return array, f"[{at}] = {value}"


def change(directory, seed):
    """Change a number of the newest checkpoint; returns in words which."""
    draw = random.Random(seed)
    folder = max(path for path in (directory / "checkpoints").iterdir() if path.name.isdecimal())
    parts = sorted(folder.glob("*.safetensors"))
    path = draw.choice([*parts, *[each for each in parts if each.stem in ("actor", "coordinator")]])
    state = unpack(path.read_bytes())
    found = list(leaves(state))
    numbers = [leaf for leaf in found if isinstance(value_of(state, leaf), np.ndarray)]
    if draw.random() < 0.9:
        numbers = [leaf for leaf in numbers if value_of(state, leaf).size] or numbers
    leaf = draw.choice(numbers if draw.random() < 0.75 else found)
    branch = value_of(state, leaf[:-1])
    value = branch[leaf[-1]]
    if isinstance(value, np.ndarray):
        branch[leaf[-1]], words = changed_array(value, draw)
    elif draw.random() < 0.1:
        del branch[leaf[-1]]
        words = "left out"
    else:
        choices = [*PLAIN, value + 1, -value] if isinstance(value, int | float) else PLAIN
        branch[leaf[-1]] = draw.choice(choices)
        words = f"= {str(branch[leaf[-1]])[:30]}"
    data = pack(state)
    path.write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][path.name] = hashlib.sha256(data).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return f"{path.stem}: {'/'.join(leaf)} {words}"


def value_of(state, path):
    for name in path:
        state = state[name]
    return state


def tried(run, seed):
    """Resume a changed copy of a run in this process; returns the case, and its fault, or none.

    Args:
        run: its directory.
        seed: of the change; negative: none is made.
    """
    from remuda.ui.cli.main import run as remuda
    from remuda.ui.cli.seeds import ONE_OF_SEEDS  # which trains without a report

    with tempfile.TemporaryDirectory() as home:
        copy, said = Path(home) / "run", Path(home) / "said"
        shutil.copytree(run, copy)
        case = change(copy, seed) if seed >= 0 else "unchanged"
        turns = str(json.loads((copy / "turns.json").read_text()) + TURNS)
        out = os.open(said, os.O_WRONLY | os.O_CREAT)
        before = os.dup(2)
        os.dup2(out, 2)
        try:
            words = ["--config", str(copy / "config.yaml"), "--run.directory", str(copy)]
            code = remuda([ONE_OF_SEEDS, *words, "--resume", str(copy), "--run.turns", turns])
        except BaseException:
            traceback.print_exc()
            code = -1
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            os.close(out)
        words = said.read_text(errors="replace")
    if os.environ.get("FUZZ_SAYS"):
        print(f"seed {seed}: {case}: {words.strip()[-300:]}", file=sys.stderr, flush=True)
    return case, fault(code, words, may_refuse=seed >= 0)


def fault(code, said, may_refuse):
    """What is wrong with how a run ended; empty: nothing."""
    lines = [line for line in said.splitlines() if line.strip()]
    is_clear = "Traceback" not in said
    if code in (0, HALTED) and is_clear:
        return ""
    if may_refuse and code in (1, 2) and is_clear and len(lines) == 1 and len(lines[0]) < 1000:
        return ""
    return f"exit code {code}, {len(lines)} lines: {said[-1500:]}"


def child(run, seeds, told):
    """Try cases; says by lines in `told` which it begins, and the fault of each that has one."""
    os.setsid()
    gc.freeze()  # each run collects garbage, and need not look at libraries
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with told:
        for seed in seeds:
            print(json.dumps([seed, None]), file=told, flush=True)
            case, wrong = tried(run, seed)
            print(json.dumps([seed, f"{case}: {wrong}" if wrong else ""]), file=told, flush=True)


def watched(run, seeds):
    """Try cases in a child until it ends; returns the faults, and the seeds that are left."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        child(run, seeds, os.fdopen(writing, "w"))
        os._exit(0)
    os.close(writing)
    faults, left, at, why = [], list(seeds), None, ""
    with os.fdopen(reading, "rb", buffering=0) as told:
        rest = b""
        while True:
            if not select.select([told], [], [], LIMIT)[0]:
                os.killpg(pid, signal.SIGKILL)
                why = "it hangs"
                break
            data = told.read(65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                at, wrong = json.loads(line)
                if wrong is None:
                    left.remove(at)
                    continue
                if wrong:
                    faults.append(f"seed {at}: {wrong}")
                at = None
    status = os.waitpid(pid, 0)[1]
    if status or at is not None:
        faults.append(f"seed {at}: {why or f'it died, status {status}'}, or one before it")
    return faults, left


def main(run, first, count):
    import torch

    import remuda.ui.cli.commands.train  # noqa: F401  # once for all children

    torch.set_num_threads(1)
    left, faults = [-1, *range(first, first + count)], []
    while left:
        found, left = watched(run, left)
        faults += found
        for each in found:
            print(each, flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:4])))
