"""The order of the slow tests where there is not time for all of them."""

import hashlib
import subprocess
import time

ORDER = "TESTS_IN_ORDER_OF"
"""An environment variable: what the order of this run is drawn from, for all its processes."""


def origin(directory):
    """The commit that is tested; without one, the day."""
    words = ["git", "-C", str(directory), "rev-parse", "HEAD"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return time.strftime("%Y-%m-%d")


def key(name, is_slow, origin):
    """Sorts slow tests behind all others, in an order that each origin draws anew."""
    return (is_slow, hashlib.sha256(f"{origin} {name}".encode()).digest() if is_slow else b"")
