"""`remuda dashboard`: runs in a browser."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from remuda.config import Section
from remuda.errors import RunDirectoryError, UsageError
from remuda.ui.arguments import parse_flags, validate


class DashboardOptions(Section):
    """Runs in a browser, while they go on and after; without `--control` nothing is changed."""

    directory: Path = Path("runs")
    """The directory that runs lie in, at any depth down to three, or a single run."""
    port: int = Field(default=8700, ge=0, le=65535)
    """On which the server listens; 0: any that is free."""
    host: str = "127.0.0.1"
    """The address that it is bound to. Any but this machine's own is protected by a token, which
    is part of the address that is printed."""
    control: bool = False
    """Let the pages tell runs that go on to stop, to save a checkpoint, to train with other
    hyperparameters, and to show the weights that they play with now."""
    open: bool = False
    """Open it in the browser of this machine."""


def dashboard(words: Sequence[str]) -> int:
    """Show runs in a browser, while they go on and after."""
    options = validate(
        parse_flags(words, DashboardOptions, positional="directory"), DashboardOptions
    )
    if not options.directory.is_dir():
        raise RunDirectoryError(
            f"there is no directory {options.directory}; name the one that runs are in"
        )
    try:
        from remuda.ui.dashboard.server import Server, make_app
    except ImportError as error:
        raise UsageError(
            f"the dashboard needs {error.name}: pip install 'remuda[dashboard]'"
        ) from None
    from remuda.ui.dashboard.security import is_local

    token = "" if is_local(options.host) else secrets.token_urlsafe(16)
    with _bound(options.host, options.port) as bound:
        port = bound.getsockname()[1]
        shown = f"[{options.host}]" if ":" in options.host else options.host
        address = f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
        print(f"remuda: runs in {options.directory} at {address}  (Ctrl-C ends it)", flush=True)
        if options.open:
            import webbrowser

            webbrowser.open(address)
        app = make_app(options.directory, options.host, token, control=options.control)

        Server(app).run(sockets=[bound])
    return 0


def _bound(host: str, port: int) -> socket.socket:
    """A socket at this address.

    Raises:
        UsageError: it is taken, or not one of this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen()  # who opens the address at once waits, and is not refused
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}, port {port}: {error.strerror}; name another with --port, or "
            "--port 0 for any that is free"
        ) from None
    return found
