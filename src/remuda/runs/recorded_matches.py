"""A run's recorded matches: its ledger as a table, and the policies' payoffs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from remuda.analysis.frame import Frame
from remuda.analysis.payoffs.from_ledger import read_payoffs as payoffs_of_ledger
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.errors import RunDirectoryError
from remuda.population.ledger.ledger import MATCH, read_records
from remuda.population.ledger.lineage import read_lineage
from remuda.population.ledger.records import PolicyRef
from remuda.runs.run_directory import RunDirectory
from remuda.types import Array

BIRTH_COLUMNS: tuple[tuple[str, type, Any], ...] = (
    ("policy", np.str_, ""),
    ("generation matches", np.int64, 0),
    ("parent", np.str_, ""),
    ("parent_generation parent_version", np.int64, 0),
    ("second", np.str_, ""),
    ("second_generation optimizer_steps", np.int64, 0),
    ("fitness parent_fitness", np.float64, np.nan),
)
"""Column names, the type of their values, and the value that replaces None."""


def read_ledger(run: RunDirectory, agents: Sequence[str]) -> Frame:
    """Return the finished matches of a run, in the order in which they ended."""
    _check_ledger(run)
    names, records = read_records(run.ledger)
    records = records[records["kind"] == MATCH]
    members = records["policy"]
    if len(records) and not 0 <= members.min() <= members.max() < len(names):
        raise RunDirectoryError(f"{run.ledger} is damaged: it refers to policies that do not exist")
    if members.shape[1] != len(agents):
        raise RunDirectoryError(
            f"{run.ledger} is from a game of {members.shape[1]} agents, but this run's "
            f"game has {len(agents)}: the ledger is damaged or belongs to another run"
        )
    columns: dict[str, Array] = {
        "match": records["number"].copy(),
        "truncated": records["truncated"].copy(),
    }
    for seat, agent in enumerate(agents):
        columns |= {
            f"{agent}/policy": _names_of(names, members[:, seat], records["version"][:, seat]),
            f"{agent}/return": records["returns"][:, seat].astype(np.float64),
            f"{agent}/oldest_version": records["oldest"][:, seat].copy(),
            f"{agent}/newest_version": records["newest"][:, seat].copy(),
        }
    return Frame(columns, len(records), "ledger")


def read_births(run: RunDirectory) -> Frame:
    _check_ledger(run)
    births = read_lineage(run.ledger)
    columns: dict[str, Array] = {}
    for names, kind, missing in BIRTH_COLUMNS:
        for name in names.split():
            values = [getattr(birth, name) for birth in births]
            columns[name] = np.array([missing if v is None else v for v in values], kind)
    for name in dict.fromkeys(name for b in births for name in b.hyperparameters):
        columns[name] = np.array([b.hyperparameters.get(name, np.nan) for b in births], np.float64)
    return Frame(columns, len(births), "lineage")


def read_payoffs(
    run: RunDirectory, most: int | None = None, *, wins: bool = False, roles: bool = False
) -> Payoffs:
    """Return the policies' payoffs against each other, for `remuda.Run.payoffs`.

    Teammates are not paired. Policies of reserved seats (`env.scripted`) are left out, since they
    cannot play other seats.
    """
    _check_ledger(run)
    spec = run.spec()
    sides, taken = spec.sides, spec.config.seats_taken

    def meets(ref: PolicyRef) -> bool:
        return not (ref.is_scripted and ref.policy in taken)

    return payoffs_of_ledger(
        run.ledger, symmetric=not roles, sides=sides, wins=wins, keep=meets, most=most
    )


def _check_ledger(run: RunDirectory) -> None:
    if run.ledger.exists():
        return
    if not run.read_config().population.rated:
        raise RunDirectoryError(
            f"{run.path} has no ledger of matches: each of its agents keeps one policy; "
            "a run with population.matchmaker has a ledger"
        )
    raise RunDirectoryError(f"{run.path} has no ledger yet: no match has finished")


def _names_of(names: Sequence[str], policies: Array, versions: Array) -> Array:
    """Return the name of each row's member, [rows]; equal names share one object."""
    members, rows = np.unique(np.stack((policies, versions), -1), axis=0, return_inverse=True)
    texts = np.empty(len(members), np.object_)
    texts[:] = [str(PolicyRef(names[policy], version)) for policy, version in members.tolist()]
    named: Array = texts[rows.reshape(-1)]
    return named
