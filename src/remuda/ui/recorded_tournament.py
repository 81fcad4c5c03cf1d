"""Find the entrants of a recorded tournament again, by version and weights.

A tournament that continues plays the same policies, even if their runs saved newer ones meanwhile.
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
from remuda.tournaments.entrants import Entrant, Player, TournamentSetup, weights_digest
from remuda.tournaments.record import kept_weights, read_description
from remuda.types import Floats

Key = tuple[str, int, str]
"""Policy, version and digest of its weights."""


def recorded_setup(directory: Path) -> tuple[TournamentSetup, Mapping[str, str]]:
    """Return the tournament of a directory, and by entrant the directory of its run.

    Scripted entrants have no run.

    Raises:
        UsageError: the weights of an entrant no longer exist.
        RunDirectoryError: the directory or a run is missing or damaged.
    """
    record = read_description(directory)
    asked, sources = record["asked"], record["asked"]["sources"]
    players = _find_all(directory, record["entrants"], sources)
    seed, sampled = record["seed"], record["sampled"]
    if asked.get("checkpoints_of"):
        snapshots = {
            each["name"]: {
                member["policy"]: players[sources[each["name"]], _key(member)].snapshot
                for member in each["members"]
                if "scripted" not in member
            }
            for each in record["entrants"]
        }
        config = RunDirectory.open(Path(asked["checkpoints_of"])).read_config()
        return setup_of_snapshots(config, snapshots, seed, sampled), sources
    entrants: dict[str, Entrant] = {}
    for each in record["entrants"]:
        (member,) = each["members"]
        name = each["name"]
        entrants[name] = member.get("scripted") or players[sources[name], _key(member)]
    played = (record["game"], record["options"], entrants, seed, sampled)
    return setup_of_entrants(*played, record.get("scripted")), sources


def _key(member: Mapping[str, Any]) -> Key:
    return str(member["policy"]), int(member["version"]), str(member["weights"])


def _find_all(
    directory: Path, entrants: list[Any], sources: Mapping[str, str]
) -> dict[tuple[str, Key], Player]:
    """Return the trained policies that play, by run and key."""
    wanted: dict[str, dict[Key, str]] = {}
    for each in entrants:
        for member in each["members"]:
            if "scripted" not in member:
                wanted.setdefault(sources[each["name"]], {})[_key(member)] = each["name"]
    found: dict[tuple[str, Key], Player] = {}
    weights = kept_weights(directory)
    for run, names in wanted.items():
        saved = SavedPolicies(RunDirectory.open(Path(run)))
        players = _in_tournament(saved, names, weights)
        players |= _in_run(saved, {key: name for key, name in names.items() if key not in players})
        found |= {(run, key): player for key, player in players.items()}
        gone = [key for key in names if key not in players]
        if gone:
            policy, version, _ = gone[0]
            more = f" (and {len(gone) - 1} others)" if len(gone) > 1 else ""
            raise UsageError(
                f"{directory} cannot be continued: {names[gone[0]]}{more} played version "
                f"{version} of {policy}, which {run} does not keep any more; begin another "
                "tournament"
            )
    return found


def _in_tournament(
    saved: SavedPolicies, names: Mapping[Key, str], weights: Mapping[str, Floats]
) -> dict[Key, Player]:
    """Return those of the policies whose weights the tournament kept itself."""
    specs = {spec.name: spec for spec in saved.specs}
    found = {}
    for key in names:
        policy, version, digest = key
        if digest in weights and policy in specs:
            snapshot = Snapshot(weights[digest], version, 0, 0.0)
            if weights_digest(snapshot) == digest:
                found[key] = Player(specs[policy], snapshot, saved.agent_of(specs[policy]))
    return found


def _in_run(saved: SavedPolicies, names: Mapping[Key, str]) -> dict[Key, Player]:
    """Return those of the policies that a run still keeps."""
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
    """Yield all snapshots of a run by policy: final weights, then checkpoints, newest first."""
    for number in (None, *reversed(saved.files.checkpoints.numbers())):
        try:
            yield from load_run(saved.files, "final" if number is None else number)[1].items()
            yield from saved.copies(number)
        except (CheckpointError, RunDirectoryError):
            continue  # its content is found elsewhere, or reported as gone
