"""A table with named columns, for Python users."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from remuda.errors import UsageError
from remuda.types import Array


class Frame(Mapping[str, Array]):
    """A mapping from column names to arrays [rows]."""

    num_rows: int

    def __init__(self, columns: Mapping[str, Array], num_rows: int, what: str) -> None:
        """Store the columns, each [num_rows]; `what` names the table in its repr."""
        self._columns, self.num_rows, self._what = dict(columns), num_rows, what

    @staticmethod
    def of_rows(rows: Sequence[Mapping[str, float]], what: str) -> Frame:
        """Build float64 columns from rows of named numbers; NaN for missing ones."""
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {
            name: np.array([row.get(name, np.nan) for row in rows], np.float64) for name in names
        }
        return Frame(columns, len(rows), what)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> Array:
        if name not in self._columns:
            near = _nearest(str(name), tuple(self._columns))
            known = f"there are {sorted(self)}" if self._columns else "there are none"
            raise KeyError(
                f"there is no column {name!r}; " + (f"similar ones are {near}" if near else known)
            )
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"<remuda {self._what}: {self.num_rows} rows, {len(self)} columns>"

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a dictionary of plain values for each row."""
        columns = [column.tolist() for column in self._columns.values()]
        return [dict(zip(self._columns, row, strict=True)) for row in zip(*columns, strict=True)]

    def to_pandas(self) -> Any:
        """Return the columns as a `pandas.DataFrame`."""
        return data_frame(self._columns)


def _nearest(name: str, columns: Sequence[str], most: int = 3, least: float = 0.6) -> list[str]:
    """Return the columns most similar to a name, or with a similar word; most similar first."""

    def likeness(column: str) -> tuple[float, float]:
        words = [column.rpartition("/")[2], *re.split("[/_]", column)]
        whole, *parts = (
            difflib.SequenceMatcher(None, name.lower(), text.lower()).ratio()
            for text in (column, *words)
        )
        return max(whole, *parts), whole

    found = sorted(((likeness(column), column) for column in columns), reverse=True)
    return [column for (best, _), column in found if best >= least][:most]


def data_frame(data: Any, **options: Any) -> Any:
    """Make a `pandas.DataFrame`."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise UsageError("pandas is not installed: pip install pandas") from None
    return DataFrame(data, **options)
