"""The matches that a run recorded: its ledger as a table, and what the policies earned in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.coordinator.run_directory import RunDirectory
from remuda.errors import RunDirectoryError, UsageError
from remuda.frame import Frame, data_frame
from remuda.population.ledger import EARNED, MATCH, MET, WON, payoffs, read_records
from remuda.population.records import PolicyRef
from remuda.types import Array


@dataclass(frozen=True)
class Payoffs:
    """What policies earned in the matches of a run, policy by policy: the row's against the column.

    The live policies are first, then the frozen copies, each by name and version. The result of a
    live policy is of all versions that it had meanwhile. Every pair of seats in a match is one
    meeting of those who sat there; in the diagonal, a policy met itself.
    """

    policies: tuple[str, ...]
    """[N] names; of a frozen copy, `policy@version`."""
    means: npt.NDArray[np.float64] = field(repr=False)
    """[N, N] the mean return of the row over its meetings with the column; NaN: none."""
    win_rates: npt.NDArray[np.float64] = field(repr=False)
    """[N, N] the share of these that the row won, draws halved; NaN: none."""
    counts: npt.NDArray[np.int64] = field(repr=False)
    """[N, N] how many meetings there were."""

    def to_pandas(self) -> Any:
        """`means` as a `pandas.DataFrame`, with names of rows and columns.

        Raises:
            UsageError: pandas is not installed.
        """
        names = list(self.policies)
        return data_frame(self.means, index=names, columns=names)


def read_ledger(run: RunDirectory, agents: Sequence[str]) -> Frame:
    """The matches of a run that are over, a row for each, in the order in which they ended.

    Columns: `match`, its number; `truncated`, whether it was cut off; and for the seat of each
    agent AGENT/`policy`, who sat there (of a frozen copy `policy@version`), AGENT/`return`,
    AGENT/`oldest_version` and AGENT/`newest_version` of the weights that acted.

    Args:
        run: where its files are.
        agents: the game's, by seat.

    Raises:
        RunDirectoryError: there is no ledger, or it is damaged.
    """
    names, records = _matches(run)
    if records["policy"].shape[1] != len(agents):
        raise RunDirectoryError(
            f"{run.ledger} is of a game of {records['policy'].shape[1]} agents, and the run's has "
            f"{len(agents)}: it is damaged, or another's"
        )
    columns: dict[str, Array] = {
        "match": records["number"].copy(),
        "truncated": records["truncated"].copy(),
    }
    for seat, agent in enumerate(agents):
        columns |= {
            f"{agent}/policy": _names_of(
                names, records["policy"][:, seat], records["version"][:, seat]
            ),
            f"{agent}/return": records["returns"][:, seat].astype(np.float64),
            f"{agent}/oldest_version": records["oldest"][:, seat].copy(),
            f"{agent}/newest_version": records["newest"][:, seat].copy(),
        }
    return Frame(columns, len(records), "ledger")


def read_payoffs(run: RunDirectory, most: int | None = None) -> Payoffs:
    """What policies earned against each other in the matches of a run.

    Args:
        run: where its files are.
        most: so many policies at most: the live ones, then the newest frozen copies. None: all.

    Raises:
        UsageError: `most` is less than 1.
        RunDirectoryError: there is no ledger, or it is damaged.
    """
    if most is not None and most < 1:
        raise UsageError(f"most: there must be one policy at least; this is {most}")
    names, records = _matches(run)
    found, sums = payoffs(records, most)
    refs = [PolicyRef(names[policy], version) for policy, version in found]
    order = sorted(range(len(refs)), key=lambda i: (refs[i].is_frozen, found[i]))
    sums = sums[:, order][:, :, order]
    counts = sums[MET].astype(np.int64)
    met = np.where(counts > 0, sums[MET], np.nan)
    policies = tuple(str(refs[i]) for i in order)
    return Payoffs(policies, sums[EARNED] / met, sums[WON] / met, counts)


def _matches(run: RunDirectory) -> tuple[tuple[str, ...], Array]:
    """The names of the policies, and the records of matches.

    Raises:
        RunDirectoryError: there is no ledger, or it is damaged.
    """
    if not run.ledger.exists():
        if not run.read_config().population.dealt:
            raise RunDirectoryError(
                f"{run.path} has no ledger of matches: each of its agents has one policy for good; "
                "a run with population.matchmaker has a ledger"
            )
        raise RunDirectoryError(f"{run.path} has no ledger of matches yet: none is over")
    names, records = read_records(run.ledger)
    matches = records[records["kind"] == MATCH]
    if len(matches) and not 0 <= matches["policy"].min() <= matches["policy"].max() < len(names):
        raise RunDirectoryError(f"{run.ledger} is damaged: it names policies that do not exist")
    return names, matches


def _names_of(names: Sequence[str], policies: Array, versions: Array) -> Array:
    """[rows] the names of members; of each there is one text, which its rows share."""
    members, rows = np.unique(np.stack((policies, versions), -1), axis=0, return_inverse=True)
    texts = np.empty(len(members), np.object_)
    texts[:] = [str(PolicyRef(names[policy], version)) for policy, version in members.tolist()]
    named: Array = texts[rows.reshape(-1)]
    return named
