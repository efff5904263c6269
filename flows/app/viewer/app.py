"""The viewer's pages as a FastAPI application."""

from __future__ import annotations

import duckdb
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.middleware import Middleware
from starlette.staticfiles import StaticFiles

from flows.app.viewer.behind import Behind
from flows.app.viewer.guard import Guard, Key
from flows.app.viewer.pages import ROUTERS
from flows.app.viewer.view import HERE, View
from warehouse.lake import Lake
from warehouse.store import Store

MAX_TOKEN_BYTES = 200
COOKIE_S = 365 * 24 * 3600
# raised for a mistake in a URL
MISTAKES = (ValueError, duckdb.Error, RequestValidationError)


def make_app(store: Store, key: Key) -> FastAPI:
    """The viewer's application. It writes nothing to the store except people's labels.

    Every page requires the `key`, which a browser keeps in a cookie.
    """
    app = FastAPI(
        title="selfplay",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        middleware=[Middleware(Guard, key=key)],
    )
    app.state.lake = Lake(store)
    app.state.behind = Behind(store)
    app.mount("/static", StaticFiles(directory=HERE / "static"))
    for router in ROUTERS:
        app.include_router(router)

    @app.post("/open")
    async def take_token(request: Request) -> Response:
        token = (await request.body())[:MAX_TOKEN_BYTES].decode(errors="replace")
        if not key.fits(token):
            return PlainTextResponse("not the token of this server", 403)
        answer = PlainTextResponse("ok")
        answer.set_cookie(
            key.cookie, token, max_age=COOKIE_S, httponly=True, samesite="lax", path="/"
        )
        return answer

    @app.get("/alive")
    def prove(nonce: str = "") -> Response:
        """Prove to another `selfplay view` that this is the viewer of its store."""
        return PlainTextResponse(key.proof(nonce[:MAX_TOKEN_BYTES]))

    @app.get("/favicon.ico")
    def icon() -> Response:
        return FileResponse(HERE / "static" / "icon.svg")

    def problem_page(title: str, problem: str, status: int) -> HTMLResponse:
        page = View(app.state.lake).page("problem", title, problem=problem)
        page.status_code = status
        return page

    @app.exception_handler(AnyHTTPException)
    def not_found(request: Request, problem: AnyHTTPException) -> HTMLResponse:
        return problem_page("Not found", str(problem.detail), problem.status_code)

    def invalid(request: Request, problem: Exception) -> HTMLResponse:
        return problem_page("Invalid request", what_is_wrong(problem), 422)

    for kind in MISTAKES:
        app.add_exception_handler(kind, invalid)
    return app


def what_is_wrong(problem: Exception) -> str:
    """A sentence for people about an invalid request: each wrong parameter with its value, or the
    exception's own message."""
    if not isinstance(problem, RequestValidationError):
        return str(problem)
    return "; ".join(
        f"{error['loc'][-1]}: {error['msg']}, not {error['input']!r}" for error in problem.errors()
    )
