"""Files of a run that were changed at random: each command ends well, or with one clear line."""

import contextlib
import io
import json
import random
import re
import shutil
import signal

import pytest
import yaml

from remuda.ui.cli.main import run
from remuda.ui.cli.seeds import ONE_OF_SEEDS

WORDS = (
    *("connect_four", "--schedule", "sequential", "--env.num_envs", "3"),
    *("--policy.algorithm", "ppo", "--policy.ppo.rollout_length", "8"),
    *("--policy.network.hidden", "8", "--run.turns", "200", "--run.live", "false"),
    *("--population.matchmaker", "random", "--population.policies", "3"),
    *("--population.snapshots.every", "3", "--population.snapshots.keep", "2"),
    *("--population.births.every", "40", "--population.births.slots", "1"),
    *("--population.births.games", "5", "--population.births.confidence", "0.5"),
    *("--run.evaluate_episodes", "2", "--checkpoint.evaluate_episodes", "2"),
    *("--checkpoint.every", "3600"),
)
FILES = (
    *("status.json", "summary.json", "config.yaml", "metrics.jsonl", "ledger.bin"),
    *("checkpoints/000001/manifest.json", "checkpoints/best.json", "code-paths.json"),
)
COMMANDS = {
    "status": (("status", "RUN"), ("status", "RUN", "--json")),
    "runs": (("runs", "HOME"),),
    "compare": (("compare", "RUN", "OTHER"),),
    "report": (("report", "RUN"),),
}
LIMIT = 60
"""Seconds after which a command hangs: one takes less than three."""
ODD = [
    *(None, True, False, 0, -1, 3, 2**31, 2**40, 2**63, -(2**63), 10**30, 0.5, -1e300, 1e-320),
    *("", "word", "a/b", "../up", "\x1b[2J", "\ud800", "ü" * 300, [], [1], [None], {}, {"a": 1}),
    *(float("nan"), float("inf"), float("-inf"), [[]], {"": None}),
]


def places_in(tree, path=()):
    """The paths of all values in a tree of plain data."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in pairs:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places_in(value, (*path, key))


def changed_tree(tree, draw):
    """A tree with a value that was changed, left out or added."""
    places = list(places_in(tree)) if isinstance(tree, dict | list) else []
    if not places or draw.random() < 0.03:
        return draw.choice(ODD)
    *path, last = draw.choice(places)
    branch = tree
    for key in path:
        branch = branch[key]
    how = draw.random()
    if how < 0.2:
        del branch[last]
    elif how < 0.3 and isinstance(branch, dict):
        branch[draw.choice(["word", "", last + "_"]) if isinstance(last, str) else 0] = branch[last]
    else:
        branch[last] = draw.choice(ODD)
    return tree


def changed_bytes(data, draw):
    """Bytes of which some were changed, cut out, doubled or added."""
    how, at = draw.randrange(6), draw.randrange(len(data) + 1)
    end = min(len(data), at + draw.choice([1, 2, 8, 100]))
    if how == 0:
        return data[:at]
    if how == 1:
        return data[:at] + draw.randbytes(end - at) + data[end:]
    if how == 2:
        return data[:at] + data[end:]
    if how == 3:
        return data[:at] + data[at:end] * 2 + data[end:]
    if how == 4:
        return (
            data[:at] + draw.choice([b"[" * 100_000, b"\xff\xfe", b"\0", b"\n", b'"']) + data[at:]
        )
    place = draw.randrange(8 * max(len(data), 1))
    flipped = bytearray(data or b"\0")
    flipped[place // 8] ^= 1 << place % 8
    return bytes(flipped)


def changed(path, draw):
    """Change a file; by its structure where it has one, or byte by byte."""
    data = path.read_bytes()
    if draw.random() < 0.4 or path.suffix == ".bin":
        path.write_bytes(changed_bytes(data, draw))
    elif path.suffix == ".yaml":
        path.write_text(yaml.safe_dump(changed_tree(yaml.safe_load(data), draw)))
    elif path.suffix == ".jsonl":
        lines = data.splitlines(keepends=True)
        at = draw.randrange(len(lines))
        lines[at] = json.dumps(changed_tree(json.loads(lines[at]), draw)).encode() + b"\n"
        path.write_bytes(b"".join(lines))
    else:
        path.write_text(json.dumps(changed_tree(json.loads(data), draw)))


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A directory with two runs, made once."""
    home = tmp_path_factory.mktemp("fuzzed_files")
    words = [*WORDS, "--run.directory", str(home / "other")]
    assert run([ONE_OF_SEEDS, *words]) == 0  # without a report
    shutil.rmtree(home / "other" / "tensorboard")
    return home


@pytest.fixture
def limited(tmp_path, monkeypatch):
    """A command that hangs is stopped by an exception."""
    monkeypatch.chdir(tmp_path)  # where a comparison is written

    def hang(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, hang)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def fault_of(words):
    """What is wrong with how a command ended; empty: nothing."""
    out, err = io.StringIO(), io.StringIO()
    signal.alarm(LIMIT)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    signal.alarm(0)
    said = out.getvalue() + err.getvalue()
    if re.search(r"Traceback|\b(Attribute|Type|Key|Index|Value|Decode|Recursion)Error", said):
        return f"a traceback: {said[-1500:]}"
    last = [line for line in err.getvalue().splitlines() if line.strip()]
    if code == 0 or (code in (1, 2) and len(last) == 1 and last[0].startswith("remuda: ")):
        return ""
    return f"exit code {code}: {err.getvalue()[-1500:]}"


def tried(home, seed, commands, tmp_path):
    """Change a file of a copy of the run, and give the commands."""
    draw = random.Random(seed)
    place = tmp_path / str(seed)
    directory = place / "run"
    shutil.copytree(home / "other", directory)
    name = draw.choice(FILES)
    if not (directory / name).exists():
        return
    changed(directory / name, draw)
    meant = {"RUN": str(directory), "HOME": str(place), "OTHER": str(home / "other")}
    for command in commands:
        for words in COMMANDS[command]:
            try:
                wrong = fault_of([meant.get(word, word) for word in words])
            except Exception as error:
                error.add_note(f"seed {seed}: {name}, {' '.join(words)}")
                raise
            assert not wrong, f"seed {seed}: {name}, {' '.join(words)}: {wrong}"
    shutil.rmtree(place)


@pytest.mark.usefixtures("limited")
def test_changed_files_are_read_or_told_in_a_line(home, tmp_path):
    for seed in range(8):
        tried(home, seed, ("status", "runs"), tmp_path)


@pytest.mark.long  # for `make fuzz`
@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("first", range(1000, 1004))
def test_many_changed_files_are_read_or_told_in_a_line(first, home, tmp_path):
    for seed in range(first, first + 32, 4):
        drawn = "compare" if seed // 4 % 2 else "report"
        tried(home, seed, ("status", "runs", drawn), tmp_path)
