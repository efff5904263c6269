"""A real headless Chromium, driven over the DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import connect
from websockets.sync.connection import Connection

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_S = 600.0


def find() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """One page. `requests` holds the addresses that it requested, `said` the messages on its
    console."""

    def __init__(self, socket: Connection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.requests: list[str] = []
        self.said: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._socket.recv(timeout=START_S))
            if told.get("id") == number:
                assert "error" not in told, told
                return told["result"]
            self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        given = told.get("params", {})
        if told.get("method") == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        elif told.get("method") == "Runtime.consoleAPICalled":
            self.said.append(
                " ".join(str(a.get("value", a.get("description"))) for a in given["args"])
            )
        elif told.get("method") == "Runtime.exceptionThrown":
            self.said.append(
                str(given["exceptionDetails"].get("exception", given["exceptionDetails"]))
            )
        elif told.get("method") == "Log.entryAdded":
            self.said.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
        elif told.get("method") == "Page.javascriptDialogOpening":
            self.said.append("a dialog was opened")

    def eval(self, script: str) -> Any:
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def enter(self, address: str) -> None:
        """Open the address that a viewer printed, with its token."""
        self.eval("window.left = true")
        self.call("Page.navigate", url=address)
        self.wait("!window.left && document.querySelector('.bar')")
        self.said.clear()

    def open(self, address: str) -> None:
        self.eval("window.left = true")
        self.call("Page.navigate", url=address)
        self.wait("!window.left && document.readyState === 'complete'")

    def wait(self, condition: str, within_s: float = 600.0) -> None:
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError):  # another page is being loaded
                if self.eval(f"!!({condition})"):
                    return
            time.sleep(0.05)
        raise TimeoutError(condition)

    def click(self, selector: str, condition: str) -> None:
        """Click on the first match of `selector`; wait for a page on which `condition` holds."""
        self.wait(f"document.querySelector({selector!r})")
        self.eval(f"document.querySelector({selector!r}).click()")
        self.wait(f"document.readyState === 'complete' && ({condition})")

    def press(self, key: str) -> None:
        code = {"Enter": "\r"}.get(key, key)
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def picture(self, path: Path, whole: bool = False) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


@contextlib.contextmanager
def chromium() -> Iterator[Tab]:
    program = find()
    assert program
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [
            program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--hide-scrollbars",
        ]
        command += ["--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            address = _address(Path(folder) / "DevToolsActivePort")
            # events wait unread
            with connect(address, max_size=None, ping_interval=None, proxy=None) as socket:
                yield Tab(socket)
        finally:
            process.terminate()
            process.wait(600)


def _address(file: Path) -> str:
    """The address of the first tab."""
    import httpx

    end = time.monotonic() + START_S
    while time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError, httpx.HTTPError, IndexError, StopIteration):
            port = file.read_text().split()[0]
            tabs = httpx.get(f"http://127.0.0.1:{port}/json", trust_env=False).json()
            return next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        time.sleep(0.1)
    raise TimeoutError("chromium did not start")
