"""The game that policies of saved runs play if the user names no game."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from remuda.config import Config, by_leaf, overlay
from remuda.envs.description import EnvSpec, unchanged
from remuda.envs.registry import CHANGED, RANDOM, Game, find_game
from remuda.errors import ConfigError, UsageError
from remuda.evaluation.tournaments.entrants import Entrant
from remuda.population.run_spec import RunSpec
from remuda.training.saved.policies import Reference, SavedPolicies, is_of_run


class RunGame(NamedTuple):
    """A run, and the environment options that it had changed when it saved a policy."""

    config: Config
    changed: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class SavedGame:
    """The game of players, some of which are policies of saved runs."""

    game: Game
    options: Mapping[str, Any]
    """The options with which the first policy was saved, overridden by the user's options."""
    opened: Mapping[Path, SavedPolicies]  # the players' runs, each opened once, by resolved path
    scripted: Mapping[str, str] = field(default_factory=dict)
    """The scripted policies that reserve seats in the first run."""
    notes: tuple[str, ...] = ()  # a line for each other run or policy of another game


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

    The game of a run has the options in force when the run saved the first policy.

    - `options`: the user's options of the game, which override those of the run.
    - `texts`: the players' names: of scripted policies, runs, or policies of runs.
    - `seated`: the agents whose seats the user assigned in place of `env.scripted`; None means all.
    """
    opened = open_runs(texts)
    if name:
        found = SavedGame(find_game(name), options, opened)
    elif opened:
        sources = _sources(texts, opened)
        first = next(iter(sources.values()))
        used = made_with(first, options)
        notes = other_games(sources, options, seated)
        played = find_game(first.config.game)
        found = SavedGame(played, used, opened, first.config.env.scripted, notes)
    else:
        return None
    for text in texts:
        check_one_meaning(text, found.game)
    return found


def check_one_meaning(text: str, game: Game) -> None:
    """Raise a `ConfigError` if a player's name is that of a run and of a scripted policy.

    `random` is always the scripted policy.
    """
    if text in game.scripted and is_of_run(text):
        raise ConfigError(
            f"{text} is a run, and a scripted policy of {game.name}: write ./{text} for the run, "
            "or rename it to use the scripted policy"
        )


def _sources(texts: Iterable[str], opened: Mapping[Path, SavedPolicies]) -> dict[str, RunGame]:
    """Return the run of each player; players with equal options share the run's entry."""
    found: dict[str, RunGame] = {}
    for text in filter(is_meant_of_run, texts):
        reference = Reference.parse(text)
        saved = opened[reference.run.resolve()]
        source, run = RunGame(saved.config, reference.env_options(saved)), str(saved.files.path)
        if found.setdefault(run, source).changed != source.changed:
            found[text] = source
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
    sources: Mapping[str, RunGame],
    options: Mapping[str, Any],
    seated: Collection[str] | None = (),
) -> tuple[str, ...]:
    """Return a line for each run or policy whose game differs from that of the first."""
    (first, _), *others = sources.values()
    played_with = unmeasured(made_with(next(iter(sources.values())), options))
    missing, notes = object(), []
    for name, (config, _) in zip(list(sources)[1:], others, strict=True):
        played, trained = played_with, unmeasured(made_with(sources[name], options))
        if config.game == first.game and played != trained:
            # If a game cannot be made here, compare the options without defaults.
            with suppress(Exception):  # a user's game may raise anything
                in_force = [
                    overlay(EnvSpec.of(config.game, unchanged(each)).in_force, each)
                    for each in (played, trained)
                ]
                played, trained = in_force
        played, trained = (
            by_leaf(unchanged(each) | dict(each.get(CHANGED, {}))) for each in (played, trained)
        )
        different = [
            f"{key if key.startswith('env.') else f'env.options.{key}'} "
            f"{trained.get(key, 'at its default')}"
            for key in sorted({*trained, *played})
            if trained.get(key, missing) != played.get(key, missing)
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
                f"{name} learned with {', '.join(different)}; all play {first.game} as in the "
                "first run; to play another game, name its run first"
            )
    return tuple(notes)


def unmeasured(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a game's options without `env.episode_metrics`, which does not change the game."""
    return {name: value for name, value in options.items() if name != "env.episode_metrics"}


def with_game_options(spec: RunSpec, options: Mapping[str, Any]) -> RunSpec:
    """Return a run whose game has other options; a `UsageError` if its policies cannot play it."""
    if not options:
        return spec
    env = spec.config.env.model_copy(update={"options": overlay(spec.config.env.options, options)})
    made = made_with(RunGame(spec.config, spec.env.changed), options)
    described = EnvSpec.of(spec.config.game, made)
    if difference := spec.env.difference(described):
        keys = " and ".join(f"env.options.{name}" for name in options)
        raise UsageError(
            f"{keys}: the run's policies cannot play {spec.config.game} with this: {difference}"
        )
    return replace(spec.with_config({"env": env}), env=described)


def made_with(source: RunGame, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run's game; those of the user override changed ones, too."""
    made = overlay(source.config.env.made_with, options)
    changed = {name: value for name, value in source.changed.items() if name not in options}
    return made | {CHANGED: changed} if changed else made
