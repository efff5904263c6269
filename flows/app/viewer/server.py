"""The viewer's server: on this machine only, until Ctrl-C, one per store."""

from __future__ import annotations

import http.client
import os
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn

from flows.app.viewer.app import make_app
from flows.app.viewer.guard import Key, kept_key
from flows.app.viewer.view import url
from tasks.reports.page import VIEWER_PORT, viewer_port
from warehouse.store import Store

HOST = "127.0.0.1"
PORTS_TRIED = 20
ANSWER_S = 3.0  # time limit for the answer of a viewer that may be running


def serve(
    store: Store,
    run: str = "",
    port: int | None = None,
    browser: bool = True,
    say: Callable = print,
) -> None:
    """Serve the store until Ctrl-C, and open the page of `run` in a browser.

    If a viewer of this store is already running, opens that one instead, unless another `port` is
    given. Raises ValueError if the port is taken.
    """
    running = running_viewer(store)
    if running is not None and port in (None, running.port):
        address = _address(running, run)
        say(f"viewer: {address}\nit is running already, in another process")
        if browser and not is_remote():
            webbrowser.open(address)
        return
    listening = listen(port, viewer_port(store))
    key = kept_key(store, listening.getsockname()[1])
    address = _address(key, run)
    say(f"viewer: {address}\nCtrl-C ends it")
    if is_remote():
        say(tunnel(key.port))
    config = uvicorn.Config(
        make_app(store, key), log_level="warning", access_log=False, server_header=False
    )
    if browser and not is_remote():
        threading.Timer(0.5, webbrowser.open, [address]).start()
    uvicorn.Server(config).run(sockets=[listening])


def _address(key: Key, run: str) -> str:
    return f"http://{HOST}:{key.port}{url('', run)}#{key.token}"


def is_remote() -> bool:
    """Whether this shell runs on a machine other than the user's, which has the browser."""
    return "SSH_CONNECTION" in os.environ


def tunnel(port: int) -> str:
    """
    >>> tunnel(4218).partition(" USER")[0]
    'from your own machine, first: ssh -N -L 4218:127.0.0.1:4218'
    """
    return (
        f"from your own machine, first: ssh -N -L {port}:{HOST}:{port} USER@{socket.gethostname()}"
    )


def running_viewer(store: Store) -> Key | None:
    """The key of the viewer of this store if one is running at the last used port, else None."""
    key = kept_key(store, viewer_port(store), new=False)
    if key is None:
        return None
    nonce = secrets.token_hex(16)
    connection = http.client.HTTPConnection(HOST, key.port, timeout=ANSWER_S)
    try:
        connection.request("GET", f"/alive?nonce={nonce}")
        answer = connection.getresponse().read(200).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    # another program may have taken the port, so the token itself is never sent
    if answer == key.proof(nonce):
        return key
    return None


def listen(port: int | None, first: int = VIEWER_PORT) -> socket.socket:
    """A socket on `port`, or on the first free one from `first` on. Raises ValueError if the port
    is taken."""
    ports = [port] if port is not None else range(first, first + PORTS_TRIED)
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
        f"port {port or first} is taken: name another by --port, or close the viewer that has it"
    )
