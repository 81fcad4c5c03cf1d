"""`remuda tournament` between policies of several runs: who they are, and in which game."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from remuda.crossplay import Entrant, setup_of_entrants
from remuda.envs.registry import find_game
from remuda.errors import ConfigError, UsageError
from remuda.saved import Reference, SavedPolicies
from remuda.saved_games import check_not_both, game_of_runs, is_meant_of_run, open_runs
from remuda.tournaments.record import read_description
from remuda.tournaments.setup import TournamentSetup

TOURNAMENTS = Path("runs/tournaments")
"""Where tournaments are kept if no directory is named."""
ASKED = (
    "run",
    "checkpoints",
    "game",
    "env",
    "scripted",
    "seed",
    "sampled",
    "episodes",
    "until",
    "matches",
)
"""The options by which a tournament can be asked for again."""


@dataclass(frozen=True)
class Crossplay:
    """A tournament that is ready to be played."""

    game: str
    options: Mapping[str, Any]
    entrants: Mapping[str, Entrant]
    """By name, in the order in which the user named them."""
    sources: Mapping[str, str]
    """By name, the directory of the run that a trained one is of."""
    taken: Mapping[str, str]
    """By agent, who takes its seat for good."""
    notes: tuple[str, ...] = ()
    """What the user may not expect: that a run learned in another game than is played."""

    def setup(self, seed: int, sampled: bool) -> TournamentSetup:
        """It with its seed; see `play_across`."""
        played = (self.game, self.options, self.entrants, seed, sampled)
        return setup_of_entrants(*played, self.taken)


def directory_of(setup: TournamentSetup, named: Path | None, until: str = "") -> Path:
    """Where a tournament is kept: as it was named, or after all that its matches follow from."""
    if named is not None:
        return named.expanduser()
    game = re.sub(r"[^A-Za-z0-9_.-]+", "_", setup.game)[:48]
    return TOURNAMENTS / f"{game}-{setup.digest(until)}"


def asked_by(
    options: Mapping[str, Any], words: Sequence[str], sources: Mapping[str, str]
) -> dict[str, Any]:
    """The options of a tournament as plain data, runs with whole paths.

    Args:
        options: of the command, as plain data; those of `ASKED` are kept.
        words: the runs that it names.
        sources: by entrant, the run that it is of, where its weights are found again.
    """
    asked = {name: options[name] for name in ASKED}
    asked["run"] = [_whole(word) for word in words]
    asked["sources"] = dict(sources)
    if is_among_checkpoints(words):
        asked["checkpoints_of"] = asked["run"][0]
    return asked


def asked_before(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a tournament that is gone on with, from its directory.

    Args:
        tree: of the command line: `resume`, and what may be told besides.

    Raises:
        ConfigError: something else was told.
        RunDirectoryError: it is no directory of a tournament, or damaged.
        UsageError: it was not begun by the command.
    """
    for key in tree:
        if key not in ("resume", "episodes", "matches", "seconds", "processes", "format"):
            raise ConfigError(
                f"--resume goes on with a tournament as it was begun; leave out {key}, or begin "
                "another without --resume"
            )
    directory = Path(str(tree["resume"])).expanduser()
    asked = read_description(directory).get("asked")
    if not isinstance(asked, dict) or not asked.get("run"):
        raise UsageError(
            f"{directory} was begun by remuda.tournament in Python; call that again, with "
            "directory="
        )
    foreign = "episodes" if asked.get("until") else "matches"
    if foreign in tree:
        how = "is played --until it is sure" if asked.get("until") else "is not played --until"
        raise ConfigError(f"{directory} {how}; leave out --{foreign}")
    return {**{key: asked[key] for key in ASKED if key in asked}, **tree}


def recorded_sources(directory: Path) -> dict[str, str] | None:
    """By entrant of a tournament that was begun, the run that it is of.

    None: it was begun before that was written down; its entrants are to be named anew.
    """
    sources: dict[str, str] | None = read_description(directory)["asked"].get("sources")
    return sources


