"""The program's end: quick, and nothing is left undone."""

import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
import zipfile

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
import atexit, sys, threading, time
from remuda.ui.cli.program import leave

class Slow:
    def __del__(self):
        print("taken apart")

def later():
    time.sleep(0.2)
    print("thread")

held = Slow()
atexit.register(print, "registered")
threading.Thread(target=later).start()
print("told", end=" ")
{code}
"""


def run(code, **options):
    words = [sys.executable, "-c", PROGRAM.format(code=code)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    environment = os.environ | {"PYTHONUNBUFFERED": ""}
    return subprocess.run(words, text=True, env=environment, **options)


@pytest.mark.parametrize(
    ("code", "expected"), [("None", 0), ("0", 0), ("3", 3), ("True", 1), ("'no such game'", 1)]
)
def test_it_ends_with_the_code_and_what_was_registered(code, expected):
    ended = run(f"leave({code})")
    assert ended.returncode == expected
    assert ended.stdout == "told thread\nregistered\n", "and nothing is taken apart"
    assert ended.stderr == ("no such game\n" if "game" in code else "")


def test_output_that_nobody_takes_is_a_failure():
    with open("/dev/full", "w") as full:
        assert run("leave(0)", stdout=full).returncode == 120


@pytest.mark.parametrize("before", ["pass", "import gc; gc.freeze()"])
def test_what_a_game_wrote_to_a_file_that_it_holds_open_is_there(before, tmp_path):
    file = tmp_path / "moves.txt"
    assert (
        run(f"moves = open({str(file)!r}, 'w'); moves.write('up'); {before}; leave(0)").stderr == ""
    )
    assert file.read_text() == "up"


FILES = """
import bz2, gzip, io, lzma, tempfile, zipfile

class Shouting(io.TextIOBase):
    def __init__(self, file):
        self.file, self.said = file, []
    def write(self, text):
        self.said.append(text.upper())
    def close(self):
        if not self.closed:
            self.file.write("".join(self.said))
        super().close()

class Broken(io.RawIOBase):
    def close(self):
        raise SystemExit("of no interest")

Broken.held = Broken()
packed = gzip.open("packed.gz", "wt"); packed.write("up")
under = open("under.gz", "wb"); over = gzip.GzipFile(fileobj=under, mode="wb"); over.write(b"down")
bz = bz2.open("moves.bz2", "wt"); bz.write("left")
xz = lzma.open("moves.xz", "wt"); xz.write("right")
loud = Shouting(gzip.open("loud.gz", "wt")); loud.write("jump")
inner = gzip.open("inner.gz", "wt"); outer = Shouting(inner); outer.write("fall")
archive = zipfile.ZipFile("moves.zip", "w"); archive.writestr("first", "stay")
member = archive.open("second", "w"); member.write(b"go")
passing = tempfile.NamedTemporaryFile("w", dir=".", prefix="passing"); passing.write("gone")
staying = tempfile.NamedTemporaryFile("w", dir=".", prefix="staying", delete=False)
staying.write("there")
loop = [archive, outer]; loop.append(loop)
"""


def test_files_that_a_game_holds_open_are_ended_from_the_outermost_inwards(tmp_path):
    """A packed file without its end cannot be read, and a temporary one is not to stay."""
    script = f"from remuda.ui.cli.program import leave\n{FILES}\nleave(0)"
    words = [sys.executable, "-c", script]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0
    wrote = {"packed": b"up", "under": b"down", "loud": b"JUMP", "inner": b"FALL"}
    for name, said in wrote.items():
        assert gzip.decompress((tmp_path / f"{name}.gz").read_bytes()) == said, name
    assert bz2.decompress((tmp_path / "moves.bz2").read_bytes()) == b"left"
    assert lzma.decompress((tmp_path / "moves.xz").read_bytes()) == b"right"
    with zipfile.ZipFile(tmp_path / "moves.zip") as archive:
        assert archive.read("first") == b"stay"
        assert archive.read("second") == b"go"
    assert not list(tmp_path.glob("passing*"))
    assert [path.read_text() for path in tmp_path.glob("staying*")] == ["there"]


def test_an_output_of_a_kind_of_its_own_is_written_to_the_end():
    code = (
        "import io, sys, builtins\n"
        "class Own(io.RawIOBase):\n"
        "    def writable(self): return True\n"
        "    def write(self, data): return sys.__stdout__.buffer.write(data)\n"
        "sys.stdout = io.TextIOWrapper(io.BufferedWriter(Own())); print('by its own')\n"
        "leave(0)"
    )
    ended = run(code)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "by its own" in ended.stdout


TEE = """
import sys, gzip
class Tee:
    def __init__(self, log):
        self.terminal, self.log = sys.stdout, log
    def write(self, text):
        self.terminal.write(text); self.log.write(text)
    def flush(self):
        pass
