"""Notes for the user during a run about conditions that are not errors."""

from __future__ import annotations

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
