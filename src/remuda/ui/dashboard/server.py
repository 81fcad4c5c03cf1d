"""The web server of the dashboard."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from pydantic import ValidationError, validate_call
from pydantic_core import from_json
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

ANSWERS = (
    *(("GET", name) for name in ("runs", "run", "curves", "compare", "log")),
    *(("GET", name) for name in ("population", "timeline", "watched")),
    *(("POST", name) for name in ("control", "watch")),
)
"""HTTP method and path below `/api/`. Each is a method of `Pages`; its arguments are the query."""
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
LARGEST = 64 * 1024
"""The most bytes of a request's body."""


def make_app(
    base: Path, host: str = "127.0.0.1", token: str = "", *, control: bool = False
) -> Guard:
    """Make the application.

    Args:
        base: the directory whose runs are shown; nothing outside it is.
        host: the address that the server is bound to.
        token: the secret that clients must know; empty: every client may send requests.
        control: whether pages may send requests to runs.
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
        *_asset_routes(),
        *(
            Route(f"/api/{name}", _answer(getattr(pages, name)), methods=[method])
            for method, name in ANSWERS
        ),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan), pages, host, token)


class Server(uvicorn.Server):
    """A server that ends its child processes before it waits for answers that need them."""

    def __init__(self, app: Guard, **settings: Any) -> None:
        super().__init__(uvicorn.Config(app, log_level="warning", access_log=False, **settings))
        self._pages = app.pages

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in order."""
        await run_in_threadpool(self._pages.end)
        await super().shutdown(sockets)


def _answer(method: Callable[..., Any]) -> Callable[[Request], Any]:
    """Make the endpoint that calls a method with the query, which pydantic checks."""
    call, known = validate_call(method), inspect.signature(method).parameters

    async def respond(request: Request) -> Response:
        try:
            values = {key: request.query_params.getlist(key) for key in request.query_params}
            query = {key: found if len(found) > 1 else found[0] for key, found in values.items()}
            if request.method == "POST":
                query |= await _body(request)
            query = {key: value for key, value in query.items() if key in known}
            found = await run_in_threadpool(lambda: as_json(call(**query)))
        except UnknownRunError as error:
            return _refused(404, str(error))
        except RemudaError as error:
            return _refused(400, str(error))
        except ValidationError as error:
            return _refused(400, _words_of(error))
        return Response(found, media_type="application/json", headers={"cache-control": "no-store"})

    return respond


async def _body(request: Request) -> dict[str, Any]:
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > LARGEST:
            raise UsageError(f"a request has {LARGEST:,} bytes at most")
    try:
        found = from_json(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError("the body of a request is an object of JSON")
    return found


def _words_of(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False)
    )


def _refused(status: int, words: str) -> Response:
    return Response(as_json({"error": words}), status, media_type="application/json")


def _asset_routes() -> Iterator[Route]:
    """Serve the files of the page itself, which stay in memory."""
    for file in (resources.files("remuda.ui.dashboard") / "assets").iterdir():
        if kind := KINDS.get(Path(file.name).suffix):
            path = "/" if file.name == "index.html" else f"/assets/{file.name}"
            headers = {"content-type": kind, "cache-control": "no-cache"}
            yield Route(path, _constant(file.read_bytes(), headers))


def _constant(data: bytes, headers: Mapping[str, str]) -> Callable[[Request], Response]:
    return lambda _: Response(data, headers=headers)
