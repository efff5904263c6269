"""Decide who may see the store: a browser on this machine that has the token.

The token belongs to the store and is kept in a file that only its owner can read, so a URL stays
valid when the server restarts. The first URL carries the token in its fragment, which browsers
neither send nor log; `/open` takes it and sets a cookie that scripts cannot read. A request must
name this server as its Host; otherwise another site's page could reach it under another name (DNS
rebinding). A request that changes something must come from the viewer's own pages.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from dataclasses import dataclass, field
from typing import Literal, overload

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasks.reports.page import VIEWER, viewer_file
from warehouse.store import Store

LOCAL = ("127.0.0.1", "localhost")
# paths allowed without the token, because they are needed to accept it
OPEN = ("/open", "/alive", "/static/open.js", "/static/app.css")
STATEMENTS = "/sql/"  # paths with this prefix run the statement in the URL
TOKEN_BYTES = 32
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self'"
        " data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class Key:
    """The token of a store, the port of its server, and the cookie that holds it.

    The cookie's name contains the port, since browsers do not separate cookies by port.
    """

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES))

    @property
    def cookie(self) -> str:
        return f"selfplay-view-{self.port}"

    @property
    def origins(self) -> tuple[str, ...]:
        """The origins (URLs without a path) under which browsers know this server."""
        return tuple(f"http://{name}:{self.port}" for name in LOCAL)

    def fits(self, token: str) -> bool:
        """Whether a token is the right one; compares in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def proof(self, nonce: str) -> str:
        """The answer to a nonce that only a holder of the token can give."""
        return hmac.new(self.token.encode(), nonce.encode(), hashlib.sha256).hexdigest()


@overload
def kept_key(store: Store, port: int, new: Literal[True] = True) -> Key: ...


@overload
def kept_key(store: Store, port: int, new: bool) -> Key | None: ...


def kept_key(store: Store, port: int, new: bool = True) -> Key | None:
    """The key of a store's viewer on a port; its token is kept in the store, readable only by the
    owner.

    With `new`, creates a token if there is none, and remembers the port; without it, returns None
    if there is no token.
    """
    file = viewer_file(store)
    kept = {}
    if file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
    if "token" not in kept and not new:
        return None
    key = Key(port, kept["token"]) if "token" in kept else Key(port)
    if new and kept != {"port": key.port, "token": key.token}:
        fresh = store.root / "tmp" / f"{VIEWER}.{secrets.token_hex(4)}"
        with store.writable():
            with open(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as to:
                json.dump({"port": key.port, "token": key.token}, to)
            os.replace(fresh, file)
    return key


class Guard:
    """ASGI middleware: refuses requests without the token or from other sites, and sets `HEADERS`
    on every response."""

    def __init__(self, app: ASGIApp, key: Key) -> None:
        self.app = app
        self.key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.decode() for name, _ in message["headers"]}
                headers = {**HEADERS, "Cache-Control": cache_control(scope["path"])}
                added = [
                    (name.lower().encode(), value.encode())
                    for name, value in headers.items()
                    if name.lower() not in present
                ]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        answer = self._refusal(Request(scope)) or self.app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The refusal to send instead of the page, or None."""
        host = request.headers.get("host", "")
        origin = request.headers.get("origin")
        if f"http://{host}" not in self.key.origins:
            return PlainTextResponse("this server answers to its own name only", 421)
        if origin is not None and origin not in self.key.origins:
            return PlainTextResponse("this page may only be used from itself", 403)
        # a link on another site may lead to a page, but must not run a statement of its own
        if is_linked_elsewhere(request) and request.url.path.startswith(STATEMENTS):
            return PlainTextResponse("a statement may only be run from the viewer's page", 403)
        if request.method not in ("GET", "HEAD") and origin is None:
            return PlainTextResponse(
                "a request that changes something must say where it comes from", 403
            )
        if request.url.path in OPEN or self.key.fits(request.cookies.get(self.key.cookie, "")):
            return None
        return Response(CLOSED, 401, media_type="text/html")


def is_linked_elsewhere(request: Request) -> bool:
    """Whether another site's page led the browser here."""
    return request.headers.get("sec-fetch-site") == "cross-site"


def cache_control(path: str) -> str:
    """How long a browser may cache a path, as a Cache-Control header; names of libraries include
    their version."""
    if path.startswith("/static/vendor/"):
        return "private, max-age=604800, immutable"
    if path.startswith("/static/"):
        return "no-cache"
    return "no-store"


CLOSED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>selfplay</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/app.css">
<script src="/static/open.js" defer></script></head>
<body class="closed"><main><h1>selfplay</h1>
<p id="say">This page needs the address that <code>selfplay view</code> printed.</p>
</main></body></html>
"""
