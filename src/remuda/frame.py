"""A table by columns, as the front door returns it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from remuda.errors import UsageError
from remuda.types import Array


class Frame(Mapping[str, Array]):
    """Columns by name, each an array [rows], all of the same length and in the same order."""

    num_rows: int

    def __init__(self, columns: Mapping[str, Array], num_rows: int, what: str) -> None:
        """Hold the columns.

        Args:
            columns: by name, each [num_rows].
            num_rows: how many rows there are, where there may be no column.
            what: what it is of, for its `repr`.
        """
        self._columns, self.num_rows, self._what = dict(columns), num_rows, what

    @staticmethod
    def of_rows(rows: Sequence[Mapping[str, float]], what: str) -> Frame:
        """Make columns of float64 from rows of numbers by name; NaN where a row lacks one."""
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {
            name: np.array([row.get(name, np.nan) for row in rows], np.float64) for name in names
        }
        return Frame(columns, len(rows), what)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> Array:
        if name not in self._columns:
            near = difflib.get_close_matches(name, self._columns, n=3)
            raise KeyError(f"there is no column {name!r}; near it are {near or sorted(self)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"<remuda {self._what}: {self.num_rows} rows, {len(self)} columns>"

    def to_pandas(self) -> Any:
        """The same as a `pandas.DataFrame`.

        Raises:
            UsageError: pandas is not installed.
        """
        return data_frame(self._columns)


def data_frame(data: Any, **options: Any) -> Any:
    """Make a `pandas.DataFrame`.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        from pandas import DataFrame
    except ImportError:
        raise UsageError("pandas is not installed: pip install pandas") from None
    return DataFrame(data, **options)
