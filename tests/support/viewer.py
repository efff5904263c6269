"""A viewer's server in this process, and a tab that has opened it."""

from __future__ import annotations

import threading

import uvicorn

from flows.app.viewer.app import make_app
from flows.app.viewer.guard import Key
from flows.app.viewer.server import listen
from tests.support.chromium import Tab
from warehouse.store import Store


class Viewer:
    def __init__(self, store: Store, tab: Tab) -> None:
        listening = listen(None)
        key = Key(listening.getsockname()[1])
        self.store = store
        self.tab = tab
        self.base = f"http://127.0.0.1:{key.port}"
        self.server = uvicorn.Server(uvicorn.Config(make_app(store, key), log_level="warning"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]})
        self.thread.start()
        tab.enter(f"{self.base}/#{key.token}")

    def open(self, path: str) -> None:
        self.tab.open(self.base + path)

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(600)
