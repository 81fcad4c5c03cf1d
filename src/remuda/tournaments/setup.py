"""Who plays what in a tournament: all that its matches follow from."""

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
    """Who plays what: all that the matches of a tournament follow from."""

    game: str
    options: Mapping[str, Any]
    participants: tuple[Participant, ...]
    seed: int = 0
    sampled: bool = False
    """Whether policies explore as at the end of training; else they are greedy."""
    check: bool = True
    """Whether what the game hands over is checked."""
    taken: Mapping[str, str] = field(default_factory=dict)
    """By agent, who takes its seat for good without having learned: no entrant sits there."""

    def taken_seats(self, agents: Sequence[str]) -> dict[int, str]:
        """By seat, who takes it for good.

        Args:
            agents: of the game, by seat.

        Raises:
            UsageError: it has no such agent, or no seat is left.
        """
        for agent in self.taken:
            if agent not in agents:
                raise UsageError(
                    f"scripted: {self.game} has no agent {agent!r}; it has {', '.join(agents)}"
                )
        if agents and len(self.taken) == len(agents):
            raise UsageError(f"scripted: it takes every seat of {self.game}; leave one free")
        return {seat: self.taken[name] for seat, name in enumerate(agents) if name in self.taken}

    def description(self, agents: Sequence[str]) -> dict[str, Any]:
        """It as plain data."""
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
        """Eight characters by which one tournament is told from others.

        Args:
            until: the question that it is played for; empty: none.
        """
        told = self.description(()) | ({"until": until} if until else {})
        text = json.dumps(told, default=str, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
