"""Decide who may see the store: a browser on this machine that has the token.

The token is made when the server starts. The first address carries it in its fragment, which no
browser sends or logs; `/open` takes it and sets a cookie that scripts cannot read. A request must
name this server as its Host, or a page elsewhere could reach it under another name (DNS rebinding),
and what changes something must come from its own pages.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL = ("127.0.0.1", "localhost")
# allowed without the token: the pages that accept it
OPEN = ("/open", "/static/open.js", "/static/app.css")
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
    """The token of a server on a port, and the cookie that holds it.

    The cookie's name has the port, since browsers do not tell cookies apart by port.
    """

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES))

    @property
    def cookie(self) -> str:
        return f"selfplay-view-{self.port}"

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(f"http://{name}:{self.port}" for name in LOCAL)

    def fits(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())


class Guard:
    """ASGI middleware: refuses requests without the token or from elsewhere, and sets `HEADERS`
    on every answer."""

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
        if request.method not in ("GET", "HEAD") and origin is None:
            return PlainTextResponse(
                "a request that changes something must say where it comes from", 403
            )
        if request.url.path in OPEN or self.key.fits(request.cookies.get(self.key.cookie, "")):
            return None
        return Response(CLOSED, 401, media_type="text/html")


def cache_control(path: str) -> str:
    """How long a browser may cache a path; libraries have their version in their name."""
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
