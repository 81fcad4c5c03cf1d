"""Ledgers of matches written by hand."""

import numpy as np

from remuda.population.ledger.ledger import MATCH, LedgerFile, record_type

A, B, C = (0, -1), (1, -1), (2, -1)  # live policies


def records(rows, seats=2, kind=MATCH):
    """Rows of (((policy, version), ...), (return, ...))."""
    found = np.zeros(len(rows), record_type(seats))
    for record, (who, returns) in zip(found, rows, strict=True):
        record["policy"], record["version"] = zip(*who, strict=True)
        record["returns"] = returns
    found["kind"], found["number"] = kind, np.arange(len(rows))
    return found


def write_ledger(directory, rows, names=("a", "b", "c"), seats=2):
    path = directory / "ledger"
    path.unlink(missing_ok=True)
    LedgerFile(path, names, seats).append(records(rows, seats))
    return path
