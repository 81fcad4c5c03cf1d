"""Reasons why a process ended, in words."""

from __future__ import annotations

import signal

NOT_STARTED = "could not be started: "
"""Start of a role's problem if the system refused its process."""
NO_RESTART = "ended by what a successor would meet again"
"""End of a process that would fail again after a restart."""
NO_GUARD = "began another run"
"""Problem of a role whose process imports a script that starts a run at import."""


def not_started(why: str) -> str:
    """Describe a role whose process could not be started."""
    return f"{NOT_STARTED}{why[:1].lower()}{why[1:]}"


def signal_name(number: int) -> str:
    """Name a signal; real-time signals between the first and the last have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
