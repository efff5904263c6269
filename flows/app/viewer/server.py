"""The viewer's server: on this machine only, until Ctrl-C."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn

from flows.app.viewer.app import make_app
from flows.app.viewer.guard import Key
from flows.app.viewer.view import url
from tasks.reports.page import VIEWER_PORT
from warehouse.store import Store

HOST = "127.0.0.1"
PORTS_TRIED = 20


def serve(
    store: Store,
    run: str = "",
    port: int | None = None,
    browser: bool = True,
    say: Callable = print,
) -> None:
    """Show the store, from the page of `run` on, until Ctrl-C. Raises ValueError if the port is
    taken."""
    listening = listen(port)
    key = Key(listening.getsockname()[1])
    address = f"http://{HOST}:{key.port}{url('', run)}#{key.token}"
    say(f"viewer: {address}\nCtrl-C ends it")
    config = uvicorn.Config(
        make_app(store, key), log_level="warning", access_log=False, server_header=False
    )
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    uvicorn.Server(config).run(sockets=[listening])


def listen(port: int | None) -> socket.socket:
    """A socket on `port`, or on the first free one from `VIEWER_PORT` on. Raises ValueError if the
    port is taken."""
    ports = [port] if port is not None else range(VIEWER_PORT, VIEWER_PORT + PORTS_TRIED)
    for candidate in ports:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((HOST, candidate))
            made.listen(128)
            return made
        except OSError:
            made.close()
    raise ValueError(
        f"port {port or VIEWER_PORT} is taken: name another by --port, or close the viewer that"
        " has it"
    )
