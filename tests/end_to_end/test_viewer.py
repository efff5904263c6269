"""The viewer in a real browser: what only a browser can show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.app.test_viewer import PAGES
from tests.support.chromium import Tab, chromium, find
from tests.support.rows import row
from tests.support.store_to_view import HOSTILE, lay
from tests.support.viewer import Viewer
from warehouse.query import query
from warehouse.store import Store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find() is None, reason="no chromium is installed"),
]


@pytest.fixture
def tab() -> Iterator[Tab]:
    with chromium() as found:
        yield found


@pytest.fixture
def viewer(store: Store, tab: Tab) -> Iterator[Viewer]:
    lay(store, text=HOSTILE)
    made = Viewer(store, tab)
    yield made
    made.close()


def test_every_page_opens_runs_no_script_of_a_text_and_asks_for_nothing_elsewhere(viewer):
    for path in PAGES:
        viewer.open(path)
        viewer.tab.wait("!document.querySelector('.htmx-request')")
        assert viewer.tab.eval("window.hit === undefined"), path
        assert viewer.tab.eval("document.scripts.length") == len(
            viewer.tab.eval("[...document.scripts].map(s => s.src).filter(Boolean)")
        )
    assert viewer.tab.said == []
    assert {url.split("/")[2] for url in viewer.tab.requests if url.startswith("http")} == {
        viewer.base.split("/")[2]
    }


def test_no_page_is_wider_than_its_window(viewer):
    for width in (1600, 1024, 400):
        viewer.tab.resize(width, 800)
        for path in PAGES:
            viewer.open(path)
            if viewer.tab.eval("!document.querySelector('.bar')"):
                continue  # a part of a page
            wide = (
                "[...document.querySelectorAll('main *')].filter(e =>"
                " e.getBoundingClientRect().right > innerWidth + 1)"
            )
            fits = viewer.tab.eval("document.documentElement.scrollWidth <= innerWidth")
            assert fits, (
                path,
                width,
                viewer.tab.eval(f"{wide}.slice(0, 5).map(e => e.outerHTML.slice(0, 120))"),
            )


def test_keys_walk_a_list_open_a_row_go_on_and_lead_back(viewer):
    viewer.open("/run/mine/rollouts?role=")
    tab = viewer.tab
    tab.press("j")
    tab.press("j")
    tab.press("o")
    tab.wait("location.pathname === '/run/mine/rollout' && document.readyState === 'complete'")
    second = tab.eval("location.search")
    tab.press("j")
    tab.wait(f"location.search !== '{second}' && document.readyState === 'complete'")
    tab.press("k")
    tab.wait(f"location.search === '{second}' && document.readyState === 'complete'")
    tab.press("u")
    tab.wait("location.pathname === '/run/mine/rollouts'")


def test_a_key_labels_and_the_label_is_there_after_a_restart(viewer):
    viewer.open("/run/mine/task?id=t1")
    viewer.tab.press("3")
    viewer.tab.wait("document.querySelector('[aria-pressed=true]')?.value === 'hack'")
    assert [r["opinion"] for r in query(viewer.store.root, "from annotations")] == ["hack"]
    again = Viewer(viewer.store, viewer.tab)
    again.open("/run/mine/task?id=t1")
    assert viewer.tab.eval("document.querySelector('[aria-pressed=true]').value") == "hack"
    again.close()


def test_a_label_in_a_sample_leads_on_and_the_last_one_back_to_the_list(viewer):
    viewer.open("/run/mine/read?stratum=role&n=3")
    tab = viewer.tab
    num_items = tab.eval("document.querySelectorAll('[data-list] tbody tr').length")
    assert num_items > 1
    tab.press("j")
    tab.press("o")
    tab.wait("location.pathname === '/run/mine/rollout' && document.readyState === 'complete'")
    for _ in range(num_items - 1):
        here = tab.eval("location.search")
        tab.press("1")
        tab.wait(f"location.search !== '{here}' && document.readyState === 'complete'")
    tab.press("2")
    tab.wait("location.pathname === '/run/mine/read' && document.readyState === 'complete'")
    opinions = [r["opinion"] for r in query(viewer.store.root, "from annotations")]
    assert sorted(opinions) == ["bad", *["good"] * (num_items - 1)]


def test_a_stage_at_work_moves_without_a_reload(viewer):
    place = viewer.store.run("mine").iteration(2)
    shards = viewer.store.shards(
        viewer.store.get("mine/iter-001/training/step-001/gates").schema, "mine/iter-002/gates", "k"
    )
    with viewer.store.lock(place.address("gates")):
        viewer.open("/run/mine?iteration=1")
        viewer.tab.wait("document.querySelector('.live')")
        for num_rows in (3, 6):
            shards.write("rows", [row("gates", task_id="t", gate="g", kind="rule")] * 3)
            viewer.tab.wait(
                "[...document.querySelectorAll('.live')]"
                f".some(line => line.textContent.includes('{num_rows} rows so far'))"
            )
    viewer.tab.wait("!document.querySelector('.live')")


def test_figures_are_drawn_and_the_theme_can_be_changed(viewer, tmp_path: Path):
    viewer.open("/run/mine")
    viewer.tab.wait("document.querySelector('.plot svg')")
    before = viewer.tab.eval("getComputedStyle(document.body).backgroundColor")
    viewer.tab.press("t")
    assert viewer.tab.eval("getComputedStyle(document.body).backgroundColor") != before


def test_a_result_is_a_grid_that_sorts_by_number_and_takes_titles_and_cells_as_text(viewer):
    hostile = "<img src=x onerror=window.hit=1>"
    statement = (
        f"select i, '{hostile}' as \"{hostile}\" from range(300) as a (i) order by i::varchar"
    )
    viewer.tab.resize(1200, 800)
    viewer.open(f"/sql?text={quote(statement)}")
    cells = (
        "[...document.querySelectorAll('.tabulator-row .tabulator-cell:first-child')].map(c =>"
        " c.textContent)"
    )
    viewer.tab.wait(f"{cells}.slice(0, 3).join() === '0,1,10'")
    viewer.tab.eval("document.querySelector('.tabulator-col-sorter').click()")
    viewer.tab.wait(f"{cells}.slice(0, 3).join() === '0,1,2'")
    assert viewer.tab.eval("document.querySelectorAll('.tabulator img').length") == 0
    assert viewer.tab.eval("document.querySelector('.tabulator').textContent.includes('onerror')")
    assert viewer.tab.eval("window.hit === undefined") and viewer.tab.said == []


def test_a_click_on_a_column_sorts_its_rows_and_a_second_one_turns_them_around(viewer):
    tab = viewer.tab
    viewer.open("/run/mine/rollouts?role=")
    roles = "[...document.querySelectorAll('[data-list] tbody tr')].map(r => r.cells[1].innerText)"
    head = "[...document.querySelectorAll('[data-list] th.sorts')][1]"
    tab.eval(f"{head}.click()")
    assert tab.eval(f"{head}.getAttribute('aria-sort')") == "ascending"
    assert tab.eval(roles) == ["answerer", "answerer", "asker", "judge"]
    tab.eval(f"{head}.click()")
    assert tab.eval(roles) == ["judge", "asker", "answerer", "answerer"]


def test_a_figure_is_saved_as_svg_and_png(viewer):
    tab = viewer.tab
    viewer.open("/run/mine")
    tab.wait("document.querySelector('figure.card [data-save=png]')")
    tab.eval(
        "window.saved = []; HTMLAnchorElement.prototype.click = function () {"
        " if (this.download) window.saved.push([this.download, this.href]) }"
    )
    name = tab.eval("document.querySelector('figure.card [data-save]').closest('figure').id")
    for kind, begins in (("svg", "data:image/svg+xml"), ("png", "data:image/png;base64,")):
        tab.eval(
            f"document.querySelector('figure.card [data-save={kind}]')"
            ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
        )
        tab.wait(f"window.saved.some(([name]) => name === '{name}.{kind}')")
        address = tab.eval(f"window.saved.find(([name]) => name === '{name}.{kind}')[1]")
        assert address.startswith(begins) and len(address) > 1000
