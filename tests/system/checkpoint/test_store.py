"""The store: checkpoints are whole or not there, and damage is found and told."""

import contextlib
import errno
import hashlib
import json
import os

import numpy as np
import pytest

from refusals import refuses
from remuda.errors import CheckpointError
from remuda.system.checkpoint.store import Checkpoints, Manifest, OtherFormatError, differences


def take(store, value=0, parts=("a", "b")):
    number = store.begin()
    for part in parts:
        store.write(number, part, {"value": value, "array": np.full(3, value)})
    store.commit(Manifest(number, 10 * value, 1.0, False, {"seed": 1}, {}))
    return number


def test_what_is_committed_is_read(tmp_path):
    store = Checkpoints(tmp_path / "checkpoints")
    assert store.numbers() == []
    assert store.newest("a") is None
    assert store.newest_whole(print) is None
    take(store, 1)
    assert take(store, 2) == 2
    assert store.read(1, "a")["value"] == 1
    assert store.newest("b")["array"].tolist() == [2, 2, 2]
    assert store.newest("c") is None
    assert store.newest_whole(print).turns == 20


def test_what_is_not_committed_is_never_seen(tmp_path):
    store = Checkpoints(tmp_path)
    take(store, 1)
    number = store.begin()
    store.write(number, "a", {"value": 2})  # and here the coordinator died
    assert store.numbers() == [1]
    assert store.newest("a")["value"] == 1
    successor = Checkpoints(tmp_path)
    number = successor.begin()
    assert number == 2
    assert list(store.partial(number).iterdir()) == []
    successor.abandon(number)
    assert successor.begin() == 3, "a number is never given twice"
    successor.abandon(3)
    assert not list(tmp_path.glob(".*"))
    with refuses(OSError):
        store.write(number, "a", {})  # a role that is late


def truncate(path):
    os.truncate(path, path.stat().st_size - 1)


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [truncate, flip, lambda path: path.unlink()])
@pytest.mark.parametrize("name", ["a.safetensors", "manifest.json"])
def test_damage_falls_back_to_the_one_before_and_says_so(harm, name, tmp_path):
    if harm is flip and name == "manifest.json":
        name = "b.safetensors"  # a flipped brace is a truncated manifest
    store = Checkpoints(tmp_path)
    take(store, 1)
    take(store, 2)
    harm(tmp_path / "000002" / name)
    assert store.newest("a")["value"] == (2 if name.startswith("b") else 1)
    said = []
    assert store.newest_whole(said.append).turns == 10
    assert len(said) == 1
    assert name in said[0]
    assert "falling back" in said[0]
    assert (tmp_path / "damaged-000002").is_dir()
    assert store.newest_whole(said.append).turns == 10
    assert len(said) == 1


def test_another_format_is_refused_and_left_alone(tmp_path):
    store = Checkpoints(tmp_path)
    take(store, 1)
    take(store, 2)
    path = tmp_path / "000002" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with refuses(OtherFormatError):
        store.newest_whole(print)
    assert store.numbers() == [1, 2]


def test_the_last_ones_and_the_best_are_kept(tmp_path):
    store = Checkpoints(tmp_path)
    for value in range(1, 7):
        take(store, value)
        if value == 2:
            store.mark_best({"checkpoint": 2, "mean_return": 5.0})
        store.keep(3)
    assert store.numbers() == [2, 4, 5, 6]
    assert store.best()["mean_return"] == 5.0


def test_a_part_is_carried_over(tmp_path):
    store = Checkpoints(tmp_path)
    number = store.begin()
    assert not store.carry_over(number, "a")
    store.abandon(number)
    take(store, 1)
    number = store.begin()
    store.write(number, "b", {"value": 2})
    assert store.carry_over(number, "a")
    store.commit(Manifest(number, 20, 1.0, False, {}, {}))
    store.keep(1)
    assert store.numbers() == [number]
    assert (store.read(number, "a")["value"], store.read(number, "b")["value"]) == (1, 2)


