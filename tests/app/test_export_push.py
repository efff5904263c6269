"""`selfplay export --push`: huggingface_hub's own client against a hub on this machine."""

from __future__ import annotations

import hashlib
import json
import threading
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from flows.app.command import cli
from tests.support.store_to_view import lay

TOKEN = "hf_ours"


class Hub:
    """The parts of huggingface.co that the client uses: repositories, small files in a commit,
    large files by LFS.

    `broken` maps the beginning of a path to the status with which it fails.
    """

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.large: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}
        self.broken: tuple[str, int] = ("-", 0)
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                path, status = hub.broken
                if self.path.startswith(path):
                    self.send_error(status)
                elif self.headers[
                    "Authorization"
                ] != f"Bearer {TOKEN}" and not self.path.startswith("/large"):
                    self.send_error(401, "Invalid username or password.")
                else:
                    self._send(json.dumps(hub.answer(self.path, body)).encode())

            def do_PUT(self) -> None:
                self.do_POST()

            def _send(self, said: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, path: str, body: bytes) -> Any:
        if path.startswith("/large/"):
            self.large[path.removeprefix("/large/")] = body
            return {}
        if "/commit/" in path:
            return self._commit([json.loads(line) for line in body.splitlines()])
        given = json.loads(body)
        if path == "/api/repos/create":
            self.made.append(given)
            return {"url": f"{self.url}/datasets/{given['organization']}/{given['name']}"}
        if path == "/api/validate-yaml":
            yaml.safe_load(given["content"].split("---")[1])
            return {"errors": [], "warnings": []}
        if "/preupload/" in path:
            modes = {True: "lfs", False: "regular"}
            sent = [
                (file["path"], modes[file["path"].endswith(".parquet")]) for file in given["files"]
            ]
            return {
                "files": [
                    {"path": p, "uploadMode": mode, "shouldIgnore": False} for p, mode in sent
                ]
            }
        assert path.endswith(".git/info/lfs/objects/batch"), path
        actions = [
            {**o, "actions": {"upload": {"href": f"{self.url}/large/{o['oid']}"}}}
            for o in given["objects"]
        ]
        return {"transfer": "basic", "objects": actions}

    def _commit(self, operations: list[dict[str, Any]]) -> dict[str, Any]:
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                self.files[value["path"]] = b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                self.files[value["path"]] = self.large[value["oid"]]
        return {
            "success": True,
            "commitOid": "0" * 40,
            "commitUrl": f"{self.url}/datasets/ada/mine/commit/{'0' * 40}",
        }


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    constants = pytest.importorskip("huggingface_hub.constants")
    hub = Hub()
    thread = threading.Thread(target=hub.server.serve_forever)
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # files then go over plain HTTP
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()


@pytest.fixture
def push(store, tmp_path) -> Any:
    lay(store)
    command = ["export", "mine", "-o", str(tmp_path / "out"), "--push", "ada/mine"]
    return lambda: CliRunner().invoke(cli.main, command)


def test_every_file_and_the_card_arrive_in_a_private_repository(hub, push, tmp_path):
    done = push()
    assert done.exit_code == 0, done.output
    assert f"pushed to {hub.url}/datasets/ada/mine" in done.output
    [made] = hub.made
    assert (made["type"], made["organization"], made["name"]) == ("dataset", "ada", "mine")
    assert made.get("private") or made.get("visibility") == "private"
    sent = {
        str(p.relative_to(tmp_path / "out")): p.read_bytes()
        for p in (tmp_path / "out").rglob("*")
        if p.is_file()
    }
    assert {name for name in sent if name.endswith(".parquet")} >= {"rollouts/train-00000.parquet"}
    assert {name: data for name, data in hub.files.items() if name != ".gitattributes"} == sent
    assert all(hashlib.sha256(data).hexdigest() == oid for oid, data in hub.large.items())


def test_a_refusal_says_how_to_log_in_and_keeps_what_was_written(hub, push, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_old")
    done = push()
    assert done.exit_code == 1 and "not pushed to ada/mine" in done.output and "401" in done.output
    assert "hf auth login" in done.output and isinstance(done.exception, SystemExit)
    assert (tmp_path / "out" / "README.md").exists() and hub.files == {}


@pytest.mark.parametrize(
    "path", ["/large", "/api/datasets/ada/mine/commit", "/api/datasets/ada/mine/preupload"]
)
def test_an_upload_that_breaks_is_said_and_nothing_is_committed(hub, push, path):
    hub.broken = (path, 403)
    done = push()
    assert done.exit_code == 1 and "ada/mine" in done.output and "403" in done.output, done.output
    assert isinstance(done.exception, SystemExit) and hub.files == {}


def test_a_hub_that_is_not_there_is_said(hub, push, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    done = push()
    assert (
        done.exit_code == 1
        and "not pushed to ada/mine" in done.output
        and isinstance(done.exception, SystemExit)
    )