def check_unchanged(setup: TournamentSetup, directory: Path) -> None:
    """Raise a `UsageError` that tells whose weights have changed since a tournament was begun."""
    was = read_description(directory)["entrants"]
    now = json.loads(json.dumps(setup.description(()), default=str))["entrants"]
    before = {each.get("name"): each for each in was if isinstance(each, dict)}
    if added := [each["name"] for each in now if each["name"] not in before]:
        raise UsageError(
            f"{directory} cannot be gone on with: {', '.join(added)} is not among those that it "
            f"was begun with ({', '.join(map(str, before))}); begin another"
        )
    changed = [each["name"] for each in now if before[each["name"]] != each]
    if changed:
        raise UsageError(
            f"{directory} cannot be gone on with: {', '.join(changed)} has other weights now than "
            "when it was begun; begin another, and name versions that stay (RUN:policy@VERSION)"
        )


def _whole(word: str) -> str:
    """A run, or a policy of one, with the whole path of the run."""
    if not is_meant_of_run(word):
        return word
    run = Reference.parse(word).run
    whole = Path(word).expanduser()
    return str(whole.resolve()) if whole.is_dir() else f"{run.resolve()}:{word.rpartition(':')[2]}"


def is_one_run(words: Sequence[str]) -> bool:
    """Whether a single run is named, so that its checkpoints are meant."""
    return len(words) == 1 and Path(words[0]).expanduser().is_dir()


def is_among_checkpoints(words: Sequence[str]) -> bool:
    """Whether the checkpoints of a single run play."""
    return len(words) == 1 and (is_one_run(words) or ":" not in words[0])


def set_up(
    words: Sequence[str],
    game: str,
    options: Mapping[str, Any],
    scripted: Mapping[str, str] | None = None,
) -> Crossplay:
    """Find out who plays what.

    Args:
        words: each `RUN:policy`, with a version or not, `RUN:all` for all policies of a run,
            `RUN:all@frozen` for all members that do not change, or one that plays without having
            learned.
        game: its name; empty: that of the first run, with its options.
        options: of the game; they go over those of that run.
        scripted: by agent, who takes its seat for good; over those of that run. None: no more.

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
                "no entrant is of a run, so --game must tell what they play; RUN:policy names one"
            )
        theirs = game_of_runs(opened, options, scripted or {})
        game, options, notes = theirs.game.name, theirs.options, theirs.notes
        scripted = {**theirs.scripted, **(scripted or {})}
    kind = find_game(game)
    check_not_both(words, kind)
    found = [each for word in words for each in _found(word, opened)]
    for each in found:
        if isinstance(each.who, str):
            kind.policy(each.who)  # what cannot be loaded is told before anything is played
    named = _named(found)
    sources = {name: each.run for name, each in zip(named, found, strict=True) if each.run}
    return Crossplay(game, options, named, sources, scripted or {}, notes)


class _Found(NamedTuple):
    """Who is meant by a word."""

    own: str
    """Its name, short."""
    full: str
    """With that of its run."""
    who: Entrant
    run: str = ""
    """The directory of the run that trained it; empty: it has not learned."""


def _found(word: str, opened: Mapping[Path, SavedPolicies]) -> list[_Found]:
    """Who is meant by a word: one, or all of a run.

    Raises:
        UsageError: a run has no such policy or version.
        RunDirectoryError: weights are missing or damaged.
        CheckpointError: a checkpoint is missing or damaged.
    """
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


def _named(found: Sequence[_Found]) -> dict[str, Entrant]:
    """By short names; all by long ones, with the run's, where those would not tell all apart."""
    are_told_apart = len({each.own for each in found}) == len(found)
    named: dict[str, Entrant] = {}
    for each in found:
        name = base = each.own if are_told_apart else each.full
        number = 1
        while name in named:
            number += 1
            name = f"{base} ({number})"
        named[name] = each.who
    return named
