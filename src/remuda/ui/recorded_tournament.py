"""The policies that a tournament was begun with, found again in their runs.

A tournament that is gone on with plays the same policies as before, by version and weights, even
where runs have saved newer ones meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda.coordinator.run_directory import RunDirectory
from remuda.crossplay import setup_of_entrants, setup_of_snapshots
from remuda.errors import CheckpointError, RunDirectoryError, UsageError
from remuda.publish.snapshot import Snapshot
from remuda.saved import SavedPolicies
from remuda.saved_weights import load_run
from remuda.tournaments.entrants import Entrant, Player, weights_digest
from remuda.tournaments.record import kept_weights, read_description
from remuda.tournaments.setup import TournamentSetup
from remuda.types import Floats

Key = tuple[str, int, str]
"""Policy, version and digest of its weights."""


def recorded_setup(directory: Path, sources: Mapping[str, str]) -> TournamentSetup:
    """The tournament that was begun in a directory, with the same policies.

    Args:
        directory: of the tournament.
        sources: by entrant, the directory of its run; those that play without having learned have
            none.

    Raises:
        UsageError: a policy that plays is not kept any more.
        RunDirectoryError: the directory or a run is missing or damaged.
    """
    told = read_description(directory)
    check_counted(directory, told)
    players = _find_all(directory, told["entrants"], sources)
    game, options, seed = told["game"], told["options"], told["seed"]
    if told["asked"].get("checkpoints_of"):
        snapshots = {
            each["name"]: {
                member["policy"]: players[sources[each["name"]], _key(member)].snapshot
                for member in each["members"]
                if "scripted" not in member
            }
            for each in told["entrants"]
        }
        config = RunDirectory.open(Path(told["asked"]["checkpoints_of"])).read_config()
        return setup_of_snapshots(config, snapshots, seed, told["sampled"])
    entrants: dict[str, Entrant] = {}
    for each in told["entrants"]:
        (member,) = each["members"]
        name = each["name"]
        scripted = member.get("scripted")
        entrants[name] = scripted or players[sources[name], _key(member)]
    taken = told.get("scripted")
    return setup_of_entrants(game, options, entrants, seed, told["sampled"], taken)


def check_counted(directory: Path, told: Mapping[str, Any]) -> None:
    """Raise a `UsageError` where a tournament counted for entrants what taken seats earned.

    Args:
        directory: of the tournament.
        told: what its description says.
    """
    if "scripted" not in told and any(
        "scripted" in member and len(each["members"]) > 1
        for each in told.get("entrants", ())
        for member in each["members"]
    ):
        raise UsageError(
            f"{directory} was begun by an earlier version, in which what is earned on seats that "
            "env.scripted takes counted for the entrants; begin another tournament"
        )


def _key(member: Mapping[str, Any]) -> Key:
    return str(member["policy"]), int(member["version"]), str(member["weights"])


def _find_all(
    directory: Path, entrants: list[Any], sources: Mapping[str, str]
) -> dict[tuple[str, Key], Player]:
    """By run and key, the trained policies that play."""
    wanted: dict[str, dict[Key, str]] = {}
    for each in entrants:
        for member in each["members"]:
            if "scripted" not in member:
                wanted.setdefault(sources[each["name"]], {})[_key(member)] = each["name"]
    found: dict[tuple[str, Key], Player] = {}
    weights = kept_weights(directory)
    for run, names in wanted.items():
        saved = SavedPolicies(RunDirectory.open(Path(run)))
        found |= {(run, key): player for key, player in _kept_here(saved, names, weights).items()}
        others = {key: name for key, name in names.items() if (run, key) not in found}
        found |= {(run, key): player for key, player in _find(saved, others).items()}
        gone = [key for key in names if (run, key) not in found]
        if gone:
            policy, version, _ = gone[0]
            more = f" (and {len(gone) - 1} others)" if len(gone) > 1 else ""
            raise UsageError(
                f"{directory} cannot be gone on with: {names[gone[0]]}{more} played version "
                f"{version} of {policy}, which {run} does not keep any more; begin another "
                "tournament"
            )
    return found


def _kept_here(
    saved: SavedPolicies, names: Mapping[Key, str], weights: Mapping[str, Floats]
) -> dict[Key, Player]:
    """Those of these policies whose weights the tournament kept itself."""
    specs = {spec.name: spec for spec in saved.specs}
    found = {}
    for key in names:
        policy, version, digest = key
        if digest in weights and policy in specs:
            snapshot = Snapshot(weights[digest], version, 0, 0.0)
            if weights_digest(snapshot) == digest:
                found[key] = Player(specs[policy], snapshot, saved.agent_of(specs[policy]))
    return found


def _find(saved: SavedPolicies, names: Mapping[Key, str]) -> dict[Key, Player]:
    """Those of these policies that a run still keeps."""
    if not names:
        return {}
    versions = {version for _, version, _ in names}
    specs = {spec.name: spec for spec in saved.specs}
    found: dict[Key, Player] = {}
    for name, snapshot in _kept(saved):
        if snapshot.version not in versions:
            continue
        digest = weights_digest(snapshot)
        for key in names:
            policy = key[0]
            is_it = name == policy or name not in specs  # a member from another run has its name
            if key not in found and key[1:] == (snapshot.version, digest) and is_it:
                spec = specs[policy]
                found[key] = Player(spec, snapshot, saved.agent_of(spec))
        if len(found) == len(names):
            break
    return found


def _kept(saved: SavedPolicies) -> Iterator[tuple[str, Snapshot]]:
    """All that a run keeps, by policy: its end first, then its checkpoints from the newest on."""
    for number in (None, *reversed(saved.files.checkpoints.numbers())):
        try:
            which = "final" if number is None else number
            yield from load_run(saved.files, which)[1].items()
            yield from saved.copies(number)
        except (CheckpointError, RunDirectoryError):
            continue  # what was in it is found elsewhere, or told as gone
