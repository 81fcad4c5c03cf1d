"""Who may ask the dashboard for anything: those on this machine, or those who know the token.

A page of another site, open in the same browser, must neither read nor drive it. It cannot read
what this server says, since no answer allows other origins; it cannot drive it, since all that is
asked must come from a page of this server; and it cannot do either by a name of its own that it
lets point here (DNS rebinding), since only known names of this server are answered.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from remuda.ui.dashboard.pages import Pages

COOKIE = "remuda_token"
LOCAL = ("127.0.0.1", "localhost", "::1")
"""Names by which this machine is known to itself."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""No script but those of this server runs, and it talks to nobody else. Charts set styles."""
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class Guard:
    """Lets through only what may be asked; it stands before everything else."""

    def __init__(self, app: ASGIApp, pages: Pages, host: str, token: str = "") -> None:
        """Guard an application.

        Args:
            app: what is guarded.
            pages: what it answers with.
            host: that the server was bound to.
            token: that must be known; empty: whoever reaches the server may ask.
        """
        self.pages = pages
        self._app, self._names, self._token = app, names_of(host), token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application answer."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})  # there are none
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        if self._token and _asked_token(scope) is not None:
            await self._welcome(scope, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        await self._app(scope, receive, with_headers)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self._names is not None and _name_in(host) not in self._names:
            return 421, "this server is not known by that name"
        is_question = scope["path"].startswith("/api/")  # some of which begin work
        changes = scope["method"] not in ("GET", "HEAD")
        if (is_question or changes) and not _is_own(headers, host):
            return 403, "only pages of this server ask it anything"
        if self._token and not self._knows(scope, headers):
            return 401, "the address that `remuda dashboard` printed has a token; open that"
        return None

    def _knows(self, scope: Scope, headers: dict[str, str]) -> bool:
        # Other services of the host have cookies too, of any form.
        pairs = [part.strip().partition("=") for part in headers.get("cookie", "").split(";")]
        name = _cookie_of(headers.get("host", ""))
        shown = [_asked_token(scope), *(value for key, _, value in pairs if key == name)]
        return any(
            each is not None and hmac.compare_digest(each.encode(), self._token.encode())
            for each in shown
        )

    async def _welcome(self, scope: Scope, send: Send) -> None:
        """Keep the token as a cookie, and out of the address and the history."""
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        cookie = f"{_cookie_of(host)}={self._token}; HttpOnly; SameSite=Strict; Path=/"
        # Browsers take `//host` and `/\\host` for the address of another host.
        path = "/" + scope["path"].lstrip("/\\")
        headers = [
            (b"location", quote(path, safe="/%").encode()),
            (b"set-cookie", cookie.encode()),
        ]
        await _answer(send, 303, "", headers)


def names_of(host: str) -> Collection[str] | None:
    """By which names a server that is bound to this host is known; None: by any, to all.

    One that listens to all of a machine's addresses cannot know their names; the token protects it.
    """
    try:
        if ipaddress.ip_address(host).is_unspecified:
            return None
    except ValueError:
        pass
    return {host.lower(), *LOCAL} if host in LOCAL else {host.lower()}


def _cookie_of(host: str) -> str:
    """The name of the cookie; browsers share cookies among all ports of a host."""
    try:
        port = urlsplit(f"//{host}").port or 80
    except ValueError:
        port = 80
    return f"{COOKIE}_{port}"


def is_local(host: str) -> bool:
    """Whether only this machine reaches a server bound to this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name_in(host: str) -> str:
    """A host without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_own(headers: dict[str, str], host: str) -> bool:
    """Whether a page of this server asks; pages of others cannot set the header without asking."""
    origin = headers.get("origin")
    try:
        same = origin is None or urlsplit(origin).netloc == host
    except ValueError:
        same = False
    site = headers.get("sec-fetch-site", "same-origin")
    return same and "x-remuda" in headers and site == "same-origin"


def _asked_token(scope: Scope) -> str | None:
    found = parse_qs(scope["query_string"].decode("latin-1")).get("token")
    return found[0] if found else None


async def _answer(
    send: Send, status: int, words: str, headers: Collection[tuple[bytes, bytes]] = ()
) -> None:
    body = words.encode()
    kind = (b"content-type", b"text/plain; charset=utf-8")
    length = (b"content-length", str(len(body)).encode())
    start = {"status": status, "headers": [kind, length, *HEADERS, *headers]}
    await send({"type": "http.response.start", **start})
    await send({"type": "http.response.body", "body": body})
