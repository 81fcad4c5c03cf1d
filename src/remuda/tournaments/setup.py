"""Who plays what in a tournament: all that its matches follow from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.tournaments.entrants import Participant


@dataclass(frozen=True)
class TournamentSetup:
    """Who plays what: all that the matches of a tournament follow from."""

    game: str
    options: Mapping[str, Any]
    participants: tuple[Participant, ...]
    seed: int = 0
    sampled: bool = False
    """Whether policies explore as at the end of training; else they are greedy."""
    check: bool = True
    """Whether what the game hands over is checked."""

    def description(self, agents: Sequence[str]) -> dict[str, Any]:
        """It as plain data."""
        return {
            "tournament": 1,
            "game": self.game,
            "options": dict(self.options),
            "agents": list(agents),
            "entrants": [
                {"name": each.name, "members": each.summary()} for each in self.participants
            ],
            "seed": self.seed,
            "sampled": self.sampled,
        }

    def digest(self, until: str = "") -> str:
        """Eight characters by which one tournament is told from others.

        Args:
            until: the question that it is played for; empty: none.
        """
        told = self.description(()) | ({"until": until} if until else {})
        text = json.dumps(told, default=str, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
