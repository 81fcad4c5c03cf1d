"""A run's recorded matches: its ledger as a table, and the policies' payoffs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remuda.analysis.from_ledger import read_payoffs as payoffs_of_ledger
from remuda.analysis.payoff import Payoffs
from remuda.config import Config
from remuda.coordinator.run_directory import RunDirectory
from remuda.envs.registry import make_env
from remuda.errors import RunDirectoryError
from remuda.frame import Frame
from remuda.population.ledger import MATCH, read_records
from remuda.population.lineage import read_lineage
from remuda.population.ratings import sides_of
from remuda.population.records import PolicyRef
from remuda.population.roster import Roster
from remuda.types import AgentSpec, Array


def read_ledger(run: RunDirectory, agents: Sequence[str]) -> Frame:
    """Return the finished matches of a run, a row for each, in the order of their ends.

    Columns: `match`, its number; `truncated`; and for each agent's seat AGENT/`policy`
    (`policy@version` for a frozen copy), AGENT/`return`, AGENT/`oldest_version` and
    AGENT/`newest_version` of the weights that acted.
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


def read_births(run: RunDirectory) -> Frame:
    """Return the policies born in a run, a row for each, in order; the initial ones come first.

    Columns: `policy`, its place, and `generation`, the number of earlier ones there; `matches` over
    by then; `parent`, `parent_generation` and `parent_version` of its origin (an empty name: new
    weights); `second` and `second_generation` of a second parent; `optimizer_steps` behind the
    inherited moments, 0 for a new optimizer; `fitness` of the policy before it in its place and
    `parent_fitness`, NaN if not judged; and each initial hyperparameter, NaN if it has none.
    """
    _check_ledger(run, run.read_config())
    births = read_lineage(run.ledger)
    columns: dict[str, Array] = {
        "policy": np.array([b.policy for b in births], np.str_),
        "generation": np.array([b.generation for b in births], np.int64),
        "matches": np.array([b.matches for b in births], np.int64),
        "parent": np.array([b.parent or "" for b in births], np.str_),
        "parent_generation": np.array([b.parent_generation for b in births], np.int64),
        "parent_version": np.array([b.parent_version for b in births], np.int64),
        "second": np.array([b.second or "" for b in births], np.str_),
        "second_generation": np.array([b.second_generation for b in births], np.int64),
        "optimizer_steps": np.array([b.optimizer_steps for b in births], np.int64),
        "fitness": _floats([b.fitness for b in births]),
        "parent_fitness": _floats([b.parent_fitness for b in births]),
    }
    for name in dict.fromkeys(name for b in births for name in b.hyperparameters):
        columns[name] = _floats([b.hyperparameters.get(name) for b in births])
    return Frame(columns, len(births), "lineage")


def _floats(values: Sequence[float | None]) -> Array:
    """Return numbers as floats, NaN for none."""
    return np.array([np.nan if value is None else value for value in values], np.float64)


def read_payoffs(
    run: RunDirectory,
    agents: Sequence[AgentSpec],
    most: int | None = None,
    *,
    wins: bool = False,
    roles: bool = False,
) -> Payoffs:
    """Return the policies' payoffs against each other in the matches of a run.

    Teammates do not meet. The taker of a reserved seat (`env.scripted`) is no strategy for other
    seats, and left out.

    - `most`: limit of policies: the live ones, then the newest frozen copies. None: all.
    - `wins`: count wins as 1, losses as 0 and draws as 0.5, instead of returns.
    - `roles`: the earlier of two seats is the first role; else seats are pooled.
    """
    config = run.read_config()
    _check_ledger(run, config)
    roster = Roster.of(config, agents)
    sides = sides_of(roster.teams, len(agents), roster.taken).tolist()
    taken = config.seats_taken

    def meets(ref: PolicyRef) -> bool:
        return not (ref.is_scripted and ref.policy in taken)

    return payoffs_of_ledger(
        run.ledger, symmetric=not roles, sides=sides, wins=wins, keep=meets, most=most
    )


def payoffs_of(run: RunDirectory, most: int | None = None) -> Payoffs:
    """As `read_payoffs`, for a run whose game is made to find the teams."""
    config = run.read_config()
    _check_ledger(run, config)
    env = make_env(config.game, 1, **config.env.made_with)
    env.close()
    return read_payoffs(run, env.agents, most)


def _matches(run: RunDirectory) -> tuple[tuple[str, ...], Array]:
    """Return the names of the policies, and the records of matches."""
    _check_ledger(run, run.read_config())
    names, records = read_records(run.ledger)
    matches = records[records["kind"] == MATCH]
    if len(matches) and not 0 <= matches["policy"].min() <= matches["policy"].max() < len(names):
        raise RunDirectoryError(f"{run.ledger} is damaged: it names policies that do not exist")
    return names, matches


def _check_ledger(run: RunDirectory, config: Config) -> None:
    """Raise a `RunDirectoryError` where there is no ledger."""
    if run.ledger.exists():
        return
    if not config.population.dealt:
        raise RunDirectoryError(
            f"{run.path} has no ledger of matches: each of its agents keeps one policy; "
            "a run with population.matchmaker has a ledger"
        )
    raise RunDirectoryError(f"{run.path} has no ledger of matches yet: none is over")


def _names_of(names: Sequence[str], policies: Array, versions: Array) -> Array:
    """Return [rows] names of members; equal ones share one text."""
    members, rows = np.unique(np.stack((policies, versions), -1), axis=0, return_inverse=True)
    texts = np.empty(len(members), np.object_)
    texts[:] = [str(PolicyRef(names[policy], version)) for policy, version in members.tolist()]
    named: Array = texts[rows.reshape(-1)]
    return named
