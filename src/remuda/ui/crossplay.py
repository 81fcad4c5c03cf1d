"""`remuda tournament` between policies of several runs: who they are, and in which game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.crossplay import Entrant, Tournament, play_across
from remuda.envs.registry import RANDOM, find_game
from remuda.errors import ConfigError
from remuda.saved import Reference, SavedPolicies, is_of_run


@dataclass(frozen=True)
class Crossplay:
    """A tournament that is ready to be played."""

    game: str
    options: Mapping[str, Any]
    entrants: Mapping[str, Entrant]
    """By name, in the order in which the user named them."""

    def play(self, episodes: int, seed: int, sampled: bool) -> Tournament:
        """Play it; see `play_across`."""
        return play_across(self.game, self.options, self.entrants, episodes, seed, sampled)


def is_one_run(words: Sequence[str]) -> bool:
    """Whether a single run is named, so that its checkpoints are meant."""
    return len(words) == 1 and Path(words[0]).expanduser().is_dir()


def set_up(words: Sequence[str], game: str, options: Mapping[str, Any]) -> Crossplay:
    """Find out who plays what.

    Args:
        words: each `RUN:policy`, with a version or not, or one that plays without having learned.
        game: its name; empty: that of the first run, with its options.
        options: of the game; they go over those of that run.

    Raises:
        ConfigError: no game is known, or it has no policy of that name.
        UsageError: a run has no such policy or version.
        RunDirectoryError: there is no such run, or it is damaged.
        CheckpointError: a checkpoint is missing or damaged.
    """
    opened: dict[Path, SavedPolicies] = {}
    found: list[tuple[str, str, Entrant]] = []
    for word in words:
        if word == RANDOM or not is_of_run(word):
            found.append((word, word, word))
            continue
        reference = Reference.parse(word)
        if reference.run not in opened:
            opened[reference.run] = reference.open()
        saved = reference.find(opened[reference.run])
        name = reference.which and f"{reference.policy or saved.name}@{reference.which}"
        own = name or saved.name
        found.append((own, f"{reference.run.name}:{own}", saved.player))
    if not game:
        if not opened:
            raise ConfigError(
                "no entrant is of a run, so --game must tell what they play; RUN:policy names one"
            )
        config = next(iter(opened.values())).config
        game, options = config.game, {**config.env.options, **options}
    kind = find_game(game)
    for _, _, entrant in found:
        if isinstance(entrant, str):
            kind.policy(entrant)  # what cannot be loaded is told before anything is played
    return Crossplay(game, options, _named(found))


def _named(found: Sequence[tuple[str, str, Entrant]]) -> dict[str, Entrant]:
    """By short names; by long ones, with the run's, where those would not tell them apart."""
    short = [own for own, _, _ in found]
    named: dict[str, Entrant] = {}
    for own, full, entrant in found:
        name = base = own if short.count(own) == 1 else full
        number = 1
        while name in named:
            number += 1
            name = f"{base} ({number})"
        named[name] = entrant
    return named
