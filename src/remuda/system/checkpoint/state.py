"""States of workers in memory and on disk, from which a restarted worker continues exactly.

A state is plain data: nested dictionaries of arrays, numbers, strings and lists of these. On disk
its arrays are the tensors of a safetensors file, named by their path (`algorithm/online`). All else
is one JSON tree in the file's metadata. Reading a state runs no code: pickles are refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from remuda.errors import CheckpointError
from remuda.system.checkpoint.fitting import fitting, rooted, where_is
from remuda.system.checkpoint.opening import checked
from remuda.types import Array, State

if TYPE_CHECKING:
    import torch

Buffer = bytes | memoryview

_REST = "state"  # the key in the metadata for everything except the arrays
_NAMES = {f"float{bits}": f"F{bits}" for bits in (16, 32, 64)} | {"bool": "BOOL"}
_NAMES |= {f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)}
_NAMES |= {f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)}
"""Names of NumPy's types in the safetensors format."""


def pack(state: Mapping[str, Any]) -> bytes:
    """Return the content of a state's file."""
    return b"".join(pieces(state))


def pieces(state: Mapping[str, Any]) -> Iterator[Buffer]:
    """Yield the content of a state's file; arrays must not change until they are written."""
    arrays: dict[str, Array] = {}
    rest = _take_arrays(state, "", arrays)
    return _tensor_file(arrays, {_REST: json.dumps(rest)})


def save_tensors(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Return the content of a safetensors file; equal arrays and metadata give equal bytes."""
    return b"".join(_tensor_file(arrays, metadata))


def _tensor_file(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> Iterator[Buffer]:
    """Yield a safetensors file in pieces: the length of its header, the header, the arrays.

    The safetensors library returns only whole files, which takes several times the memory for
    hundreds of policies, and it writes metadata in random order.
    """
    # The widest dtypes come first, so every array starts on a multiple of its item size.
    ordered = sorted(arrays.items(), key=lambda named: (-named[1].itemsize, named[0]))
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    offset = 0
    for name, array in ordered:
        end = offset + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors start on a multiple of 8 bytes
    yield len(text).to_bytes(8, "little")
    yield text
    for _, array in ordered:
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        yield little.reshape(-1).view(np.uint8).data


def unpack(data: bytes, source: str = "the data") -> State:
    """Return the state in the content of a file."""
    try:
        arrays, metadata = load_tensors(data)
        state: State = checked(json.loads(metadata[_REST]), {})
        for path, array in arrays.items():
            *parents, name = (
                part.replace("%2F", "/").replace("%25", "%") for part in path.split("/")
            )
            branch = state
            for parent in parents:
                branch = branch[parent]
            branch[name] = array
        return rooted(state, source)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{source} is not a Remuda state, or is damaged: {error}") from None


def load_tensors(data: bytes) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays and the metadata in the content of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(data)
    except (SafetensorError, KeyError) as error:
        raise ValueError(str(error)) from None
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return arrays, header.get("__metadata__") or {}


def write_whole(path: Path, data: bytes | Iterable[Buffer], *, sync: bool = True) -> None:
    """Replace a file atomically, by way of a temporary file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sweep(directory: Path) -> None:
    """Remove the temporary files of `write_whole` whose processes were killed."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            match = re.fullmatch(r"\..+\.(\d{1,9})\.tmp", entry.name)  # with a process id
            if match and not psutil.pid_exists(int(match[1])):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def rng_state(random: np.random.Generator) -> dict[str, Any]:
    """Return the state of a NumPy generator as plain data."""
    return dict(random.bit_generator.state)


def restore_rng(random: np.random.Generator, state: Mapping[str, Any]) -> None:
    """Restore a NumPy generator from `rng_state`."""
    try:
        random.bit_generator.state = dict(state)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        where = getattr(state, "where", "a generator of random numbers ").rstrip("/")
        raise CheckpointError(f"{where} is not the state of a generator: {error}") from None


def restore_torch(generator: torch.Generator, state: Mapping[str, Any], name: str) -> None:
    """Restore a torch generator from the bytes `name` of a state."""
    import torch

    saved = fitting(state, name, generator.get_state().numpy())
    try:
        generator.set_state(torch.from_numpy(saved))
    except RuntimeError:
        raise CheckpointError(f"{where_is(state, name)} is not the state of a generator") from None


def _take_arrays(state: Mapping[str, Any], prefix: str, arrays: dict[str, Array]) -> State:
    """Return `state` without its arrays, which are added to `arrays` by their paths."""
    rest: State = {}
    for name, value in state.items():
        path = prefix + name.replace("%", "%25").replace("/", "%2F")
        if isinstance(value, np.ndarray):
            arrays[path] = np.ascontiguousarray(value).reshape(value.shape)
        elif isinstance(value, Mapping):
            rest[name] = _take_arrays(value, f"{path}/", arrays)
        else:
            rest[name] = value
    return rest
