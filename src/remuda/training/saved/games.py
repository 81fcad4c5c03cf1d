"""The game that policies of saved runs play if the user names no game."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from remuda.config import Config, by_leaf, overlay
from remuda.envs.description import EnvSpec
from remuda.envs.registry import RANDOM, Game, find_game
from remuda.errors import ConfigError, UsageError
from remuda.evaluation.tournaments.entrants import Entrant
from remuda.training.saved.policies import Reference, SavedPolicies, is_of_run


@dataclass(frozen=True)
class SavedGame:
    """The game of players, some of which are policies of saved runs."""

    game: Game
    options: Mapping[str, Any]  # the first run's options, overridden by the user's options
    opened: Mapping[Path, SavedPolicies]  # the players' runs, each opened once, by resolved path
    scripted: Mapping[str, str] = field(default_factory=dict)
    """The scripted policies that reserve seats in the first run."""
    notes: tuple[str, ...] = ()  # a line for each other run that learned in another game


class RunEntrant(NamedTuple):
    """A policy that a player's name refers to."""

    name: str  # the policy's name, without the run
    full_name: str
    entrant: Entrant
    run: str = ""  # the directory of the run that trained the policy; empty: it is scripted
    of_all: bool = False  # whether the player's name is `RUN:all`


def is_meant_of_run(text: str) -> bool:
    """Return whether a player's name refers to a run, or to a policy of a run."""
    return text != RANDOM and is_of_run(text)


def open_runs(texts: Iterable[str]) -> dict[Path, SavedPolicies]:
    """Return the runs that players' names refer to, each opened once, by resolved path."""
    opened: dict[Path, SavedPolicies] = {}
    for reference in map(Reference.parse, filter(is_meant_of_run, texts)):
        run = reference.run.resolve()
        if run not in opened:
            opened[run] = reference.open()
    return opened


def find_saved_game(
    name: str | None,
    options: Mapping[str, Any],
    texts: Sequence[str],
    seated: Collection[str] | None = (),
) -> SavedGame | None:
    """Return the named game, or else that of the first run among `texts`; None: there is neither.

    - `options`: the user's options of the game, which override those of the run.
    - `texts`: the players' names: of scripted policies, runs, or policies of runs.
    - `seated`: the agents whose seats the user assigned in place of `env.scripted`; None means all.
    """
    opened = open_runs(texts)
    if name:
        found = SavedGame(find_game(name), options, opened)
    elif opened:
        configs = {saved.files.path: saved.config for saved in opened.values()}
        first = next(iter(configs.values()))
        used = overlay(first.env.made_with, options)
        notes = other_games(configs, options, seated)
        found = SavedGame(find_game(first.game), used, opened, first.env.scripted, notes)
    else:
        return None
    for text in texts:
        if text in found.game.scripted and is_of_run(text):
            raise ConfigError(
                f"{text} is a run, and a scripted policy of {found.game.name}: write ./{text} for "
                "the run, or rename it to use the scripted policy"
            )
    return found


def entrants_of(text: str, opened: Mapping[Path, SavedPolicies]) -> list[RunEntrant]:
    """Return the policies that a player's name refers to; several for `RUN:all`."""
    if not is_meant_of_run(text):
        return [RunEntrant(text, text, text)]
    reference = Reference.parse(text)
    run, whole = reference.run.name, str(reference.run.resolve())
    saved = opened[Path(whole)]
    several = reference.several(saved)
    if several:
        return [
            RunEntrant(name, f"{run}:{name}", each, "" if isinstance(each, str) else whole, True)
            for name, each in several.items()
        ]
    member = saved.config.population.scripted.get(reference.policy)
    if member is not None:
        if reference.which:
            raise UsageError(f"{text}: {reference.policy} is scripted, and has no versions")
        return [RunEntrant(reference.policy, f"{run}:{reference.policy}", member)]
    learned = reference.find_learned(saved)
    name = f"{reference.policy or learned.name}@{reference.which}"
    name = name if reference.which else learned.name
    return [RunEntrant(name, f"{run}:{name}", learned.player, whole)]


def other_games(
    configs: Mapping[Path, Config], options: Mapping[str, Any], seated: Collection[str] | None = ()
) -> tuple[str, ...]:
    """Return a line for each run that learned in another game than the first."""
    first, *others = configs.values()
    missing, notes = object(), []
    for run, config in zip(list(configs)[1:], others, strict=True):
        played, trained = _made_with(first, options), _made_with(config, options)
        if config.game == first.game and played != trained:
            # If a game cannot be made here, compare the options without defaults.
            with suppress(Exception):  # a user's game may raise anything
                in_force = [
                    overlay(EnvSpec.of(config.game, each).in_force, each)
                    for each in (played, trained)
                ]
                played, trained = in_force
        played, trained = by_leaf(played), by_leaf(trained)
        different = [
            f"{name if name.startswith('env.') else f'env.options.{name}'} "
            f"{trained.get(name, 'at its default')}"
            for name in sorted({*trained, *played})
            if trained.get(name, missing) != played.get(name, missing)
        ]
        own, played_by = config.env.scripted, first.env.scripted
        unassigned = {*own, *played_by} - {*seated} if seated is not None else ()
        different += [
            f"env.scripted.{agent} {own.get(agent, 'nobody')}"
            for agent in sorted(unassigned)
            if own.get(agent) != played_by.get(agent)
        ]
        if config.game != first.game:
            different = [config.game]
        if different:
            notes.append(
                f"{run} learned with {', '.join(different)}; all play {first.game} as in the first "
                "run; to play another game, name its run first"
            )
    return tuple(notes)


def unmeasured(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a game's options without `env.episode_metrics`, which does not change the game."""
    return {name: value for name, value in options.items() if name != "env.episode_metrics"}


def _made_with(config: Config, options: Mapping[str, Any]) -> dict[str, Any]:
    return overlay(unmeasured(config.env.made_with), options)
