"""The web server of the dashboard, for this machine only or protected by a token."""

from __future__ import annotations

import hmac
import inspect
import ipaddress
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import uvicorn
from pydantic import ValidationError, validate_call
from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from remuda.errors import RemudaError, UsageError
from remuda.ui.dashboard.catalogue import UnknownRunError
from remuda.ui.dashboard.pages import Pages, as_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp

    from remuda.ui.dashboard.pages import Pages

ANSWERS = (
    *(("GET", name) for name in ("runs", "run", "curves", "compare", "log")),
    *(("GET", name) for name in ("population", "timeline", "watched")),
    *(("POST", name) for name in ("control", "watch", "act")),
)  # HTTP method and path under `/api/`: a method of `Pages`, called with the query as arguments
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
LARGEST = 64 * 1024  # maximum bytes of a request's body


def make_app(
    base: Path, host: str = "127.0.0.1", token: str = "", *, control: bool = False
) -> Guard:
    """Make the application; with a `token`, only clients that know the token have access."""
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
    """A server that first ends its child processes, because open requests may wait for them."""

    def __init__(self, app: Guard, **settings: Any) -> None:
        super().__init__(uvicorn.Config(app, log_level="warning", access_log=False, **settings))
        self._pages = app.pages

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
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
            faults = error.errors(include_url=False, include_input=False)
            words = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in faults)
            return _refused(400, "; ".join(words))
        return Response(found, media_type="application/json", headers={"cache-control": "no-store"})

    return respond


async def _body(request: Request) -> dict[str, Any]:
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > LARGEST:
            raise UsageError(f"the body of a request is limited to {LARGEST:,} bytes")
    try:
        found = from_json(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError("the body of a request must be a JSON object")
    return found


def _refused(status: int, words: str) -> Response:
    return Response(as_json({"error": words}), status, media_type="application/json")


def _asset_routes() -> Iterator[Route]:
    for file in (resources.files("remuda.ui.dashboard") / "assets").iterdir():
        if kind := KINDS.get(Path(file.name).suffix):
            path = "/" if file.name == "index.html" else f"/assets/{file.name}"
            headers = {"content-type": kind, "cache-control": "no-cache"}
            yield Route(path, _constant(file.read_bytes(), headers))


def _constant(data: bytes, headers: Mapping[str, str]) -> Callable[[Request], Response]:
    return lambda _: Response(data, headers=headers)


COOKIE = "remuda_token"
LOCAL = ("127.0.0.1", "localhost", "::1")  # names of this machine
POLICY = (  # allows only scripts of this server, and requests to it; charts set inline styles
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Guard(BaseHTTPMiddleware):
    """The outermost layer of the server.

    A page of another site, open in the same browser, can neither read nor control the server:

    1. No response allows other origins, so such a page cannot read responses.
    2. Every request under `/api/` must come from a page of this server, so such a page cannot send
       requests.
    3. Only known host names are served, which prevents DNS rebinding.
    """

    def __init__(self, app: ASGIApp, pages: Pages, host: str, token: str = "") -> None:
        super().__init__(app)
        self.pages = pages
        self._names, self._token = names_of(host), token

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = self._refusal(request)
        if response is None and self._token and "token" in request.query_params:
            response = self._set_cookie(request)
        if response is None:
            response = await call_next(request)
        response.headers.update(HEADERS)
        return response

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if self._names is not None and _name_and_port(host)[0] not in self._names:
            return PlainTextResponse("this server does not serve that host name", 421)
        starts_work = request.scope["path"].startswith("/api/")
        changes = request.method not in ("GET", "HEAD")
        if (starts_work or changes) and not _is_own(request, host):
            return PlainTextResponse("only pages of this server may send requests to it", 403)
        if self._token and not self._knows_token(request):
            words = "open the full address that `remuda dashboard` printed, including its token"
            return PlainTextResponse(words, 401)
        return None

    def _knows_token(self, request: Request) -> bool:
        cookie = request.cookies.get(_cookie_name(request))
        return any(
            found is not None and hmac.compare_digest(found.encode(), self._token.encode())
            for found in (request.query_params.get("token"), cookie)
        )

    def _set_cookie(self, request: Request) -> Response:
        """Move the token from the URL, and so from the browser history, into a cookie."""
        cookie = f"{_cookie_name(request)}={self._token}; HttpOnly; SameSite=Strict; Path=/"
        # Browsers read `//host` and `/\\host` as the address of another host.
        path = "/" + request.scope["path"].lstrip("/\\")
        headers = {"location": quote(path, safe="/%"), "set-cookie": cookie}
        return PlainTextResponse("", 303, headers)


def names_of(host: str) -> Collection[str] | None:
    """Return the host names of a server bound to `host`; None: any name (a token protects it)."""
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_unspecified:
            return None
    return {host.lower(), *LOCAL} if host in LOCAL else {host.lower()}


def _cookie_name(request: Request) -> str:
    """Return a cookie name with the port: browsers share cookies among all ports of a host."""
    return f"{COOKIE}_{_name_and_port(request.headers.get('host', ''))[1] or 80}"


def is_local(host: str) -> bool:
    """Return whether a server bound to `host` is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name_and_port(host: str) -> tuple[str, int | None]:
    try:
        address = urlsplit(f"//{host}")
        return (address.hostname or "").lower(), address.port
    except ValueError:
        return "", None


def _is_own(request: Request, host: str) -> bool:
    is_same = request.headers.get("origin") in (None, f"http://{host}", f"https://{host}")
    site = request.headers.get("sec-fetch-site", "same-origin")
    return is_same and "x-remuda" in request.headers and site == "same-origin"
