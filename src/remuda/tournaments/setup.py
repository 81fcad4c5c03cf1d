"""The setup of a tournament, which determines all of its matches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.errors import UsageError
from remuda.tournaments.entrants import Participant


@dataclass(frozen=True)
class TournamentSetup:
    """The entrants, game and settings of a tournament."""

    game: str
    options: Mapping[str, Any]
    participants: tuple[Participant, ...]
    seed: int = 0
    sampled: bool = False
    """Explore with the final exploration rate; else greedy."""
    check: bool = True
    """Validate the environment's output."""
    taken: Mapping[str, str] = field(default_factory=dict)
    """The scripted policy that reserves an agent's seat."""

    def taken_seats(self, agents: Sequence[str]) -> dict[int, str]:
        """Return the scripted policy of each reserved seat."""
        for agent in self.taken:
            if agent not in agents:
                raise UsageError(
                    f"scripted: {self.game} has no agent {agent!r}; it has {', '.join(agents)}"
                )
        if agents and len(self.taken) == len(agents):
            raise UsageError(f"scripted: it takes every seat of {self.game}; leave one free")
        return {seat: self.taken[name] for seat, name in enumerate(agents) if name in self.taken}

    def description(self, agents: Sequence[str]) -> dict[str, Any]:
        """Return plain data."""
        told: dict[str, Any] = {
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
        if self.taken:
            told["scripted"] = dict(self.taken)
        return told

    def digest(self, until: str = "") -> str:
        """Return eight characters that identify the tournament."""
        told = self.description(()) | ({"until": until} if until else {})
        text = json.dumps(told, default=str, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
