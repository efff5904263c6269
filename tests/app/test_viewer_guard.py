"""The store is never served without the token, under another host name, or to another site's
page."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from flows.app.viewer.app import make_app
from flows.app.viewer.guard import Key
from tests.support.store_to_view import lay
from warehouse.store import Store

HOST = "http://127.0.0.1:4218"


@pytest.fixture(scope="module")
def key() -> Key:
    return Key(4218)


@pytest.fixture(scope="module")
def app(key: Key, tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    store = Store(tmp_path_factory.mktemp("store"))
    lay(store)
    return make_app(store, key)


@pytest.fixture
def stranger(app: FastAPI) -> TestClient:
    return TestClient(app, base_url=HOST)


@pytest.mark.parametrize(
    "path",
    ["/", "/run/mine", "/run/mine/whole?table=tasks&id=t1&part=text", "/sql", "/static/app.js"],
)
def test_nothing_is_served_without_the_token(stranger, key, path):
    for token in ("", "wrong", key.token[:-1], "é"):
        answer = stranger.get(path, headers={"Cookie": f"{key.cookie}={token}".encode()})
        assert answer.status_code == 401 and "mine" not in answer.text


def test_the_token_is_taken_once_and_kept_where_no_script_reads_it(stranger, key):
    assert stranger.post("/open", content="wrong", headers={"Origin": HOST}).status_code == 403
    answer = stranger.post("/open", content=key.token, headers={"Origin": HOST})
    assert (
        "HttpOnly" in answer.headers["set-cookie"]
        and "SameSite=lax" in answer.headers["set-cookie"]
    )
    assert stranger.get("/run/mine").status_code == 200


def test_a_request_under_another_name_is_refused(stranger, key):
    stranger.cookies.set(key.cookie, key.token)
    for host in (
        "evil.example",
        "evil.example:4218",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1:4218.evil.example",
        "",
    ):
        assert stranger.get("/", headers={"Host": host}).status_code == 421, host
    assert stranger.get("/", headers={"Host": "localhost:4218"}).status_code == 200


def test_a_request_from_another_page_is_refused(stranger, key):
    stranger.cookies.set(key.cookie, key.token)
    for origin in (
        "http://evil.example",
        "null",
        "http://127.0.0.1:4217",
        "https://127.0.0.1:4218",
    ):
        assert stranger.get("/", headers={"Origin": origin}).status_code == 403, origin
        assert (
            stranger.post("/open", content=key.token, headers={"Origin": origin}).status_code == 403
        ), origin
    assert stranger.post("/open", content=key.token).status_code == 403  # without an origin


def test_a_link_elsewhere_opens_a_page_but_runs_no_statement(stranger, key):
    stranger.cookies.set(key.cookie, key.token)
    linked = {"Sec-Fetch-Site": "cross-site"}
    assert stranger.get("/run/mine", headers=linked).status_code == 200
    for path in ("/sql/result", "/sql/result.csv", "/sql/result.parquet"):
        asked = {"text": "select 1 as one"}
        assert stranger.get(path, params=asked, headers=linked).status_code == 403
        assert stranger.get(path, params=asked).status_code == 200
    shown = stranger.get("/sql", params={"text": "select 17"}, headers=linked).text
    assert "select 17" in shown and "/sql/result" not in shown
    assert "/sql/result" in stranger.get("/sql", params={"text": "select 17"}).text


def test_every_answer_forbids_inline_scripts_framing_and_requests_elsewhere(stranger, key):
    stranger.cookies.set(key.cookie, key.token)
    for path in (
        "/",
        "/run/mine",
        "/nope",
        "/static/app.js",
        "/run/mine/whole?table=tasks&id=t1&part=text",
    ):
        headers = stranger.get(path).headers
        policy = dict(
            part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
        )
        assert (
            policy["default-src"] == "'none'"
            and policy["script-src"] == "'self'" == policy["connect-src"]
        )
        assert (
            policy["frame-ancestors"] == "'none'" and headers["x-content-type-options"] == "nosniff"
        )
