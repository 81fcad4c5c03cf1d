"""Notes for the user during a run about conditions that are not errors."""

from __future__ import annotations

from collections.abc import Mapping

from remuda.experience.store import ExperienceStore, HeldSteps
from remuda.system.scoreboard import Scoreboard


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


LEAST = 0.5  # warn below this share of the capacity, or of a rollout
NAMED = 4  # maximum number of policies named in a message


class ShortEpisodes:
    """A warning about policies whose experience can hold less than half of its capacity or rollout.

    A segment holds steps of one episode, so episodes much shorter than `experience.segment_length`
    waste most of each segment.
    """

    def __init__(self, experience: Mapping[str, ExperienceStore]) -> None:
        self._experience = experience
        self._reported: set[str] = set()

    def news(self) -> list[str]:
        left = [name for name in self._experience if name not in self._reported]
        found = self._short(left)
        self._reported |= found.keys()
        return _messages(found)

    def notes(self) -> list[str]:
        """Return messages about all policies, by the mean length of segments so far."""
        return _messages(self._short(list(self._experience)))

    def _short(self, names: list[str]) -> dict[str, HeldSteps]:
        held = {name: self._experience[name].held for name in names}
        return {name: each for name, each in held.items() if each and each.share < LEAST}


def _messages(short: Mapping[str, HeldSteps]) -> list[str]:
    alike: dict[tuple[int, int, int, bool], list[tuple[str, HeldSteps]]] = {}
    for name, held in short.items():
        key = (held.wanted, held.segment_length, held.advised, held.is_rollout)
        alike.setdefault(key, []).append((name, held))
    return [_message(policies) for policies in alike.values()]


def _message(policies: list[tuple[str, HeldSteps]]) -> str:
    names = ", ".join(name for name, _ in policies[:NAMED])
    if len(policies) > NAMED:
        names += f" and {len(policies) - NAMED} more"
    held = min((each for _, each in policies), key=lambda each: each.share)
    if held.is_rollout:
        what = f"rollouts end after about {held.steps:,} of {held.wanted:,} steps"
    else:
        what = f"the experience holds at most {held.steps:,} of {held.wanted:,} steps"
        what += " (policy.experience.capacity)"
    several = "policies" if len(policies) > 1 else "policy"
    return (
        f"{several} {names}: {what}, {held.share:.0%}, because a segment holds one episode at most "
        f"and the mean segment so far has {held.mean_length:.1f} of {held.segment_length} steps. "
        f"Set policy.experience.segment_length to {held.advised}"
    )
