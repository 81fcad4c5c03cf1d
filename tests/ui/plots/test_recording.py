from __future__ import annotations

import errno
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest
from PIL import Image

from refusals import refuses
from remuda.errors import RunDirectoryError, UsageError
from remuda.types import Array
from remuda.ui.plots.recording import check_format, write_recording


def a_game(frames: int = 30, size: int = 160) -> list[Array]:
    """A red square that moves over a grid."""
    board = np.full((size, size + 40, 3), 240, np.uint8)
    board[::16] = board[:, ::16] = 200
    pictures = []
    for i in range(frames):
        picture = board.copy()
        picture[20:35, 4 * i : 4 * i + 15] = (200, 30, 40)
        pictures.append(picture)
    return pictures


def test_what_was_written_can_be_read(tmp_path: Path) -> None:
    frames = a_game()
    path = tmp_path / "play.gif"
    write_recording(frames, path, frames_per_second=10)
    assert np.array_equal(imageio.imread(path), frames)
    with Image.open(path) as image:
        assert image.format == "GIF"
        assert image.n_frames == 30
        assert image.size == (200, 160)
        assert image.info["loop"] == 0
        assert image.info["duration"] == 100


def test_the_file_is_small(tmp_path: Path) -> None:
    frames = a_game()
    write_recording(frames, tmp_path / "play.gif")
    assert (tmp_path / "play.gif").stat().st_size < sum(f.nbytes for f in frames) / 100


def test_many_colours_are_told_nearly(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 200).astype(np.uint8)
    frame = np.stack([np.tile(ramp, (150, 1)), np.tile(ramp[:150, None], (1, 200))] * 2, -1)[
        ..., :3
    ]
    path = tmp_path / "play.gif"
    write_recording([frame, frame[::-1].copy()], path)
    assert np.abs(imageio.imread(path).astype(int) - [frame, frame[::-1]]).mean() < 12


def test_equal_frames_keep_their_time(tmp_path: Path) -> None:
    first, second = a_game(2)
    path = tmp_path / "play.gif"
    write_recording([first, first, first, second], path, frames_per_second=10)
    with Image.open(path) as image:
        assert image.n_frames == 2
        assert image.info["duration"] == 300


def test_a_single_frame(tmp_path: Path) -> None:
    write_recording(a_game(1), tmp_path / "play.gif")
    assert imageio.imread(tmp_path / "play.gif", index=0).shape == (160, 200, 3)


@pytest.mark.parametrize("frames_per_second", [1, 8, 50, 1000])
def test_any_speed(tmp_path: Path, frames_per_second: int) -> None:
    write_recording(a_game(3), tmp_path / "play.gif", frames_per_second)
    with Image.open(tmp_path / "play.gif") as image:
        assert image.n_frames == 3
        assert image.info["duration"] == max(round(100 / frames_per_second) * 10, 20)


def test_a_failed_write_leaves_the_old_file_and_no_half_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "play.gif"
    path.write_bytes(b"the old one")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with refuses(RunDirectoryError):
        write_recording(a_game(), path)
    assert path.read_bytes() == b"the old one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with refuses(RunDirectoryError):
        write_recording(a_game(2), tmp_path / "nowhere" / "play.gif")


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [np.zeros((4, 4), np.uint8)],
        [np.zeros((4, 4, 3), np.float32)],
        [np.zeros((4, 4, 3), np.uint8), np.zeros((4, 5, 3), np.uint8)],
    ],
)
def test_what_are_no_frames(tmp_path: Path, frames: list[Array]) -> None:
    with refuses(ValueError):
        write_recording(frames, tmp_path / "play.gif")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [160, 161])
def test_a_film_is_one(tmp_path: Path, size: int) -> None:
    pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / "play.mp4"
    frames = a_game(12, size)
    write_recording(frames, path, 10)
    assert path.read_bytes()[4:8] == b"ftyp"
    found = imageio.imread(path)
    assert len(found) == 12
    near = found[:, :160, :200].astype(int) - np.stack(frames)[:, :160, :200]
    assert np.abs(near).mean() < 6


def test_a_name_says_what_is_written(tmp_path: Path) -> None:
    write_recording(a_game(2), tmp_path / "play.GIF")
    assert (tmp_path / "play.GIF").read_bytes().startswith(b"GIF89a")
    for name in ("play.avi", "play", "play.png"):
        with refuses(UsageError):
            check_format(tmp_path / name)


def test_a_film_needs_what_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.ui.plots.recording.find_spec", lambda name: None)
    with refuses(UsageError):
        check_format(tmp_path / "play.mp4")
