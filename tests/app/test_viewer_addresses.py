"""An address of the viewer stays good: its token belongs to the store, and a store has one
viewer."""

from __future__ import annotations

import http.server
import stat
import threading

import pytest
import uvicorn

from flows.app.viewer import server
from flows.app.viewer.app import make_app
from flows.app.viewer.guard import kept_key
from tasks.reports.page import viewer_file, viewer_page
from tests.support.store_to_view import lay


@pytest.fixture
def viewer(store, monkeypatch):
    """A viewer of the store that is running, and its key."""
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    lay(store)
    listening = server.listen(None, 0)
    key = kept_key(store, listening.getsockname()[1])
    running = uvicorn.Server(uvicorn.Config(make_app(store, key), log_level="warning"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    yield key
    running.should_exit = True
    thread.join(10)


def test_the_token_of_a_store_is_kept_for_its_owner_only(store):
    first = kept_key(store, 4300)
    again = kept_key(store, 4301)
    assert first.token == again.token and len(first.token) > 40
    assert stat.S_IMODE(viewer_file(store).stat().st_mode) == 0o600


def test_reports_link_to_the_port_that_the_viewer_had_last(store):
    assert viewer_page(store, "a b") == "http://127.0.0.1:4218/run/a%20b"
    kept_key(store, 4321)
    assert viewer_page(store, "a b") == "http://127.0.0.1:4321/run/a%20b"


def test_a_second_view_opens_the_first_viewer(store, viewer):
    said = []
    server.serve(store, "mine", browser=False, say=said.append)
    assert f"http://127.0.0.1:{viewer.port}/run/mine#{viewer.token}" in said[0]
    assert "running already" in said[0]


def test_another_program_on_the_port_is_not_taken_for_the_viewer_and_sees_no_token(store):
    seen = []

    class Stranger(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path + str(self.headers))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format, *args):
            pass

    stranger = http.server.HTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=stranger.serve_forever)
    thread.start()
    try:
        key = kept_key(store, stranger.server_port)
        assert server.running_viewer(store) is None
    finally:
        stranger.shutdown()
        thread.join(10)
        stranger.server_close()
    assert len(seen) == 1 and key.token not in seen[0]


def test_without_a_viewer_there_is_none_running(store):
    assert server.running_viewer(store) is None