"""


@pytest.mark.parametrize(
    ("log", "read"),
    [("open('log', 'w')", lambda data: data), ("gzip.open('log', 'wt')", gzip.decompress)],
    ids=["plain", "packed"],
)
def test_what_an_output_of_the_games_own_writes_besides_is_there(log, read, tmp_path):
    """It holds the file itself, and flushes nothing."""
    script = f"{TEE}\nfrom remuda.ui.cli.program import leave\nsys.stdout = Tee({log})"
    words = [sys.executable, "-c", f"{script}\nprint('both'); leave(0)"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "both\n", "")
    assert read((tmp_path / "log").read_bytes()) == b"both\n"


@pytest.mark.parametrize(
    "instead",
    [
        "sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')",
        "sys.stdout.close(); sys.stdout = open(os.devnull, 'w')",
        "sys.stdout.close()",
        "sys.stdout = io.TextIOWrapper(gzip.open('packed', 'wb'))",
    ],
)
def test_an_output_that_a_game_took_the_place_of_is_no_failure(instead, tmp_path):
    script = f"import gzip, io, os, sys\nfrom remuda.ui.cli.program import leave\n{instead}"
    words = [sys.executable, "-c", f"{script}\nsys.stdout.closed or print('told')\nleave(0)"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    packed = tmp_path / "packed"
    if packed.exists():
        assert gzip.decompress(packed.read_bytes()) == b"told\n"
    else:
        assert ended.stdout == ("told\n" if "detach" in instead else "")


def test_an_error_of_no_known_letters_is_told_where_stderr_is_closed():
    words = [sys.executable, "-m", "remuda", "train", "--config", b"\xff"]
    found = subprocess.run(words, preexec_fn=lambda: os.close(2))
    assert found.returncode == 2, "the error's own code"


def test_a_program_without_an_output_ends_well():
    words = [sys.executable, "-m", "remuda", "--version"]
    assert subprocess.run(words, preexec_fn=lambda: os.close(1)).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("closed", [(1,), (0, 1, 2)])
def test_a_run_without_an_output_is_made_to_its_end(closed, tmp_path):
    words = ("train", "treasure_hunt", "--schedule", "async", "--run.turns", "60")
    words += ("--policy.network.hidden", "8", "--run.evaluate_episodes", "0")
    words += ("--checkpoint.evaluate_episodes", "0", "--run.directory", str(tmp_path / "run"))

    def close():
        for number in closed:
            os.close(number)

    program = [sys.executable, "-m", "remuda", *words]
    assert subprocess.run(program, cwd=tmp_path, preexec_fn=close, timeout=300).returncode == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["ended"] == "all turns were played"
    assert summary["restarts"] == {}


@pytest.mark.slow_cases("words1", "words2")
@pytest.mark.parametrize("words", [["train", "--help"], ["exploit", "--help"], ["games"]])
def test_output_whose_reader_is_gone_shows_no_traceback(words):
    program = [sys.executable, "-m", "remuda", *words]
    ended = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ended.stdout.close()
    assert ended.communicate()[1] == ""
    assert ended.returncode == 1
