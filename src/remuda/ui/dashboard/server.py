"""The server of the dashboard: addresses, and what they answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from remuda.errors import RemudaError, UsageError
from remuda.ui.dashboard.catalogue import UnknownRunError
from remuda.ui.dashboard.pages import Pages, as_json
from remuda.ui.dashboard.security import Guard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KINDS = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
LARGEST = 64 * 1024
"""Bytes of a request's body."""
Answer = Callable[[Pages, Mapping[str, Any]], Any]


def make_app(
    base: Path, host: str = "127.0.0.1", token: str = "", *, control: bool = False
) -> Guard:
    """The application.

    Args:
        base: the directory whose runs are shown; nothing outside it is.
        host: that it is bound to.
        token: that must be known; empty: whoever reaches it may ask.
        control: whether runs may be told what to do.
    """
    pages = Pages(base, control)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        pages.catalogue.start()
        try:
            yield
        finally:
            pages.end()
            await run_in_threadpool(pages.catalogue.stop)

    routes = [
        Route("/", _asset("index.html")),
        *(Route(f"/assets/{name}", _asset(name)) for name in _assets()),
        *(
            Route(f"/api/{name}", _asked(pages, answer), methods=[method])
            for (method, name), answer in ANSWERS.items()
        ),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan), pages, host, token)


class Server(uvicorn.Server):
    """Ends other processes before it waits for answers that wait for them."""

    def __init__(self, app: Guard, **settings: Any) -> None:
        """Serve an application, as uvicorn does with these settings."""
        super().__init__(uvicorn.Config(app, log_level="warning", access_log=False, **settings))
        self._pages = app.pages

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in order."""
        await run_in_threadpool(self._pages.end)
        await super().shutdown(sockets)


def _asked(pages: Pages, answer: Answer) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        try:
            given: dict[str, Any] = {
                key: request.query_params.getlist(key) for key in request.query_params
            }
            if request.method == "POST":
                given |= _body(await _limited(request))
            found = await run_in_threadpool(lambda: as_json(answer(pages, given)))
        except UnknownRunError as error:
            return _refused(404, str(error))
        except RemudaError as error:
            return _refused(400, str(error))
        return Response(found, media_type="application/json", headers={"cache-control": "no-store"})

    return respond


async def _limited(request: Request) -> bytes:
    """The body of a request.

    Raises:
        UsageError: it is too long.
    """
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > LARGEST:
            raise UsageError(f"a request has {LARGEST:,} bytes at most")
    return data


def _body(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError("the body of a request is an object of JSON")
    return found


def _refused(status: int, words: str) -> Response:
    return Response(as_json({"error": words}), status, media_type="application/json")


def _assets() -> list[str]:
    folder = resources.files("remuda.ui.dashboard") / "assets"
    return [each.name for each in folder.iterdir() if Path(each.name).suffix in KINDS]


def _asset(name: str) -> Callable[[Request], Response]:
    data = (resources.files("remuda.ui.dashboard") / "assets" / name).read_bytes()
    kind = KINDS[Path(name).suffix]

    def respond(_: Request) -> Response:
        return Response(data, media_type=kind, headers={"cache-control": "no-cache"})

    return respond


def _text(given: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A word of the request.

    Raises:
        UsageError: it is missing, or no word.
    """
    found = given.get(name, default)
    if isinstance(found, list):
        found = found[-1]
    if not isinstance(found, str):
        raise UsageError(f"{name} is missing")
    return found


def _texts(given: Mapping[str, Any], name: str) -> list[str]:
    found = given.get(name, [])
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _number(given: Mapping[str, Any], name: str, default: float) -> float:
    """A number of the request.

    Raises:
        UsageError: it is none.
    """
    found = given.get(name, default)
    if isinstance(found, list):
        found = found[-1]
    try:
        number = float(found)
    except (TypeError, ValueError):
        number = float("nan")
    if not abs(number) < 1e15:
        raise UsageError(f"{name} is {found!r}, and no number")
    return number


def _within(given: Mapping[str, Any], name: str) -> float | None:
    return _number(given, name, 0.0) if name in given else None


def _count(given: Mapping[str, Any], name: str, default: int, most: int) -> int:
    return max(min(int(_number(given, name, default)), most), 0)


def _seats(given: Mapping[str, Any]) -> dict[str, str]:
    found = given.get("seats", {})
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise UsageError("seats are by agent the name of who plays there")
    if any("/" in who or ":" in who for who in found.values()):
        raise UsageError(
            "seats are taken by policies of this run, or by those written for its game"
        )
    return {str(agent): who for agent, who in found.items()}


ANSWERS: Mapping[tuple[str, str], Answer] = {
    ("GET", "runs"): lambda pages, given: pages.runs(int(_number(given, "since", -1))),
    ("GET", "run"): lambda pages, given: pages.run(_text(given, "run")),
    ("GET", "curves"): lambda pages, given: pages.curves(
        _text(given, "run"), _text(given, "axis", "turns"), _texts(given, "column")
    ),
    ("GET", "compare"): lambda pages, given: pages.compare(
        _texts(given, "run"), _text(given, "axis", "turns"), _text(given, "column", "mean_return")
    ),
    ("GET", "log"): lambda pages, given: pages.log(_text(given, "run"), _text(given, "name")),
    ("GET", "population"): lambda pages, given: pages.population(_text(given, "run")),
    ("GET", "timeline"): lambda pages, given: pages.timeline(
        _text(given, "run"), _within(given, "begin"), _within(given, "end")
    ),
    ("POST", "control"): lambda pages, given: pages.control(_text(given, "run"), given),
    ("POST", "watch"): lambda pages, given: pages.watch(
        _text(given, "run"),
        _seats(given),
        _count(given, "seed", 0, 2**31 - 1),
        bool(given.get("sampled")),
        bool(given.get("live")),
    ),
    ("GET", "watched"): lambda pages, given: pages.watched(
        _text(given, "watch"), _count(given, "first", 0, 10**6), _count(given, "count", 20, 200)
    ),
}
"""What is asked, by method and address below `/api/`."""
