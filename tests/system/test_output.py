"""The standard streams: what is written inside `unfailing()` neither blocks nor raises."""

import contextlib
import io
import logging
import os
import subprocess
import sys
import time

import pytest

from refusals import refuses
from remuda.system import output

LINE = b"x" * 1023 + b"\n"


@pytest.fixture
def unfailing():
    with output.unfailing():
        yield


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield read, write
    for descriptor in (read, write):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def drained(read, sink):
    found = b""
    while not found.endswith(b"not read]\n"):
        found += os.read(read, 1 << 20)
    return found


def test_a_stalled_reader_is_not_waited_for_and_is_told_what_it_missed(pipe, unfailing):
    read, write = pipe
    sink = output.Sink(write)
    begun = time.monotonic()
    for _ in range(2_000):
        sink.write(LINE)
    assert time.monotonic() - begun < 30.0
    assert not sink.finish(0.01)
    lines = drained(read, sink).splitlines()
    kept = lines.count(LINE[:-1])
    assert kept * len(LINE) >= output.MOST
    assert lines[-1] == b"[%d lines are missing here: the output was not read]" % (2_000 - kept)
    sink.write(LINE)
    assert os.read(read, 4096) == LINE


def test_one_text_larger_than_the_queue_arrives_whole(pipe, unfailing):
    read, write = pipe
    sink, data = output.Sink(write), os.urandom(output.MOST * 2)
    sink.write(data)
    found = b""
    while len(found) < len(data):
        found += os.read(read, 1 << 20)
    assert found == data


def test_lines_of_two_outputs_keep_their_order(pipe, unfailing):
    read, write = pipe
    sinks = output.Sink(write), output.Sink(os.dup(write))
    for number in range(20):
        sinks[number % 2].write(b"%d " % number)
    assert os.read(read, 4096).split() == [b"%d" % number for number in range(20)]


def test_a_reader_that_is_gone_ends_nothing(pipe, unfailing):
    read, write = pipe
    os.close(read)
    sink = output.Sink(write)
    for _ in range(3):
        assert sink.write(LINE) == len(LINE)
    assert sink.finish(1.0)


def test_a_disk_with_room_again_is_written_again(tmp_path, monkeypatch, unfailing):
    file = (tmp_path / "log").open("wb", buffering=0)
    sink, full = output.Sink(os.open("/dev/full", os.O_WRONLY)), file.fileno()
    sink.write(b"lost\n")
    assert sink.finish(30.0)
    os.dup2(full, sink.fileno())
    sink.write(b"kept\n")
    assert sink.finish(30.0)
    assert (tmp_path / "log").read_bytes() == b"kept\n"


def test_outside_it_raises_what_it_cannot_write(pipe):
    read, write = pipe
    os.close(read)
    with pytest.raises(BrokenPipeError):
        output.Sink(write).write(LINE)
    with refuses(output.OutputError):
        output.Sink(os.open("/dev/full", os.O_WRONLY)).write(LINE)


@pytest.mark.process
def test_a_forked_child_writes_too(pipe, unfailing):
    read, write = pipe
    sink = output.streams.setdefault(-1, (output.Sink(write), io.StringIO()))[0]
    try:
        sink.write(b"parent ")
        pid = os.fork()
        if pid == 0:
            sink.write(b"child")
            sink.finish(30.0)
            os._exit(0)
        os.waitpid(pid, 0)
        assert os.read(read, 4096) == b"parent child"
    finally:
        del output.streams[-1]


@pytest.mark.parametrize(
    ("encoding", "text", "expected"),
    [
        ("ascii", "1 ± 2 – ▄ é", b"1 +/- 2 - ? ?"),
        ("latin-1", "1 ± 2 … ▄", b"1 \xb1 2 ... ?"),
        ("utf-8", "± \udc80 \ud800", "± ".encode() + b"\x80 ?"),
    ],
)
def test_characters_that_an_encoding_lacks_are_replaced(encoding, text, expected):
    assert text.encode(encoding, output.ERRORS) == expected


@pytest.mark.parametrize("name", ["", "of_the_user"], ids=["root", "own"])
def test_log_handlers_that_a_script_made_before_follow_and_come_back(name, pipe, monkeypatch):
    """One of them kept the original stream, and blocked a run with a stopped terminal."""
    read, write = pipe
    # Closes no descriptor: the fixture does.
    original = io.TextIOWrapper(io.BufferedWriter(io.FileIO(write, "w", closefd=False)))
    monkeypatch.setattr(sys, "stderr", original)
    handler, other = logging.StreamHandler(), logging.StreamHandler(io.StringIO())
    logger = logging.getLogger(name)
    for each in (handler, other):
        logger.addHandler(each)
    try:
        with output.unfailing():
            assert handler.stream is sys.stderr
            assert handler.stream is not original
            for _ in range(2 * output.MOST // len(LINE)):
                logger.warning(LINE.decode())
            os.set_blocking(read, False)  # the last piece may be read before it counts as written
            while output.streams[write][0].size:  # else the end waits for a reader
                with contextlib.suppress(BlockingIOError):
                    os.read(read, 1 << 20)
        assert handler.stream is original
        logger.warning("after")
        assert os.read(read, 1 << 20).endswith(b"after\n")
        assert other.stream.getvalue().endswith("after\n")
    finally:
        for each in (handler, other):
            logger.removeHandler(each)
        output.streams.pop(write, None)


@pytest.mark.process
@pytest.mark.parametrize(
    ("flags", "stream", "text"),
    [
        ([], "stderr", "a line\\n"),
        *((["-u"], stream, text) for stream in ("stdout", "stderr") for text in ("a line\\n", "a")),
    ],
)
def test_text_is_out_as_soon_as_without_sinks(flags, stream, text):
    """Red before: with `-u`, or PYTHONUNBUFFERED, text stayed in a buffer, and a kill lost it."""
    program = (
        "import os, sys; from remuda.system import output; output.install(); "
        f"sys.{stream}.write('{text}'); os._exit(0)"
    )
    ended = subprocess.run(
        [sys.executable, *flags, "-c", program], capture_output=True, text=True, check=True
    )
    assert getattr(ended, stream) == text.replace("\\n", "\n")
