"""Bad requests to the viewer: every mistake yields a page that explains it, and no statement
blocks the server."""

from __future__ import annotations

import pytest

from flows.app.viewer.pages import sql
from tests.app.test_viewer import PAGES, client_of, open_page
from tests.support.rows import publish, row
from tests.support.store_to_view import lay
from warehouse.store import Store

PARAMETERS = {
    "/run/mine": ("iteration",),
    "/run/mine/candidates": ("iteration", "phase", "reason", "gate", "of", "offset"),
    "/run/mine/rollouts": (
        "iteration",
        "step",
        "role",
        "outcome",
        "reason",
        "order",
        "policy",
        "offset",
    ),
    "/run/mine/documents": ("text", "offset"),
    "/run/mine/update": ("iteration", "phase", "step"),
    "/run/mine/read": ("stratum", "seed", "n", "role"),
    "/run/mine/table": ("name", "iteration", "phase", "step"),
    "/run/mine/whole": ("table", "id", "part"),
    "/across": ("run", "task", "document"),
    "/compare": ("run",),
    "/search/rollouts": ("text", "run", "regex"),
    "/search/stars": ("text",),
    "/sql/result": ("text",),
}
VALUES = ("", "-1", "9" * 30, "1.5", "NaN", "'", "%", "\x00", "../x", "(?", "a" * 3000)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    store = Store(tmp_path_factory.mktemp("store"))
    lay(store)
    return client_of(store)


@pytest.mark.parametrize("path", PARAMETERS)
def test_a_value_that_a_parameter_cannot_have_is_said_on_a_page(browser, path):
    for name in PARAMETERS[path]:
        for value in VALUES:
            answer = browser.get(path, params={name: value})
            assert answer.status_code in (200, 307, 404, 422), (name, value)
            assert answer.status_code == 307 or answer.headers["content-type"].startswith(
                "text/html"
            ), (name, value)


@pytest.mark.parametrize("run", ["nope", "..", "%2e%2e", "_empty", "x" * 300, "a%2Fb", "%00"])
def test_a_run_that_there_is_not_is_not_looked_for_outside(browser, run):
    answer = browser.get(f"/run/{run}/rollouts")
    assert answer.status_code == 404 and "mine" not in answer.text


def test_a_mistake_names_the_parameter(browser):
    answer = browser.get("/run/mine/read", params={"seed": "often"})
    assert answer.status_code == 422 and "seed" in answer.text and "often" in answer.text


def test_an_empty_store_and_a_run_without_rollouts_have_all_pages(store):
    browser = client_of(store)
    assert "has no run yet" in browser.get("/").text
    for path in (
        "/compare",
        "/search?text=a",
        "/search/rollouts?text=a",
        "/sql",
        "/sql/result?text=from+tasks",
    ):
        open_page(browser, path)
    publish(
        store.run("mine").iteration(1),
        "evaluations",
        row("evaluations", benchmark="world", metric="score", n=1),
    )
    store.keep("mine", "config.json", {"seed": 0})
    browser = client_of(store)
    for path in PAGES:
        if "id=" not in path and "/update?" not in path:
            open_page(browser, path)


@pytest.mark.parametrize(
    "statement",
    [
        "attach 'x.duckdb'",
        "install httpfs",
        "select 1; drop view tasks",
        "from read_text('/etc/passwd')",
        "from read_csv('/proc/self/environ')",
        "with made as (copy tasks to 'x.csv') select 1",
        "create table x as select 1",
        "export database 'x'",
        "pragma enable_profiling",
        "call pragma_version()",
        "set memory_limit = '1TB'",
        "select getenv('HOME')",
        "from glob('/etc/*')",
        "from duckdb_secrets()",
        "load 'x'",
    ],
)
def test_a_statement_that_does_more_than_read_tables_shows_nothing(browser, statement):
    shown = browser.get("/sql/result", params={"text": statement}).text
    harmless = statement in ("call pragma_version()", "from duckdb_secrets()")
    assert "malformed" in shown or (harmless and "/root" not in shown), shown
    assert "root:" not in shown and "PATH=" not in shown


def test_a_statement_that_takes_too_long_is_ended(browser, monkeypatch):
    monkeypatch.setattr(sql, "SHOWN_S", 0.2)
    monkeypatch.setattr(sql, "FILE_S", 0.2)
    endless = {"text": "select count(*) from range(1000000000000) as a (i) where i % 7 = 3"}
    assert "took longer than 0.2 s" in browser.get("/sql/result", params=endless).text
    for name in ("result.csv", "result.parquet"):
        answer = browser.get(f"/sql/{name}", params=endless)
        assert answer.status_code == 400 and "took longer than 0.2 s" in answer.text, name


def test_a_result_of_any_length_shows_its_beginning(browser):
    shown = browser.get(
        "/sql/result", params={"text": "select i from range(1000000000) as a (i)"}
    ).text
    assert "500 or more rows" in shown and shown.count("<tr>") == 501
