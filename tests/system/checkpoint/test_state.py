"""State: what is written is what is read, and nothing that is read is code."""

import os
import pickle
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import load, save

from refusals import refuses
from remuda.errors import CheckpointError
from remuda.system.checkpoint.fitting import fitting
from remuda.system.checkpoint.state import (
    pack,
    pieces,
    restore_rng,
    rng_state,
    save_tensors,
    unpack,
    write_whole,
)


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and (one == other).all()
    return one == other


def test_equal_tensors_and_metadata_give_equal_bytes():
    """Red before: the library writes metadata in the random order of a hash map."""
    arrays = {"b": np.arange(3.0), "a": np.ones((2, 2), np.float32), "empty": np.zeros((0, 2))}
    metadata = {name: f"{name} says 'ä'" for name in "qwertyuiop"}
    files = {save_tensors(arrays, metadata) for _ in range(20)}
    assert len(files) == 1
    found = load(files.pop())
    assert found.keys() == arrays.keys()
    assert all((found[name] == array).all() for name, array in arrays.items())


def test_a_state_comes_back_as_it_was():
    random = np.random.Generator(np.random.PCG64DXSM(3))
    random.random(5)
    state = {
        "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
        "nested": {"a.b": np.array(3.5), "empty": np.zeros((2, 0), np.uint64), "none": None},
        "flags": np.array([True, False]),
        "strided": np.arange(10)[::2],
        "count": 2**70,
        "rate": 0.1,
        "list": [1, "two", None],
        "random": rng_state(random),
    }
    found = unpack(pack(state))
    assert same(state, found)
    successor = np.random.Generator(np.random.PCG64DXSM(0))
    restore_rng(successor, found["random"])
    assert (successor.random(9) == random.random(9)).all()


def test_the_library_reads_every_type_of_any_shape():
    kinds = [*np.typecodes["AllInteger"], "e", "f", "d", "?"]
    arrays = {f"{i}": np.arange(12).reshape(3, 4).astype(kind) for i, kind in enumerate(kinds)}
    arrays |= {"scalar": np.array(2.0), "empty": np.zeros((0, 3)), "strided": np.arange(9)[::2]}
    ours = save_tensors(arrays, {"only": "one"})
    assert same(load(ours), arrays)
    assert len(ours) == len(save({name: a.copy() for name, a in arrays.items()}, {"only": "one"}))


def test_arrays_of_either_byte_order_come_back():
    state = {"big": np.arange(5, dtype=">i4"), "little": np.arange(5, dtype="<i4")}
    found = unpack(pack(state))
    assert (found["big"] == state["big"]).all()
    assert (found["little"] == state["little"]).all()


def test_a_state_is_written_without_a_copy_of_its_arrays(tmp_path):
    """The frozen copies of 256 policies were copied twice, which took 1.3 to 3 s a checkpoint."""
    state = {"weights": np.zeros((64, 2**18), np.float32)}
    tracemalloc.start()
    write_whole(tmp_path / "part", pieces(state), sync=False)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < state["weights"].nbytes / 8
    assert same(state, unpack((tmp_path / "part").read_bytes()))


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


@pytest.mark.parametrize(
    "data",
    [b"", b"nothing", pickle.dumps({"a": 1}), pack({"a": np.ones(3)})[:-4], os.urandom(200)],
)
def test_what_is_no_state_is_refused(data):
    with refuses(CheckpointError):
        unpack(data, "the file")


def test_a_malicious_pickle_is_never_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError):
        unpack(pickle.dumps(Malicious()))
    assert not (tmp_path / "pwned").exists()


def test_another_shape_is_told():
    with refuses(CheckpointError):
        fitting({"online": np.zeros((3, 3), np.float32)}, "online", np.zeros((2, 3), np.float32))
    with refuses(CheckpointError):
        fitting({}, "online", np.zeros(1))


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refuses(OSError):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
