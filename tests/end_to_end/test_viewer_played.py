"""The viewer in a real browser over a SCOPE run with scripted engines, during the run and
afterwards."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.flows.scope.test_played import play, say
from tests.support.chromium import Tab, chromium, find
from tests.support.scripted_play import Asked
from tests.support.viewer import Viewer
from warehouse.query import query
from warehouse.store import Store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find() is None, reason="no chromium is installed"),
]

SELFPLAY = str(Path(sys.executable).parent / "selfplay")
OF_A_KIND = 3  # pages to open of each kind
LINKS = "[...document.querySelectorAll('a[href^=\"/\"]')].map(a => a.getAttribute('href'))"


class Held:
    """A run in its own thread that stops at its first answer until it is released."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "store")
        self.answering = threading.Event()
        self.let_go = threading.Event()
        self.thread = threading.Thread(target=play, args=(folder, self.say))

    def say(self, asked: Asked) -> str | None:
        if asked.template == "solver":
            self.answering.set()
            assert self.let_go.wait(900)
        return say(asked)


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    held = Held(tmp_path_factory.mktemp("played"))
    yield held
    held.let_go.set()
    held.thread.join(900)


@pytest.fixture(scope="module")
def viewer(held: Held, tab: Tab) -> Iterator[Viewer]:
    viewer = Viewer(held.store, tab)
    yield viewer
    viewer.close()


def test_a_run_appears_moves_and_ends_on_an_open_page(held, viewer, tab):
    assert "no run yet" in tab.eval("document.body.textContent")
    held.thread.start()
    assert held.answering.wait(900)
    viewer.open("/run/r?iteration=1")
    tab.wait("document.querySelector('.live b')?.textContent.endsWith('/rollouts.solver')")
    assert not tab.eval(
        "[...document.querySelectorAll('.node .name')].some(n => n.textContent === 'updates')"
    )
    held.let_go.set()
    tab.wait(
        "[...document.querySelectorAll('.node .name')].some(n => n.textContent === 'updates')", 900
    )
    held.thread.join(900)
    tab.wait("!document.querySelector('.live')")


def test_a_token_that_was_trained_on_leads_to_its_document_and_the_document_to_the_update(
    viewer, tab
):
    viewer.open("/run/r/updates")
    tab.click("main .list a", "location.pathname.endsWith('/update')")
    update = tab.eval("location.pathname + location.search")
    tab.click("main .list td.text-cell a", "location.pathname.endsWith('/rollout')")
    assert update in tab.eval(LINKS)
    document = tab.eval(
        "[...document.querySelectorAll('.crumbs a')].find(a => a.textContent === 'its"
        " document').href"
    )
    tab.click(".crumbs a[href*='/group']", "location.pathname.endsWith('/group')")
    assert update in tab.eval(LINKS)
    tab.open(document)
    assert update in tab.eval(LINKS)
    task = tab.eval("document.querySelector('a[href*=\"/task?\"]').getAttribute('href')")
    viewer.open(task)
    assert urlsplit(document).path in [urlsplit(link).path for link in tab.eval(LINKS)]
    for path in re.findall(r"(/run/r/rollout\?id=\w+)", " ".join(tab.eval(LINKS)))[:3]:
        viewer.open(path)
        assert task in tab.eval(LINKS), path


def test_all_kinds_of_pages_open_from_one_another_and_say_nothing_to_the_console(viewer, tab):
    waiting = ["/"]
    seen = {"/"}
    opened = Counter[str]()
    tab.said.clear()
    tab.requests.clear()
    while waiting:
        link = waiting.pop(0)
        if link.endswith((".csv", ".md", ".parquet", "/report")) or "/whole" in link:
            continue
        viewer.open(link)
        assert tab.eval("document.querySelector('.bar') && !document.body.matches('.problem')"), (
            link
        )
        for found in tab.eval(LINKS):
            kind = urlsplit(found).path
            if found not in seen and opened[kind] < OF_A_KIND:
                seen.add(found)
                opened[kind] += 1
                waiting.append(found.partition("#")[0])
    pages = (
        "candidates",
        "task",
        "rollout",
        "group",
        "rollouts",
        "documents",
        "document",
        "update",
        "updates",
        "labels",
    )
    assert {f"/run/r/{page}" for page in pages} <= set(opened) and {
        "/run/r",
        "/across",
        "/sql",
    } <= set(opened)
    assert tab.said == []
    assert {urlsplit(url).netloc for url in tab.requests if url.startswith("http")} == {
        urlsplit(viewer.base).netloc
    }


def test_every_reason_of_the_funnel_opens_the_candidates_that_it_dropped(viewer, tab):
    viewer.open("/run/r/candidates")
    steps = tab.eval(
        "[...document.querySelectorAll('.funnel a')].map(a => [a.textContent,"
        " a.getAttribute('href')])"
    )
    counted = {
        row["reason"]: row["n"]
        for row in query(
            viewer.store.root,
            "select reason, count(*) as n from selections where not kept group by all",
        )
    }
    for reason, n in counted.items():
        [link] = [href for text, href in steps if reason in text]
        viewer.open(link.partition("#")[0])
        assert (
            tab.eval(
                "document.querySelectorAll('.list[data-list] tbody tr, .list[data-list]"
                " tr:has(td)').length"
            )
            == n
        )
    assert len(counted) >= 5


def start(store: Store) -> tuple[subprocess.Popen[str], str]:
    """`selfplay view`, and the address that it prints."""
    command = [SELFPLAY, "view", "r", "--no-browser"]
    environment = {"SELFPLAY_STORE": str(store.root), "PATH": "/usr/bin:/bin", "USER": "ada"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    return process, re.sub(r"^viewer: ", "", process.stdout.readline().strip())


def test_a_label_outlives_a_server_that_was_killed(viewer, tab):
    for opinion in ("none yet", "hack"):
        process, address = start(viewer.store)
        try:
            tab.enter(address)
            tab.click("nav a[href$='/rollouts']", "location.pathname.endsWith('/rollouts')")
            tab.click("main .list a", "location.pathname.endsWith('/rollout')")
            if opinion == "none yet":
                tab.press("3")
            tab.wait("document.querySelector('[aria-pressed=true]')?.value === 'hack'")
        finally:
            process.kill()
            process.wait()
