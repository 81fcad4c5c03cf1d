"""What the coordinator and the process that analyses its population send each other, as bytes.

A message is handed over whole or not at all by the socket, so neither end ever sees a part.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import numpy.typing as npt

from remuda.coordinator.population_record import AnalysisNumbers
from remuda.types import Integers

Numbers = npt.NDArray[np.float64]
LONGEST = 1 << 16
"""Bytes of a message, at most."""
NUMBERS = tuple(field.name for field in fields(AnalysisNumbers))
COUNTS = ("analysed", "nash_support")
"""Those that are whole."""
ANSWER, ERROR = b"A", b"E"


def request(members: Integers) -> bytes:
    """The members to look at: [N, 2] the number of each one's policy and its version, -1: live."""
    return members.astype(np.int64).tobytes()


def requested(message: bytes) -> Integers:
    """What `request` was given."""
    return np.frombuffer(message, np.int64).reshape(-1, 2)


def answer(numbers: AnalysisNumbers, earned: Numbers, mixed: Numbers) -> bytes:
    """An analysis of N members."""
    told = [getattr(numbers, name) for name in NUMBERS]
    row = np.array([np.nan if x is None else x for x in told], np.float64)
    return ANSWER + np.concatenate([row, earned, mixed]).tobytes()


def failure(error: Exception) -> bytes:
    """Why there is no analysis."""
    return ERROR + f"{type(error).__name__}: {error}".encode()[:500]


def answered(message: bytes) -> tuple[AnalysisNumbers, Numbers, Numbers] | str:
    """What `answer` was given, or the words of `failure`."""
    if message[:1] != ANSWER:
        return message[1:].decode(errors="replace")
    row = np.frombuffer(message[1:], np.float64)
    told: dict[str, float | int | None] = {}
    for name, x in zip(NUMBERS, row[: len(NUMBERS)].tolist(), strict=True):
        known = np.isfinite(x)
        told[name] = None if not known else int(x) if name in COUNTS else x
    earned, mixed = row[len(NUMBERS) :].reshape(2, -1)
    return AnalysisNumbers(**told), earned, mixed  # type: ignore[arg-type]
