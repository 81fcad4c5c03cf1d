"""Notes for the user about conditions of a run that are not errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from remuda.config import Config
from remuda.envs.adapters.wrappers import METRICS, keys_of_metric, never_reported
from remuda.experience.experience import Experience
from remuda.runs.metrics import Record
from remuda.runs.result import Result
from remuda.system.scoreboard import Scoreboard

ENDLESS = 1_000  # turns of each copy after which the lack of a finished episode is reported
SHOWN = 4  # maximum names in a note
STARTS = "learning_starts"


class EnvironmentNotes:
    """The reader of notes that actors write into the scoreboard."""

    def __init__(self, scoreboard: Scoreboard) -> None:
        self._scoreboard = scoreboard
        self._reported: set[str] = set()

    def news(self) -> list[str]:
        found = self._scoreboard.notes()
        new = [words for key, words in found.items() if key not in self._reported]
        self._reported |= found.keys()
        return new

    def notes(self) -> list[str]:
        return list(self._scoreboard.notes().values())


def end_notes(
    config: Config, result: Result, experience: Mapping[str, Experience]
) -> Iterator[str]:
    """Yield notes about the whole run; `experience` is empty if nothing was left to train."""
    if result.finished:
        yield from _untrained(config, result.record, experience)
        yield from _unreported_metrics(config, result)
    yield from _endless(config, result)


def _untrained(config: Config, record: Record, experience: Mapping[str, Experience]) -> list[str]:
    """Return a note for policies that played to the end of a run and made no update."""
    scripted = {} if config.population.dealt else config.env.scripted
    names: dict[str, list[str]] = {}
    for name, policy in record.playing.items():
        if policy.updates or policy.nonfinite or name in scripted or name not in experience:
            continue
        store = experience[name]
        section, key = ("ppo", "rollout_length") if store.rollout else ("experience", STARTS)
        owner = f"policies.{name}" if key in config.policies.get(name, {}).get(section, {}) else ""
        needed = store.rollout or store.config.learning_starts
        limit = "run.turns" if config.run.turns is not None else "run.seconds"
        why = f"one needs {needed:,} steps of each policy"
        if policy.steps >= needed:
            why += ", and the run ended before the learner had finished one"
        words = f"{why}; raise {limit}, or lower {owner or 'policy'}.{section}.{key}"
        names.setdefault(words, []).append(name)
    return [
        f"{', '.join(own[:SHOWN])}{f' and {len(own) - SHOWN} more' if own[SHOWN:] else ''}: no "
        f"update was made: {words}"
        for words, own in names.items()
    ]


def _unreported_metrics(config: Config, result: Result) -> list[str]:
    """Return a note on episode metrics that had no value in any finished episode of a run.

    A `sum` without a value is 0; the environment notes it after many episodes.
    """
    names = [
        name
        for name, value in result.record.episode_metrics.items()
        if value is None and set(keys_of_metric(name)) & config.env.episode_metrics.keys()
    ]
    has_ended = any(policy.episodes for policy in result.record.policies.values())
    is_noted = any(note.startswith(METRICS) for note in result.notes)
    return [never_reported(names, "the run")] if names and has_ended and not is_noted else []


def _endless(config: Config, result: Result) -> list[str]:
    """Return a note if no episode ended in training."""
    record = result.record
    turns = record.turns // config.env.num_envs
    if turns < ENDLESS or any(policy.episodes for policy in record.policies.values()):
        return []
    return [
        f"no episode ended in {turns:,} turns of each copy of {config.game}, so there are no "
        "returns. Let the environment truncate episodes (max_cycles in many environments of "
        "PettingZoo; for Gymnasium's, env.wrappers with "
        "`gymnasium.wrappers:TimeLimit(max_episode_steps=1000)`), or raise run.turns"
    ]
