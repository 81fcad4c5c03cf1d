"""Notes of the environment for its user that are no errors."""

from __future__ import annotations

from remuda.scoreboard import Scoreboard


class EnvironmentNotes:
    """Reads the notes that actors left in the scoreboard."""

    def __init__(self, scoreboard: Scoreboard) -> None:
        self._scoreboard = scoreboard
        self._told: set[str] = set()

    def news(self) -> list[str]:
        """Return new messages."""
        found = self._scoreboard.notes()
        new = [words for key, words in found.items() if key not in self._told]
        self._told |= found.keys()
        return new

    def notes(self) -> list[str]:
        """Return all messages."""
        return list(self._scoreboard.notes().values())
