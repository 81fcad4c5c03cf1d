"""The setup of `remuda tournament` and `remuda.tournament`: entrants and game."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.envs.registry import CHANGED
from remuda.errors import CheckpointError, ConfigError, RunDirectoryError, UsageError
from remuda.evaluation.policy import Policy
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.engine import Tournament, play
from remuda.evaluation.tournaments.entrants import (
    Entrant,
    Player,
    TournamentSetup,
    setup_of_entrants,
    setup_of_snapshots,
    weights_digest,
)
from remuda.evaluation.tournaments.record import kept_weights, read_description
from remuda.evaluation.tournaments.settings import TournamentSettings
from remuda.evaluation.tournaments.until import play_until
from remuda.publish.snapshot import Snapshot
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.training.saved.games import RunEntrant, entrants_of, find_saved_game, is_meant_of_run
from remuda.training.saved.policies import FROZEN, Reference, SavedPolicies
from remuda.types import Floats
from remuda.ui.terminal.numbers import distinct

if TYPE_CHECKING:
    from remuda.ui.analysis.tournament import MatchProgress

NEWBORN = "newborn when the weights were saved, and not yet playing"
TOURNAMENTS = Path("runs/tournaments")  # the parent of default directories
RECORDED = (
    *("run", "checkpoints", "game", "env", "scripted", "seed", "sampled"),
    *("episodes", "until", "matches"),
)  # options recorded in a tournament's directory, for `--resume`
RESUMED = ("resume", "episodes", "matches", "seconds", "processes", "copies", "format")
"""Options that may be used with `--resume`."""


@dataclass(frozen=True)
class Crossplay:
    """A tournament that is ready to play."""

    game: str
    options: Mapping[str, Any]
    entrants: Mapping[str, Entrant]  # in the order in which the user named them
    sources: Mapping[str, str]  # run directories of trained entrants
    taken: Mapping[str, str]  # scripted policies by agent
    notes: tuple[str, ...] = ()  # for example about a run that was trained in another game
    seats: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The agents of each entrant whose run allows it only these seats."""

    def setup(self, seed: int, sampled: bool, line_ups: bool = False) -> TournamentSetup:
        """Return the tournament; with `line_ups`, entrants keep the seats of their runs."""
        played = (self.game, self.options, self.entrants, seed, sampled)
        return setup_of_entrants(*played, self.taken, self.seats if line_ups else None)


def directory_of(setup: TournamentSetup, named: Path | None, until: str = "") -> Path:
    """Return `named`, or a directory named after the settings that determine the matches."""
    if named is not None:
        return named.expanduser()
    game = re.sub(r"[^A-Za-z0-9_.-]+", "_", setup.game)[:48]
    return TOURNAMENTS / f"{game}-{setup.digest(until)}"


def options_to_record(
    options: Mapping[str, Any], words: Sequence[str], sources: Mapping[str, str]
) -> dict[str, Any]:
    """Return the options to record in the tournament's directory, with absolute run paths."""
    record = {name: options[name] for name in RECORDED}
    record["run"] = [_absolute(word) for word in words]
    record["sources"] = dict(sources)
    if is_among_checkpoints(words):
        record["checkpoints_of"] = record["run"][0]
    return record


