"""The viewer: every page of a run shows what is stored, whatever the stored texts attempt."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from flows.app.viewer.app import make_app
from flows.app.viewer.guard import Key
from flows.blocks.long_context import QuestionSet
from flows.worlds.built_in import HAYSTACKS
from tasks.report import report
from tests.support.rows import publish, row
from tests.support.store_to_view import HOSTILE, lay
from warehouse.schemas import SELECTIONS, TASKS
from warehouse.stopped import remembered
from warehouse.store import Store

HOST = "http://127.0.0.1:4218"
PAGES = [
    "/",
    "/run/mine",
    "/run/mine/figures",
    "/run/mine/findings",
    "/run/mine/judge",
    "/run/mine/judge?by=criterion&iteration=1",
    "/run/mine/head",
    "/run/mine/stages",
    "/run/mine/stages?iteration=1",
    "/run/mine/candidates",
    "/run/mine/candidates?iteration=1&phase=training&reason=",
    "/run/mine/task?id=t1",
    "/run/mine/rollout?id=a1",
    "/run/mine/rollout?id=a1&heat=1",
    "/run/mine/rollouts",
    "/run/mine/rollouts?order=best&outcome=rewarded&role=answerer",
    "/run/mine/rollouts?outcome=malformed",
    "/run/mine/rollouts?outcome=right&order=worst",
    "/run/mine/group?id=p-answer",
    "/run/mine/group?id=p-answer&against=a2",
    "/run/mine/documents",
    "/run/mine/document?id=d%2F1",
    "/run/mine/updates",
    "/run/mine/update?iteration=1&phase=training&step=1",
    "/run/mine/update?iteration=1&phase=training&step=1&low=1&high=2",
    "/across?run=mine&task=t1",
    "/across?document=d%2F1",
    "/compare?run=mine",
    "/run/mine/labels",
    "/run/mine/read?stratum=outcome",
    "/search",
    "/search?text=plain",
    "/search/rollouts?text=7&run=mine",
    "/search?role=answerer",
    "/search/rollouts?role=answerer&run=mine",
    "/search/tasks?text=7",
    "/search/prompts?text=7&regex=1",
    "/search/documents?text=7",
    "/sql",
    "/sql?text=select+1",
    "/sql/result?text=select+*+from+tasks",
]


def client_of(store: Store) -> TestClient:
    """A client that has the token."""
    key = Key(4218)
    client = TestClient(make_app(store, key), base_url=HOST, follow_redirects=False)
    client.cookies.set(key.cookie, key.token)
    return client


@pytest.fixture
def browser(store: Store) -> TestClient:
    return client_of(store)


def browser_of(text: str, folder: Path) -> TestClient:
    store = Store(folder)
    lay(store, text=text)
    return client_of(store)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return browser_of("a plain text", tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return browser_of(HOSTILE, tmp_path_factory.mktemp("hostile"))


class Elements(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def links(self) -> list[str]:
        return [str(given["href"]) for tag, given in self.found if tag == "a"]


def open_page(browser: TestClient, path: str) -> Elements:
    answer = browser.get(path)
    assert answer.status_code == 200, (path, answer.text[:300])
    return Elements(answer.text)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_shown_and_all_its_links_lead_somewhere(plain, path):
    for link in {*open_page(plain, path).links()}:
        assert link.startswith(("/", "#", "?")), link
        if link.startswith("/") and not link.endswith((".parquet", ".csv")):
            assert plain.get(link).status_code in (200, 307), f"{path} leads to {link}"


@pytest.mark.parametrize("path", PAGES)
def test_hostile_text_is_shown_as_text(hostile, path):
    page = open_page(hostile, path)
    assert [
        given
        for tag, given in page.found
        if tag == "img" or any(name.startswith("on") for name in given)
    ] == []
    scripts = [given for tag, given in page.found if tag == "script"]
    assert all(str(given.get("src")).startswith("/static/") for given in scripts)
    assert all(tag != "style" for tag, _ in page.found)
    assert not any(link.startswith("javascript") for link in page.links())
    assert not set("\u202e\x1b\x00") & set(page.text)
    assert "49" not in re.findall(r"window.hit=1.*?(\d+)", page.text)


def test_what_cannot_be_seen_in_a_text_is_named(hostile):
    page = open_page(hostile, "/run/mine/task?id=t1")
    assert {"U+202E", "U+001B", "U+0000"} <= set(re.findall(r"U\+[0-9A-F]{4}", page.text))
    assert "<script>window.hit = 1</script>" in page.text


@pytest.mark.slow
def test_a_text_longer_than_a_page_may_be_is_cut_and_can_be_had_whole(browser, store):
    lay(store, text="é" * 4_000_000)
    for path in PAGES:
        assert len(browser.get(path).text) < 3_000_000, path
    whole = [
        link for link in open_page(browser, "/run/mine/task?id=t1").links() if "/whole" in link
    ]
    answers = [browser.get(link) for link in whole]
    assert {len(answer.text) for answer in answers} >= {4_000_000}
    assert {answer.headers["content-type"] for answer in answers} == {"text/plain; charset=utf-8"}


@pytest.mark.parametrize("path", ["/", "/run/mine"])
def test_why_a_run_stopped_is_told_as_text(store, browser, path):
    lay(store)
    with pytest.raises(RuntimeError), remembered(store, "mine"):
        raise RuntimeError(f"too many repeats: {HOSTILE}")
    page = open_page(browser, path)
    assert "RuntimeError" in page.text
    assert not any(tag == "img" for tag, _ in page.found)


def test_a_score_of_one_iteration_has_no_gain(plain):
    text = open_page(plain, "/run/mine").text
    assert "of iteration 1" in text and "since iteration" not in text


def test_the_task_page_shows_document_rubric_answers_verdicts_rewards_and_updates(plain):
    page = open_page(plain, "/run/mine/task?id=t1")
    for shown in (
        "Oslo is old.",
        "critical",
        "a plain text",
        "0.750",
        "+0.50",
        "unscorable",
        "training",
        "source",
    ):
        assert shown in page.text
    links = page.links()
    assert "/run/mine/document?id=d%2F1" in links and "/run/mine/rollout?id=j1" in links
    assert "/run/mine/update?iteration=1&phase=training&step=1" in links
    marks = [given for tag, given in page.found if tag == "mark"]
    assert len(marks) == 2  # the reference, and the text of the task, in its document
    # verdict and truth
    assert "differs" in [given.get("class") for tag, given in page.found if tag == "tr"]


def test_a_task_that_was_given_shows_the_document_that_came_with_it(store):
    """Tasks and documents of a file are two tables, of which neither is made from the other."""
    given = QuestionSet.of_world(
        store.run("mine").iteration(0).phase("questions"),
        HAYSTACKS,
        seed=7,
        num_tasks=1,
        with_evidence=False,
    )
    [task], [context] = given.tasks.rows(), given.contexts.rows()
    assert (
        context["text"][:40]
        in open_page(client_of(store), f"/run/mine/task?id={task['task_id']}").text
    )


def test_a_batch_leads_back_to_its_document_and_the_document_to_the_update(plain):
    update = "/run/mine/update?iteration=1&phase=training&step=1"
    assert "/run/mine/rollout?id=a1" in open_page(plain, update).links()
    assert "/run/mine/task?id=t1" in open_page(plain, "/run/mine/rollout?id=a1").links()
    assert "/run/mine/document?id=d%2F1" in open_page(plain, "/run/mine/task?id=t1").links()
    assert update in open_page(plain, "/run/mine/document?id=d%2F1").links()


def test_a_task_is_found_in_another_run_by_its_words_and_an_answer_shows_what_its_judge_said(
    browser, store
):
    lay(store)
    other = store.run("other").iteration(2)
    publish(other, "tasks", row("tasks", task_id="t9", text=" A plain TEXT"))
    page = open_page(browser, "/across?run=mine&task=t1")
    assert "/run/other/task?id=t9" in page.links() and "same words" in page.text
    assert "a plain text j1" in open_page(browser, "/run/mine/rollout?id=a1").text


def test_the_statements_of_a_page_give_the_same_rows_on_the_sql_page(plain):
    page = open_page(plain, "/run/mine/task?id=t1")
    statements = [link for link in page.links() if link.startswith("/sql?text=")]
    assert len(statements) > 8
    for link in statements:
        asked = open_page(plain, link.replace("/sql?", "/sql/result?"))
        assert "malformed" not in [given.get("class") for _, given in asked.found], link


def test_a_table_that_is_published_is_seen_at_the_next_look(browser, store):
    place = lay(store)
    assert "world" in browser.get("/run/mine").text
    publish(
        place.iteration(2),
        "evaluations",
        row("evaluations", benchmark="another world", metric="score", n=4, score=0.75),
    )
    browser.app.state.lake.catalogue.forget()
    assert "another world" in browser.get("/run/mine").text


@pytest.mark.parametrize(
    ("text", "regex", "match"),
    [
        (r"\bcat", True, "cat"),
        (r"\pL+$", True, "dog"),  # Python's `re` does not know \pL
        ("cat. (", False, "cat. ("),
    ],
)
def test_a_match_is_marked_where_the_statement_found_it(browser, store, text, regex, match):
    """And not by another search in Python, which differs and can take forever."""
    place = store.run("mine").iteration(1)
    said = "concatenate the cat. (a dog"
    publish(place, "rollouts", row("rollouts", rollout_id="r", reply=said))
    answer = browser.get("/search/rollouts", params={"text": text, "regex": regex})
    before = said[: said.rindex(match)]
    assert f'{before}<span class="hit">{match}</span>' in answer.text


def test_what_is_being_made_is_shown_with_its_rows_so_far(browser, store):
    place = lay(store)
    shards = store.shards(
        store.get("mine/iter-001/training/step-001/gates").schema, "mine/iter-002/gates", "key"
    )
    shards.write("rows", [row("gates", task_id="t", gate="g", kind="rule")] * 7)
    with store.lock(place.iteration(2).address("gates")):
        page = open_page(browser, "/run/mine/stages?iteration=1")
        assert "iter-002/gates" in page.text and "7 rows so far" in page.text
    assert "iter-002/gates" not in open_page(browser, "/run/mine/stages?iteration=1").text


def test_the_sql_page_writes_nothing_and_opens_no_other_file(plain, tmp_path):
    (tmp_path / "secret.csv").write_text("a\nsecret\n")
    for statement in (
        "drop table tasks",
        f"from '{tmp_path}/secret.csv'",
        f"copy tasks to '{tmp_path}/x'",
        "set threads=1",
        "",
    ):
        answer = plain.get("/sql/result", params={"text": statement})
        assert (
            answer.status_code in (200, 422)
            and "<table" not in answer.text
            and "secret\n" not in answer.text
        )
        assert plain.get("/sql/result.csv", params={"text": statement}).status_code in (400, 422)
    assert not (tmp_path / "x").exists()


def test_a_long_result_is_given_whole_as_csv(plain):
    text = plain.get("/sql/result.csv", params={"text": "select * as n from range(2500)"}).text
    assert text.splitlines()[1:] == [str(n) for n in range(2500)]


def test_a_result_is_given_as_csv_and_parquet(plain, tmp_path):
    statement = "select task_id, reference from tasks"
    assert (
        plain.get("/sql/result.csv", params={"text": statement}).text
        == "task_id,reference\nt1,Oslo\n"
    )
    (tmp_path / "x.parquet").write_bytes(
        plain.get("/sql/result.parquet", params={"text": statement}).content
    )
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == [
        {"task_id": "t1", "reference": "Oslo"}
    ]


def test_the_static_report_is_served_where_the_run_links_to_it(browser, store):
    path = report(lay(store), 1)
    assert "/run/mine/report" in open_page(browser, "/run/mine").links()
    for address in ("/run/mine/report", "/run/mine/report?iteration=1"):
        assert browser.get(address).text == path.read_text(encoding="utf-8")
    assert browser.get("/run/mine/report?iteration=7").status_code == 404


def test_the_page_of_a_run_shows_the_figures_and_numbers_of_its_report(browser, store):
    path = report(lay(store), 1)
    written = Elements(path.read_text(encoding="utf-8"))
    shown = open_page(browser, "/run/mine/figures")
    named = [given["id"] for tag, given in written.found if tag == "figure"]
    assert "held-out" in named and "updates" in named
    assert [given["id"] for tag, given in shown.found if tag == "figure"] == named
    for text in ("Held-out score on world is 0.500", "Malformed replies", "Time by stage"):
        assert text in written.text and text in shown.text
    update = "/run/mine/update?iteration=1&phase=training&step=1"
    assert update in shown.links() and f"{HOST}{update}" in written.links()
    assert "/run/mine/figures" in browser.get("/run/mine").text


def test_what_there_is_not_is_said(plain):
    for path in (
        "/run/nope",
        "/run/mine/task?id=x",
        "/run/mine/rollout?id=x",
        "/run/mine/group?id=x",
    ):
        assert plain.get(path).status_code == 404, path


def test_the_funnel_has_the_order_of_the_tests_not_of_their_counts(store):
    """10 candidates: the gates, which come first, drop 3; of the 7 left, 5 are too easy."""
    place = lay(store).iteration(2).phase("pool")
    reasons = ["failed a gate"] * 3 + ["too easy"] * 5 + [None] * 2
    rows = [
        row("selections", task_id=f"c{i}", kept=reason is None, reason=reason, bounds="{}")
        for i, reason in enumerate(reasons)
    ]
    text = "select case when a then 'failed a gate' when b then 'too easy' end as reason from t"
    recipe = {"key": "k", "stage": "s", "started_at": 0.0, "seconds": 0.0, "counts": {}}
    with store.draft(SELECTIONS) as draft:
        draft.write(rows)
        params = {"params": {"query": {"file": "q.sql", "text": text}, "limits": []}}
        store.publish(draft, place.address("selections"), {**recipe, **params})
    page = open_page(client_of(store), "/run/mine/candidates?iteration=2").text
    said = " ".join(page.split())
    assert "failed a gate 3 30%, 7 left too easy 5 50%, 2 left kept 2" in said


def test_a_held_out_score_leads_to_its_answers_the_worst_first(store):
    place = lay(store).iteration(1).phase("evaluation")
    publish(
        place,
        "rollouts",
        *[row("rollouts", rollout_id=f"h{i}", prompt_id=f"p{i}", reply="Oslo") for i in range(3)],
    )
    publish(
        place,
        "matches",
        row("matches", rollout_id="h0", matched=True),
        row("matches", rollout_id="h1", matched=False),
    )
    publish(place, "evaluations", row("evaluations", metric="score", n=2, score=0.5))
    browser = client_of(store)
    worst = "/run/mine/rollouts?iteration=1&phase=evaluation&order=worst"
    assert worst in open_page(browser, "/run/mine").links()

    def listed(path: str) -> list[str]:
        return re.findall(r"/rollout\?id=(h\d)$", "\n".join(open_page(browser, path).links()), re.M)

    assert listed(worst) == ["h1", "h0", "h2"]
    assert listed(f"{worst}&outcome=wrong") == ["h1"]
    assert listed(f"{worst}&outcome=right") == ["h0"]
    assert "Rollouts 1 to 1 of 1" in open_page(browser, f"{worst}&outcome=wrong").text


def test_a_conversation_shows_how_it_was_scored(plain):
    assert "Scorerubric✓" in open_page(plain, "/run/mine/rollout?id=a1").text


def test_a_run_without_gates_says_nothing_of_what_passed_them(store):
    place = store.run("mine").iteration(1).phase("play")
    publish(place, "tasks", row("tasks", task_id="t", text="Why?", rollout_id="a"))
    page = open_page(client_of(store), "/run/mine/candidates?iteration=1").text
    assert "written" in page
    assert "passed every gate" not in page


def test_scores_that_are_not_comparable_are_named_and_not_drawn(store):
    for run, num_tasks in (("one", 2), ("other", 3)):
        place = store.run(run)
        store.keep(run, "config.json", {"seed": 0})
        tasks = [row("tasks", task_id=f"{run}{i}", text="?") for i in range(num_tasks)]
        publish(place.iteration(0).phase("benchmark"), "tasks", *tasks)
        score = row("evaluations", benchmark="world", metric="score", n=num_tasks, score=0.5)
        publish(place.iteration(0), "evaluations", score)
    page = open_page(client_of(store), "/compare?run=one&run=other")
    assert "the held-out tasks differ: other has 3, one has 2" in page.text
    assert not [tag for tag, _ in page.found if tag == "svg"]


def test_runs_are_sorted_by_seconds_bytes_and_time_not_by_how_they_are_written(browser, store):
    """2 h 30 min of work are more than 45 s, and 2.5 kB more than 999 B."""
    with store.draft(TASKS) as draft:
        draft.write([row("tasks", task_id="t")])
        recipe = {"key": "k", "started_at": 86400.0, "seconds": 9000.0, "counts": {}}
        table = store.publish(draft, store.run("mine").address("tasks"), recipe)
    page = open_page(browser, "/")
    num_bytes = sum(file["bytes"] for file in table.contents.values())
    assert [given["data-value"] for _, given in page.found if "data-value" in given] == [
        "95400.0",
        "9000.0",
        str(num_bytes),
    ]
    assert "2 h 30 min" in page.text


def test_figures_of_an_iteration_that_there_is_not_are_those_of_the_last(plain):
    text = open_page(plain, "/run/mine/figures?iteration=40").text
    assert "iteration 1" in text and "iteration 2" not in text


def test_a_result_leads_to_the_pages_of_what_it_names(plain):
    text = "select run, task_id, rollout_id, 0.1::double + 0.2 as sum from answers order by all"
    page = open_page(plain, f"/sql/result?text={quote(text)}")
    assert {"/run/mine", "/run/mine/task?id=t1", "/run/mine/rollout?id=a1"} <= {*page.links()}
    assert "0.3" in page.text and "0.30000000000000004" not in page.text


def test_sums_decimals_and_columns_that_begin_with_null_are_numbers(plain):
    """And a figure leaves out what is no number, which JSON does not know."""
    text = """
        select sum(i) as total, 0.25::decimal(4, 2) as part, if(i > 1, i, null) as late,
        if(i > 1, 'nan'::double, 0.5) as odd, i > 1 as large
        from range(3) as t (i) group by i order by i
    """
    answer = plain.get("/sql/result", params={"text": text})
    heads = [given.get("class") for tag, given in Elements(answer.text).found if tag == "th"]
    assert heads == ["num", "num", "num", "num", None]
    [form] = [given for _, given in Elements(answer.text).found if "data-figure" in given]
    points = json.loads(form["data-figure"] or "", parse_constant=pytest.fail)
    assert points == [
        {"total": 0.0, "part": 0.25, "late": None, "odd": 0.5, "large": False},
        {"total": 1.0, "part": 0.25, "late": None, "odd": 0.5, "large": False},
        {"total": 2.0, "part": 0.25, "late": 2, "odd": None, "large": True},
    ]


def test_a_figure_of_the_whole_run_leads_to_its_rows_and_a_stage_to_its_own(browser, store):
    """The figure of held-out scores names only the table, in whatever iteration and phase."""
    place = lay(store).iteration(2).phase("evaluation")
    publish(place, "evaluations", row("evaluations", benchmark="b", metric="score"), label="held")
    for address, num_rows in (
        ("/run/mine/table?name=evaluations", 2),
        ("/run/mine/table?name=evaluations&iteration=1", 1),
        ("/run/mine/table?name=tasks&iteration=1", 0),  # its tasks are those of a phase
        ("/run/mine/table?name=tasks&iteration=1&phase=training", 1),
    ):
        statement = browser.get(address).headers["location"].replace("/sql?", "/sql/result?")
        assert f"{num_rows} row" in open_page(browser, statement).text, address


def test_pages_about_all_runs_keep_the_navigation_of_the_run_they_were_opened_from(plain):
    links = open_page(plain, "/sql?home=mine").links()
    assert "/run/mine/candidates" in links
    assert "/run/mine/candidates" not in open_page(plain, "/sql?home=nope").links()


def test_a_drawing_has_a_name_and_its_points_are_no_stops_of_the_tab_key(plain):
    page = open_page(plain, "/run/mine/figures")
    drawings = [given for tag, given in page.found if tag == "svg"]
    assert drawings and all(given.get("aria-label") for given in drawings)
    assert all(given.get("role") == "img" for given in drawings)


def test_the_page_of_a_run_at_work_says_how_far_it_is(browser, store):
    """Iteration 1 took 100 s; iteration 2 of 3 is at step 2 after 30 s: 170 s are left."""
    store.keep("r", "config.json", {"iterations": 3, "train": {"steps": 4}})
    for iteration, step, seconds in ((1, 1, 40.0), (1, 4, 60.0), (2, 1, 30.0)):
        place = store.run("r").iteration(iteration).phase("train").step(step)
        recipe = {"key": "k", "stage": "s", "started_at": 0.0, "seconds": seconds, "counts": {}}
        with store.draft(SELECTIONS) as draft:
            draft.write([])
            store.publish(draft, place.address("selections"), recipe)
    place_text = "iteration 2 of 3, train, step 2 of 4"
    at = store.run("r").iteration(2).phase("train").step(2)
    with store.lock(at.address("rollouts")):
        at_work = open_page(browser, "/run/r/head").text
    assert f"{place_text}; about 2 min 50 s of stages left" in at_work
    assert place_text not in open_page(browser, "/run/r/head").text


def test_the_page_of_the_judge_leads_from_a_wrong_verdict_to_what_it_is_on(plain):
    page = open_page(plain, "/run/mine/judge")
    assert "1 wrong verdicts" in page.text
    assert {"/run/mine/rollout?id=j1", "/run/mine/task?id=t1"} <= {*page.links()}
    assert plain.get("/run/mine/judge.md").text.startswith("# ")