def carry(store, value):
    """Take a checkpoint with part b alone, which names a's newest."""
    number = store.begin()
    store.write(number, "b", {"value": value})
    assert store.carry_over(number, "a")
    store.commit(Manifest(number, 10 * value, 1.0, False, {}, {}))
    return number


def test_a_part_that_was_damaged_since_never_becomes_whole(tmp_path):
    """It was linked, and hashed anew: a resumed policy then lost every game."""
    store = Checkpoints(tmp_path)
    take(store, 1)
    take(store, 2)
    carry(store, 3)
    flip(tmp_path / "000002" / "a.safetensors")
    with refuses(CheckpointError):
        store.verify(3)
    with refuses(CheckpointError):
        store.read(3, "a")
    carry(store, 4)
    assert store.read(4, "a")["value"] == 1, "the newest that is whole"
    for number in (1, 2, 3, 4):
        flip(store.file(store.manifest(number), "b.safetensors"))
    flip(tmp_path / "000001" / "a.safetensors")
    assert not store.carry_over(store.begin(), "a")


def test_a_part_that_a_kept_checkpoint_names_outlives_its_own(tmp_path):
    store = Checkpoints(tmp_path)
    take(store, 1)
    for value in range(2, 6):
        carry(store, value)
        store.keep(2)
        assert store.newest("a")["value"] == 1
    assert store.numbers() == [4, 5]
    assert [path.name for path in (tmp_path / "parts-000001").iterdir()] == ["a.safetensors"]
    assert store.manifest(5).earlier == {"a.safetensors": 1}
    assert not any(path.stat().st_nlink > 1 for path in tmp_path.rglob("*.safetensors"))
    take(store, 6)
    store.keep(1)
    assert not list(tmp_path.glob("parts-*"))
    assert store.numbers() == [6]


@pytest.mark.parametrize("name", ["../a.safetensors", ".a.safetensors", "a", "b/c.safetensors"])
def test_a_manifest_names_no_other_files(name, tmp_path):
    store = Checkpoints(tmp_path)
    take(store, 1)
    path = tmp_path / "000001" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"files": {name: "0"}}))
    with refuses(CheckpointError):
        store.verify(1)


def test_a_missing_part_is_told(tmp_path):
    store = Checkpoints(tmp_path)
    take(store, 1)
    with refuses(CheckpointError, "c.safetensors"):
        store.read(1, "c")


def test_differences_name_their_keys():
    one = {"seed": 1, "policy": {"n_steps": 3, "network": {"hidden": [8]}}}
    other = {"seed": 1, "policy": {"n_steps": 5, "network": {"hidden": [8]}}, "game": "x"}
    assert list(differences(one, one)) == []
    assert list(differences(one, other)) == [
        "policy.n_steps was 3 and is 5",
        "game was None and is x",
    ]


def test_nothing_is_set_aside_where_none_is_whole(tmp_path):
    store = Checkpoints(tmp_path)
    for value in (1, 2):
        take(store, value)
        truncate(tmp_path / f"{value:06d}" / "a.safetensors")
    assert store.newest_whole(print) is None
    assert store.numbers() == [1, 2]


def test_what_was_set_aside_before_is_kept(tmp_path):
    store = Checkpoints(tmp_path)
    take(store, 1)
    for _ in range(2):
        number = take(store, 2)
        truncate(tmp_path / f"{number:06d}" / "a.safetensors")
        assert store.newest_whole(lambda _: None).number == 1
        store = Checkpoints(tmp_path)
    assert {path.name for path in tmp_path.glob("damaged-*")} == {
        "damaged-000002",
        "damaged-000002-2",
    }


def test_a_part_that_comes_too_late_spoils_nothing(tmp_path, monkeypatch):
    """A role that was taken for dead writes its part while the checkpoint is being completed."""
    store = Checkpoints(tmp_path)
    digest = hashlib.file_digest

    def late(*of):
        found = digest(*of)
        with contextlib.suppress(OSError):
            store.write(1, "a", {"value": "late"})
        return found

    monkeypatch.setattr(hashlib, "file_digest", late)
    take(store, 1)
    monkeypatch.undo()
    store.verify(1)
    assert store.read(1, "a")["value"] == 1
    with refuses(OSError):
        store.write(1, "a", {"value": "later"})