def recorded_options(directory: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded options of a tournament; the options in `given` override them."""
    for key in given:
        if key not in RESUMED:
            raise ConfigError(
                f"--resume continues a tournament with its own options; leave out {key}, or start "
                "another one without --resume"
            )
    directory = directory.expanduser()
    record = read_description(directory).get("asked")
    if not isinstance(record, dict) or not record.get("run"):
        raise UsageError(
            f"{directory} was started by remuda.tournament in Python; continue it there, with "
            "directory="
        )
    foreign = "episodes" if record.get("until") else "matches"
    if foreign in given:
        how = "was started with" if record.get("until") else "was started without"
        raise ConfigError(f"{directory} {how} --until; leave out --{foreign}")
    return {**{key: record[key] for key in RECORDED if key in record}, **given}


def _absolute(word: str) -> str:
    if not is_meant_of_run(word):
        return word
    run = Reference.parse(word).run
    whole = Path(word).expanduser()
    return str(whole.resolve()) if whole.is_dir() else f"{run.resolve()}:{word.rpartition(':')[2]}"


def is_among_checkpoints(words: Sequence[str]) -> bool:
    """Return whether the entrants are the checkpoints of a single run."""
    return len(words) == 1 and (":" not in words[0] or Path(words[0]).expanduser().is_dir())


def set_up(
    words: Sequence[str],
    game: str,
    options: Mapping[str, Any],
    scripted: Mapping[str, str] | None = None,
) -> Crossplay:
    """Find the entrants and the game; if `game` is empty, use the game of the first run."""
    played = find_saved_game(game, options, words, scripted or {})
    if played is None:
        raise ConfigError(
            "no entrant is a policy of a run, so --game must name the game; "
            "policies of runs are RUN:policy"
        )
    found, runs = list[RunEntrant](), list[SavedPolicies | None]()
    notes = list(played.notes)
    for word in words:
        found += (entrants := entrants_of(word, played.opened))
        run = Reference.parse(word).run.resolve() if is_meant_of_run(word) else None
        runs += [None if run is None else played.opened[run]] * len(entrants)
        if run is not None and any(each.of_all for each in entrants) and not word.endswith(FROZEN):
            absent = played.opened[run].absent
            notes += [f"{word} leaves out {', '.join(absent)}: {NEWBORN}"] if absent else []
    for each in found:
        if isinstance(each.entrant, str):
            played.game.policy(each.entrant)  # raises an error before any match is played
    are_unique = len({each.name for each in found}) == len(found)
    names = distinct([each.name if are_unique else each.full_name for each in found])
    named = {name: each.entrant for name, each in zip(names, found, strict=True)}
    sources = {name: each.run for name, each in zip(named, found, strict=True) if each.run}
    taken = {**played.scripted, **(scripted or {})}
    seats = {
        name: agents
        for name, each, saved in zip(names, found, runs, strict=True)
        if saved is not None and (agents := _seats_of(each, saved))
    }
    return Crossplay(played.game.name, played.options, named, sources, taken, (*notes,), seats)


def _seats_of(each: RunEntrant, saved: SavedPolicies) -> tuple[str, ...]:
    """Return the agents whose seats a member's run allows it; empty: all."""
    roster = saved.spec.roster.with_imported([each.origin for each in saved.spec.imported])
    without_version = each.name.rpartition("@")[0]
    name = each.name if each.name in roster.seats else without_version
    return tuple(roster.agents[seat] for seat in sorted(roster.seats.get(name, ())))


Key = tuple[str, int, str]  # policy, version and weights digest


def recorded_setup(directory: Path) -> tuple[TournamentSetup, Mapping[str, str]]:
    """Return a recorded tournament, and the run directories of its trained entrants."""
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
        spec = RunDirectory.open(Path(asked["checkpoints_of"])).spec()
        spec = spec.with_options(record["options"].get(CHANGED, {}))
        return setup_of_snapshots(spec, snapshots, seed, sampled), sources
    entrants: dict[str, Entrant] = {}
    for each in record["entrants"]:
        (member,) = each["members"]
        name = each["name"]
        entrants[name] = member.get("scripted") or players[sources[name], _key(member)]
    played = (record["game"], record["options"], entrants, seed, sampled)
    return setup_of_entrants(*played, record.get("scripted"), record.get("line_ups")), sources


def _key(member: Mapping[str, Any]) -> Key:
    return str(member["policy"]), int(member["version"]), str(member["weights"])


def _find_all(
    directory: Path, entrants: list[Any], sources: Mapping[str, str]
) -> dict[tuple[str, Key], Player]:
    wanted: dict[str, dict[Key, str]] = {}
    for each in entrants:
        for member in each["members"]:
            if "scripted" not in member:
                wanted.setdefault(sources[each["name"]], {})[_key(member)] = each["name"]
    found: dict[tuple[str, Key], Player] = {}
    weights = kept_weights(directory)
    for run, names in wanted.items():
        players = _find_players(SavedPolicies(RunDirectory.open(Path(run))), names, weights)
        found |= {(run, key): player for key, player in players.items()}
        missing = [key for key in names if key not in players]
        if missing:
            policy, version, _ = missing[0]
            more = f" (and {len(missing) - 1} others)" if len(missing) > 1 else ""
            raise UsageError(
                f"{directory} cannot be continued: {names[missing[0]]}{more} used version "
                f"{version} of {policy}, which {run} no longer has; start another "
                "tournament"
            )
    return found


def _find_players(
    saved: SavedPolicies, keys: Collection[Key], weights: Mapping[str, Floats]
) -> dict[Key, Player]:
    """Find recorded entrants in the weights that a tournament saved, then in their run."""
    specs = {spec.name: spec for spec in saved.specs}
    recorded = (
        (policy, Snapshot(weights[digest], version, 0, 0.0))
        for policy, version, digest in keys
        if digest in weights
    )
    versions, found = {version for _, version, _ in keys}, dict[Key, Player]()
    for name, snapshot in chain(recorded, _saved_snapshots(saved)):
        if snapshot.version not in versions:
            continue
        version = (snapshot.version, weights_digest(snapshot))
        for key in keys:
            policy = key[0]
            # For a member from another run, the record contains the name in that run.
            matches = policy in specs and (name == policy or name not in specs)
            if key not in found and key[1:] == version and matches:
                agent, num_envs = saved.spec.agent_of(policy), saved.config.env.num_envs
                found[key] = Player(specs[policy], snapshot, agent, num_envs)
        if len(found) == len(keys):
            break
    return found


def _saved_snapshots(saved: SavedPolicies) -> Iterator[tuple[str, Snapshot]]:
    """Yield (policy, snapshot) of a run: final weights, then checkpoints, newest first."""
    for number in (None, *reversed(saved.files.checkpoints.numbers())):
        try:
            yield from load_run(saved.files, "final" if number is None else number)[1].items()
            yield from saved.copies(number)
        except (CheckpointError, RunDirectoryError):
            continue  # the snapshots are found elsewhere, or reported as missing


def play_shown(
    setup: TournamentSetup,
    settings: TournamentSettings,
    directory: Path | None,
    record: Mapping[str, Any] | None,
    stopped: Callable[[], bool],
    is_shown: bool = True,
) -> tuple[Tournament, MatchProgress]:
    """Play a tournament and show its progress."""
    from remuda.ui.analysis.tournament import MatchProgress

    with MatchProgress(setup.game, stopped) as progress:
        limits = Limits(settings.seconds, interrupted=stopped)
        limits = replace(limits, watch=progress) if is_shown else limits
        if not settings.until:
            plain = (settings.episodes, directory, record, limits)
            return play(setup, *plain, settings.processes, settings.copies), progress
        look = progress.look if is_shown else None
        common = (directory, record, limits, settings.matches, look)
        how = (settings.processes, settings.copies)
        return play_until(setup, settings.until, *common, *how), progress


def named_entrants(entrants: object) -> dict[str, Policy | str]:
    """Return a mapping from names to entrants; repeated names get a number."""
    if isinstance(entrants, str | Policy):
        name = entrants if isinstance(entrants, str) else entrants.name
        raise UsageError(f"entrants must be a list, as in [{name!r}]")
    if not isinstance(entrants, Mapping | Sequence):
        raise UsageError(f"entrants must be a list or a mapping; it is {entrants!r}")
    listed = list(entrants.values() if isinstance(entrants, Mapping) else entrants)
    for who in listed:
        if not isinstance(who, str | Policy):
            raise UsageError(
                f"entrants: {who!r} is neither a remuda.Policy nor the name of a scripted policy, "
                "such as 'random'"
            )
    if not listed:
        raise UsageError("entrants must not be empty")
    if isinstance(entrants, Mapping):
        return dict(entrants)
    names = distinct(who if isinstance(who, str) else who.name for who in listed)
    return dict(zip(names, listed, strict=True))
