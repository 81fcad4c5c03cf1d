"""The signals that end a run in order."""

import signal

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that the supervising process handles, and that its children ignore.

The terminal sends Ctrl-C, and SIGHUP when it closes, to every process at once. They are blocked
around the start of a child, so that none of its instructions runs before it ignores them."""