def test_a_part_that_comes_just_before_it_would_be_carried_over_is_the_part(tmp_path):
    """No checkpoint was written then: "File exists". A busy machine with 256 policies showed it."""
    store = Checkpoints(tmp_path)
    take(store, 1)
    number = store.begin()
    store.write(number, "a", {"value": "late"})
    assert store.carry_over(number, "a")
    store.commit(Manifest(number, 2, 1.0, False, {}, {}))
    assert store.verify(number).number == number
    assert store.read(number, "a")["value"] == "late"
    assert store.read(1, "a")["value"] == 1


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"3", b"{}", b'{"checkpoint": []}', b"\xff"]
)
def test_a_damaged_note_of_the_best_is_as_none(content, tmp_path):
    store = Checkpoints(tmp_path)
    take(store, 1)
    (tmp_path / "best.json").write_bytes(content)
    assert store.best() is None
    store.keep(1)
    store.mark_best({"checkpoint": 1, "mean_return": 1.0})
    assert store.best()["checkpoint"] == 1


@pytest.mark.parametrize("name", ["format", "turns", "seconds", "exact", "config", "files"])
@pytest.mark.parametrize("value", [[], None, "words"])
def test_a_manifest_of_the_wrong_kind_is_damaged(name, value, tmp_path):
    store = Checkpoints(tmp_path)
    take(store, 1)
    path = tmp_path / "000001" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {name: value}))
    with refuses(CheckpointError):
        store.verify(1)


@pytest.mark.parametrize("content", [b"[]", b"null", b"3", b'"words"'])
def test_a_manifest_that_holds_no_names_is_damaged(content, tmp_path):
    store = Checkpoints(tmp_path)
    take(store, 1)
    (tmp_path / "000001" / "manifest.json").write_bytes(content)
    with refuses(CheckpointError):
        store.verify(1)


def test_nothing_is_set_aside_where_the_whole_one_cannot_be_gone_on_from(tmp_path):
    store = Checkpoints(tmp_path)
    take(store, 1)
    take(store, 2)
    truncate(tmp_path / "000002" / "a.safetensors")

    def refuse(found):
        raise CheckpointError(f"not from {found.turns}")

    with refuses(CheckpointError):
        store.newest_whole(print, refuse)
    assert store.numbers() == [1, 2]
    assert store.newest_whole(print).turns == 10
    assert store.numbers() == [1]


@pytest.mark.parametrize("harm", [lambda path: path.write_bytes(b"{"), lambda path: path.unlink()])
def test_a_best_checkpoint_without_a_manifest_does_not_keep_all_others(harm, tmp_path):
    store = Checkpoints(tmp_path)
    for value in (1, 2):
        take(store, value)
    store.mark_best({"checkpoint": 1, "mean_return": 5.0})
    harm(store.directory(1) / "manifest.json")
    for value in (3, 4, 5):
        take(store, value)
        store.keep(2)
    assert store.numbers() == [1, 4, 5]


def test_a_manifest_that_cannot_be_read_just_now_costs_no_part(tmp_path, monkeypatch):
    store = Checkpoints(tmp_path)
    take(store, 1)
    carry(store, 2)
    take(store, 3)

    def refuse(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        store.keep(2)
    store.keep(2)
    assert store.numbers() == [2, 3]
    assert store.read(2, "a")["value"] == 1


def test_a_new_checkpoint_is_not_taken_for_the_best_that_was_set_aside(tmp_path):
    store = Checkpoints(tmp_path)
    for value in (1, 2):
        take(store, value)
    store.mark_best({"checkpoint": 2, "mean_return": 5.0})
    flip(store.directory(2) / "a.safetensors")
    successor = Checkpoints(tmp_path)
    assert successor.newest_whole(lambda _: None).number == 1
    take(successor, 3)
    assert successor.best() is None


def test_a_best_return_that_is_no_number_is_as_none(tmp_path):
    store = Checkpoints(tmp_path)
    take(store, 1)
    store.mark_best({"checkpoint": 1, "mean_return": float("nan")})
    assert store.best() is None
