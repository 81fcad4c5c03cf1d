"""Changes numbers in the checkpoint of a run, with checksums that fit, and resumes it in a child.

    python tests/checkpoint_fuzz.py RUN FIRST COUNT

Each case is a seed. A child of this process resumes a copy of the run. It may train, or say in one
line what is wrong; anything else is printed, with its seed, and the exit code is 1.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from remuda.checkpoint.state import pack, unpack

LIMIT = 120.0
"""Seconds after which a child hangs: one takes less than two."""
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


def resume(directory, said):
    """Resume the run in a child; returns its exit status as `os.waitpid` has it, None: it hangs."""
    child = os.fork()
    if child == 0:
        os.setsid()
        out = os.open(said, os.O_WRONLY | os.O_CREAT)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(out, 2)
        code = 99
        with contextlib.suppress(BaseException):
            from remuda.ui.cli import run

            turns = str(json.loads((directory / "turns.json").read_text()) + 300)
            code = run(["train", "--resume", str(directory), "--run.turns", turns])
        os._exit(code)
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return os.waitpid(child, 0)[1]
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def fault(status, said):
    """What is wrong with how a child ended; empty: nothing."""
    if status is None:
        return f"it hangs: {said[-300:]}"
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    code = os.waitstatus_to_exitcode(status)
    lines = [line for line in said.splitlines() if line.strip()]
    if code == 0 and "Traceback" not in said:
        return ""
    if code in (1, 2) and "Traceback" not in said and len(lines) == 1 and len(lines[0]) < 1000:
        return ""
    return f"exit code {code}, {len(lines)} lines: {said[-1500:]}"


def main(run, first, count):
    import remuda.ui.commands.train  # noqa: F401  # once for all children

    faults = 0
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as home:
            copy = Path(home) / "run"
            shutil.copytree(run, copy)
            what = change(copy, seed)
            status = resume(copy, Path(home) / "said")
            said = (Path(home) / "said").read_text(errors="replace")
        wrong = fault(status, said)
        if wrong:
            faults += 1
            print(f"seed {seed}: {what}: {wrong}\n", flush=True)
        elif os.environ.get("FUZZ_SAYS"):
            print(f"seed {seed}: {what}: {said.strip()[-300:]}", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:4])))
