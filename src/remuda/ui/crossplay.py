"""Set up `remuda tournament` between policies of several runs: the entrants and the game."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from remuda.crossplay import setup_of_entrants
from remuda.envs.registry import find_game
from remuda.errors import ConfigError, UsageError
from remuda.saved import Reference, SavedPolicies
from remuda.saved_games import check_not_both, game_of_runs, is_meant_of_run, open_runs
from remuda.tournaments.entrants import Entrant, TournamentSetup
from remuda.tournaments.record import read_description
from remuda.ui.numbers import distinct

TOURNAMENTS = Path("runs/tournaments")
"""The directory of tournaments whose directory is not named."""
RECORDED = (
    *("run", "checkpoints", "game", "env", "scripted", "seed", "sampled"),
    *("episodes", "until", "matches"),
)
"""The options that a tournament's directory records, so that `--resume` needs none of them."""
RESUMED = ("resume", "episodes", "matches", "seconds", "processes", "format")
"""The options that are allowed with `--resume`."""


@dataclass(frozen=True)
class Crossplay:
    """A tournament that is ready to be played."""

    game: str
    options: Mapping[str, Any]
    entrants: Mapping[str, Entrant]
    """Entrants in the order in which the user named them."""
    sources: Mapping[str, str]
    """Directories of the runs of trained entrants."""
    taken: Mapping[str, str]
    """For each agent, the scripted policy that plays its seat in every match."""
    notes: tuple[str, ...] = ()
    """Notes for the user, as of a run that learned in another game than is played."""

    def setup(self, seed: int, sampled: bool) -> TournamentSetup:
        """Return the tournament with a seed."""
        played = (self.game, self.options, self.entrants, seed, sampled)
        return setup_of_entrants(*played, self.taken)


def directory_of(setup: TournamentSetup, named: Path | None, until: str = "") -> Path:
    """Return the directory of a tournament: as named, or after all that determines its matches."""
    if named is not None:
        return named.expanduser()
    game = re.sub(r"[^A-Za-z0-9_.-]+", "_", setup.game)[:48]
    return TOURNAMENTS / f"{game}-{setup.digest(until)}"


def options_to_record(
    options: Mapping[str, Any], words: Sequence[str], sources: Mapping[str, str]
) -> dict[str, Any]:
    """Return the options that the tournament's directory records, runs with absolute paths."""
    record = {name: options[name] for name in RECORDED}
    record["run"] = [_absolute(word) for word in words]
    record["sources"] = dict(sources)
    if is_among_checkpoints(words):
        record["checkpoints_of"] = record["run"][0]
    return record


def recorded_options(directory: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a tournament that continues, from its directory, under those `given`.

    Raises:
        ConfigError: an option is not allowed with `--resume`.
        RunDirectoryError: it is no directory of a tournament, or damaged.
        UsageError: the tournament was not begun by the command.
    """
    for key in given:
        if key not in RESUMED:
            raise ConfigError(
                f"--resume continues a tournament with its own options; leave out {key}, or begin "
                "another without --resume"
            )
    directory = directory.expanduser()
    record = read_description(directory).get("asked")
    if not isinstance(record, dict) or not record.get("run"):
        raise UsageError(
            f"{directory} was begun by remuda.tournament in Python; call that again, with "
            "directory="
        )
    foreign = "episodes" if record.get("until") else "matches"
    if foreign in given:
        how = "is played --until it is sure" if record.get("until") else "is not played --until"
        raise ConfigError(f"{directory} {how}; leave out --{foreign}")
    return {**{key: record[key] for key in RECORDED if key in record}, **given}


def _absolute(word: str) -> str:
    """Return a run, or a policy of one, with the absolute path of the run."""
    if not is_meant_of_run(word):
        return word
    run = Reference.parse(word).run
    whole = Path(word).expanduser()
    return str(whole.resolve()) if whole.is_dir() else f"{run.resolve()}:{word.rpartition(':')[2]}"


def is_among_checkpoints(words: Sequence[str]) -> bool:
    """Return whether the checkpoints of a single run play."""
    return len(words) == 1 and (":" not in words[0] or Path(words[0]).expanduser().is_dir())


def set_up(
    words: Sequence[str],
    game: str,
    options: Mapping[str, Any],
    scripted: Mapping[str, str] | None = None,
) -> Crossplay:
    """Find the entrants and the game.

    Args:
        words: each `RUN:policy`, with a version or not; `RUN:all` for all policies of a run;
            `RUN:all@frozen` for all members that do not change; or a scripted policy.
        game: its name; empty: that of the first run, with its options.
        options: of the game; they override those of the first run.
        scripted: by agent, the scripted policy of its seat; it overrides that of the first run.

    Raises:
        ConfigError: no game is known, or it has no policy of that name.
        UsageError: a run has no such policy or version.
        RunDirectoryError: there is no such run, or it is damaged.
        CheckpointError: a checkpoint is missing or damaged.
    """
    opened = open_runs(words)
    notes: tuple[str, ...] = ()
    if not game:
        if not opened:
            raise ConfigError(
                "no entrant is of a run, so --game must name the game; RUN:policy names one"
            )
        theirs = game_of_runs(opened, options, scripted or {})
        game, options, notes = theirs.game.name, theirs.options, theirs.notes
        scripted = {**theirs.scripted, **(scripted or {})}
    kind = find_game(game)
    check_not_both(words, kind)
    found = [each for word in words for each in _found(word, opened)]
    for each in found:
        if isinstance(each.who, str):
            kind.policy(each.who)  # fails before anything is played
    are_unique = len({each.own for each in found}) == len(found)
    names = distinct([each.own if are_unique else each.full for each in found])
    named = {name: each.who for name, each in zip(names, found, strict=True)}
    sources = {name: each.run for name, each in zip(named, found, strict=True) if each.run}
    return Crossplay(game, options, named, sources, scripted or {}, notes)


class _Found(NamedTuple):
    """An entrant that a word of the command line names."""

    own: str
    """Its name without that of its run."""
    full: str
    who: Entrant
    run: str = ""
    """The directory of the run that trained it; empty: it is scripted."""


def _found(word: str, opened: Mapping[Path, SavedPolicies]) -> list[_Found]:
    """Return the entrants that a word names: one, or all of a run."""
    if not is_meant_of_run(word):
        return [_Found(word, word, word)]
    reference = Reference.parse(word)
    run, whole = reference.run.name, str(reference.run.resolve())
    saved = opened[Path(whole)]
    several = reference.several(saved)
    if several:
        return [
            _Found(own, f"{run}:{own}", who, "" if isinstance(who, str) else whole)
            for own, who in several.items()
        ]
    member = saved.scripted.get(reference.policy)
    if member is not None:
        if reference.which:
            raise UsageError(f"{word}: {reference.policy} is scripted, and has no versions")
        return [_Found(reference.policy, f"{run}:{reference.policy}", member)]
    learned = reference.find_learned(saved)
    name = reference.which and f"{reference.policy or learned.name}@{reference.which}"
    own = name or learned.name
    return [_Found(own, f"{run}:{own}", learned.player, whole)]
