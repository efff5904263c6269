"""What a site reads from files and the environment: mistakes are named, and no secret leaks."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from flows.app.service import services
from flows.app.service.process import Process
from flows.app.service.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, tmp_path / "data" / "prefect")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            b"PREFECT_SERVER_API_PORT=48x7",
            r"SERVER_API_PORT in .*\.env is '48x7', which is no port: .* 1024 to",
        ),
        (b"PREFECT_SERVER_API_PORT=99999", "'99999', which is no port"),
        (
            b"PREFECT_API_AUTH_STRING=nocolon",
            r"in .*\.env is not of the form user:password: remove that line",
        ),
        (b"PREFECT_API_AUTH_STRING=:", "is not of the form user:password"),
        (b"\xff\xfe\x00", r"\.env is not text: move it away"),
    ],
)
def test_what_is_wrong_in_the_env_file_is_named(site: Site, line: bytes, said: str) -> None:
    site.env_file.write_bytes(line + b"\n")
    with pytest.raises(ValueError, match=said):
        site.prepare()


def test_another_port_is_refused_while_the_server_runs(site: Site) -> None:
    Site(site.root, site.home, 5001).prepare()
    before = site.env_file.read_text()
    server = site.start("server", ["-c", "import time; time.sleep(600)"])
    try:
        with pytest.raises(RuntimeError, match="runs on port 5001: end it with `selfplay down`"):
            services.up(Site(site.root, site.home, 5002))
    finally:
        server.stop()
    assert site.env_file.read_text() == before


def test_an_empty_env_file_is_filled(site: Site) -> None:
    site.env_file.touch()
    site.prepare()
    assert Site(site.root, site.home).secret == site.secret


def test_a_port_in_the_environment_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_PREFECT_PORT", "abc")
    with pytest.raises(ValueError, match="SELFPLAY_PREFECT_PORT is set to 'abc', which is no port"):
        Site.here()


def test_other_users_look_into_nothing_of_prefects(site: Site) -> None:
    site.prepare()
    assert site.home.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"pid": 1}', '{"pid": -5, "start": ""}', '{"pid": "1", "start": ""}']
)
def test_a_damaged_process_file_tells_of_no_process(tmp_path: Path, text: str) -> None:
    process = Process(tmp_path / "server.json")
    process.path.write_text(text)
    assert process.find() is None
    assert not process.stop() and not process.path.exists()


def test_a_process_is_known_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(tmp_path / "server.json")
    process.write(os.getpid())
    monkeypatch.setattr("psutil.boot_time", lambda: 1.0)
    assert process.find() is not None
    kept = json.loads(process.path.read_text())
    boot, ticks = kept["start"].split()
    for start in (f"{boot} {int(ticks) + 1}", f"other-boot {ticks}"):
        process.path.write_text(json.dumps({**kept, "start": start}))
        assert process.find() is None


def test_no_proxy_is_asked_for_our_server(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """If both spellings are set, Python's libraries read the lower-case one, which often lacks
    127.0.0.1."""
    asked: list[str] = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{proxy.server_port}"
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, url)
        monkeypatch.setenv("no_proxy", "localhost")
        monkeypatch.setenv("NO_PROXY", "example.org")
        get = "import httpx, sys; print(httpx.get(sys.argv[1], timeout=600).status_code)"
        for host, environment in (
            ("10.0.0.1", site.environment()),
            ("127.0.0.1:9", dict(os.environ)),
        ):
            command = [sys.executable, "-c", get, f"http://{host}/"]
            assert (
                subprocess.run(command, env=environment, capture_output=True, text=True).stdout
                == "200\n"
            )
        command[-1] = "http://127.0.0.1:9/ours"
        assert (
            subprocess.run(
                command, env=site.environment(), capture_output=True, check=False
            ).returncode
            != 0
        )
        proxy.shutdown()
    assert asked == ["http://10.0.0.1/", "http://127.0.0.1:9/"]
    assert set(site.environment()["no_proxy"].split(",")) == {
        "127.0.0.1",
        "localhost",
        "example.org",
    }


def test_a_worker_has_a_temporary_folder_of_its_own_and_its_flows_the_users(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefect's worker keeps files in its `runner_storage`, which in /tmp may belong to another
    user."""
    show = (
        "import tempfile; from flows.app.service import flow_process as f;"
        " print(tempfile.gettempdir()); "
    )
    show += "tempfile.tempdir = None; f._restore_temporary_folder(); print(tempfile.gettempdir())"
    for users in (None, str(site.root)):
        monkeypatch.delenv("TMPDIR") if users is None else monkeypatch.setenv("TMPDIR", users)
        site.logs.mkdir(parents=True, exist_ok=True)
        (site.logs / "show.log").unlink(missing_ok=True)
        process = site.start("show", ["-c", show]).find()
        assert process is None or process.wait(600) in (0, None)
        restored = users or ("/tmp" if Path("/tmp").is_dir() else tempfile.gettempdir())
        assert (site.logs / "show.log").read_text().split() == [str(site.home / "tmp"), restored]
