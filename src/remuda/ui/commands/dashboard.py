"""`remuda dashboard`: runs in a browser."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

from pydantic import Field

from remuda.config import Section
from remuda.errors import RunDirectoryError, UsageError


class DashboardOptions(Section):
    """Show runs in a browser, live or finished; without `--control` it only reads."""

    directory: Path = Path("runs")
    """The directory of the runs, which may be up to three levels deep, or a single run."""
    port: int = Field(default=8700, ge=0, le=65535)
    """Port of the server; 0: any free port."""
    host: str = "127.0.0.1"
    """Address to listen on. Any address but this machine's own is protected by a token, which is
    part of the printed address."""
    control: bool = False
    """Let the pages control live runs: stop them, save a checkpoint, change hyperparameters, and
    show the current weights at play."""
    open: bool = False
    """Open the address in this machine's browser."""


def dashboard(options: DashboardOptions) -> int:
    """Show runs in a browser, live or finished."""
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
    with _listen(options.host, options.port) as bound:
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


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen()  # a browser that opens the address at once waits, and is not refused
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}, port {port}: {error.strerror}; name another with --port, or "
            "--port 0 for any that is free"
        ) from None
    return found
