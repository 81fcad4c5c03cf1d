"""Access control for the dashboard: this machine only, or a secret token.

A page of another site that is open in the same browser must neither read nor drive the server:

1. No answer allows other origins, so that page cannot read it.
2. Every request below `/api/` must come from a page of this server, so that page cannot send one.
3. Only known host names are answered, so DNS rebinding gives it no name for this server.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from remuda.ui.dashboard.pages import Pages

COOKIE = "remuda_token"
LOCAL = ("127.0.0.1", "localhost", "::1")
"""Names by which this machine knows itself."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Only scripts of this server run, and they talk to it alone. Charts set styles."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Guard(BaseHTTPMiddleware):
    """The outermost layer of the server, which refuses foreign requests."""

    def __init__(self, app: ASGIApp, pages: Pages, host: str, token: str = "") -> None:
        super().__init__(app)
        self.pages = pages
        self._names, self._token = names_of(host), token

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Refuse, set the cookie, or let the application answer."""
        response = self._refusal(request)
        if response is None and self._token and "token" in request.query_params:
            response = self._set_cookie(request)
        if response is None:
            response = await call_next(request)
        response.headers.update(HEADERS)
        return response

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if self._names is not None and _without_port(host) not in self._names:
            return PlainTextResponse("this server is not known by that name", 421)
        starts_work = request.scope["path"].startswith("/api/")
        changes = request.method not in ("GET", "HEAD")
        if (starts_work or changes) and not _is_own(request, host):
            return PlainTextResponse("only pages of this server may send it requests", 403)
        if self._token and not self._knows_token(request):
            words = "the address that `remuda dashboard` printed has a token; open that"
            return PlainTextResponse(words, 401)
        return None

    def _knows_token(self, request: Request) -> bool:
        cookie = request.cookies.get(_cookie_name(request))
        return any(
            found is not None and hmac.compare_digest(found.encode(), self._token.encode())
            for found in (request.query_params.get("token"), cookie)
        )

    def _set_cookie(self, request: Request) -> Response:
        """Keep the token as a cookie, and out of the address and the history."""
        cookie = f"{_cookie_name(request)}={self._token}; HttpOnly; SameSite=Strict; Path=/"
        # Browsers take `//host` and `/\\host` for the address of another host.
        path = "/" + request.scope["path"].lstrip("/\\")
        headers = {"location": quote(path, safe="/%"), "set-cookie": cookie}
        return PlainTextResponse("", 303, headers)


def names_of(host: str) -> Collection[str] | None:
    """Return the names of a server bound to this host; None: any, the token protects it."""
    try:
        if ipaddress.ip_address(host).is_unspecified:
            return None
    except ValueError:
        pass
    return {host.lower(), *LOCAL} if host in LOCAL else {host.lower()}


def _cookie_name(request: Request) -> str:
    """Return a name with the port: browsers share cookies among all ports of a host."""
    try:
        port = urlsplit(f"//{request.headers.get('host', '')}").port or 80
    except ValueError:
        port = 80
    return f"{COOKIE}_{port}"


def is_local(host: str) -> bool:
    """Return whether only this machine reaches a server bound to this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _without_port(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_own(request: Request, host: str) -> bool:
    """Return whether a page of this server sent it: others cannot set the header unasked."""
    origin = request.headers.get("origin")
    try:
        same = origin is None or urlsplit(origin).netloc == host
    except ValueError:
        same = False
    site = request.headers.get("sec-fetch-site", "same-origin")
    return same and "x-remuda" in request.headers and site == "same-origin"
