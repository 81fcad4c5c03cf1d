"""Files of runs that are pipes, huge or nested: each is refused at once, in a line."""

import os

from refusals import refuses
from remuda.config.plain import RefusedYAMLError, read_yaml
from remuda.config.reading import read_tree
from remuda.errors import CheckpointError, ConfigError, RunDirectoryError
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.opening import open_file, read_checked, read_file, read_json
from remuda.system.checkpoint.store import Checkpoints


def pipe(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def test_a_pipe_is_no_file_and_blocks_nobody(tmp_path):
    """Red before: each of these waited for a writer for ever."""
    fifo = pipe(tmp_path / "status.json")
    for opened in (open_file, read_file, read_json):
        with refuses(OSError):
            opened(fifo)
    with refuses(RunDirectoryError):
        read_checked(fifo, dict, "it is missing")
    with refuses(ConfigError):
        read_tree(pipe(tmp_path / "config.yaml"))
    pipe(tmp_path / "lock")
    assert not RunDirectory(tmp_path).is_running()
    with refuses(RunDirectoryError):
        RunDirectory(tmp_path).lock()
    store = Checkpoints(tmp_path / "checkpoints")
    pipe(store.path / "000001" / "manifest.json")
    with refuses(CheckpointError):
        store.manifest(1)
    pipe(store.path / "best.json")
    assert store.best() is None


def test_a_file_has_a_size_and_a_depth(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text("[" * 200_000)
    with refuses(ValueError):
        read_json(path)
    with refuses(OSError):
        read_file(path, 1000)


def test_half_of_a_character_is_no_text():
    """Red before: `remuda compare` ended in a traceback of the library that draws."""
    with refuses(RefusedYAMLError):
        read_yaml('a: 1\nb: "\\ud800"')
    assert read_yaml('b: "\\udcff"') == {"b": "\udcff"}


def test_aliases_of_aliases_are_counted():
    """Red before: ten lines took 5.7 GB."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for i in range(1, 9):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]")
    with refuses(RefusedYAMLError):
        read_yaml("\n".join(lines))
    assert read_yaml("a: &a [1, 2]\nb: *a\nc: [*a, *a]") == {
        "a": [1, 2],
        "b": [1, 2],
        "c": [[1, 2], [1, 2]],
    }
