"""Why a process ended, in words."""

from __future__ import annotations

import signal

NOT_STARTED = "could not be started: "
"""What the problem of a role begins with whose process the system refused."""
NO_RESTART = "ended by what a successor would meet again"
"""How a process ended that is not restarted."""
NO_GUARD = "began a run of its own"
"""The problem of a role whose process reads a script that begins a run as it is read."""


def not_started(why: str) -> str:
    """The problem of a role that was refused, for this reason."""
    return f"{NOT_STARTED}{why[:1].lower()}{why[1:]}"


def signal_name(number: int) -> str:
    """Name a signal; real-time signals between the first and the last have a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
