"""Reports of a store written row by row: what they count, what they show, and what they must not
let through."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.testing.utilities import prefect_test_harness

from tasks.report import collect, headline, redraw, render_report, report, report_of_stopped
from tasks.reports.data import open_source
from tasks.reports.draw import Colours
from tasks.reports.learning import task_scores
from tasks.reports.page import render
from warehouse.schemas import TABLES
from warehouse.stopped import remembered
from warehouse.store import Store

HOSTILE = (
    "</pre></details><script>alert(1)</script><img src=http://evil.example/x> $x_1$ | **bold** &"
    " \u202e"
)


def publish(store, address, rows, stage="read", started_at=0.0, seconds=1.0):
    schema = TABLES[address.split("/")[-1].split(".")[0]]
    with store.draft(schema) as draft:
        draft.write(rows)
        recipe = {
            "key": "k",
            "stage": f"tasks.x.{stage}",
            "started_at": started_at,
            "seconds": seconds,
            "counts": {},
        }
        store.publish(draft, address, recipe)


def prompt(prompt_id, role="writer", **about):
    messages = [{"role": "user", "content": f"prompt {HOSTILE}"}]
    known = {
        "prompt_id": prompt_id,
        "role": role,
        "template": "ask",
        "template_version": "v1",
        "messages": messages,
    }
    return {**known, **about}


def rollout(rollout_id, prompt_id, role="writer", text="reply", num_searches=0):
    turn = {
        "sampled_token_ids": [1, 2],
        "finish_reason": "stop",
        "text": text,
        "message": None,
        "message_role": None,
    }
    if num_searches:
        turn |= {"results": [{"query": "moon", "document_ids": ["doc-7"]}]}
    known = {
        "rollout_id": rollout_id,
        "prompt_id": prompt_id,
        "role": role,
        "sample": 0,
        "policy": "p0",
        "seed": 1,
    }
    counts = {"num_turns": 1, "num_searches": num_searches, "num_sampled_tokens": 2}
    return {
        **known,
        **counts,
        "policy_hash": "h",
        "finish_reason": "final",
        "reply": text,
        "turns": [turn],
    }


def task(task_id, text="a task", malformed=None):
    about = {
        "task_id": task_id,
        "rollout_id": task_id,
        "prompt_id": "p",
        "document_id": f"doc-{task_id}",
    }
    read = {"text": text, "malformed": malformed}
    return {**about, **read, "task_type": "qa", "search_turns": 1, "evidence": [], "format": []}


def selection(task_id, mean_score, reason=None):
    known = {
        "task_id": task_id,
        "document_id": f"doc-{task_id}",
        "num_rollouts": 4,
        "reason": reason,
    }
    return {
        **known,
        "bounds": '{"low": 0.2, "high": 0.8}',
        "kept": reason is None,
        "mean_score": mean_score,
    }


def evaluation(score, error, metric="score", benchmark="exam"):
    return {
        "policy": "p",
        "benchmark": benchmark,
        "metric": metric,
        "n": 9,
        "score": score,
        "standard_error": error,
    }


def paid(rollout_id, total, score=None):
    known = {"rollout_id": rollout_id, "group_id": "p", "task_id": rollout_id, "reward": total}
    return {**known, "score": score, "components": [("novelty", 0.1)]}


def judgment(rollout_id, verdict, oracle=None, expected=None):
    known = {
        "rollout_id": rollout_id,
        "task_id": "t1",
        "criterion_id": "t1-0",
        "judge_rollout_id": f"j-{rollout_id}",
    }
    return {**known, "verdict": verdict, "oracle": oracle, "expected": expected}


@pytest.fixture
def store(tmp_path):
    return made_store(tmp_path)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The report of the same run, built once for the tests that only read it."""
    return report(made_store(tmp_path_factory.mktemp("store")).run("r"), 1)


@pytest.fixture(scope="module")
def page(path):
    return path.read_text(encoding="utf-8")


def made_store(root):
    """A run of one iteration: four candidate tasks, one of them malformed, two kept."""
    store = Store(root)
    publish(
        store,
        "r/iter-000/evaluation/evaluations",
        [evaluation(0.2, 0.03), evaluation(0.1, None, "score_2_hops")],
    )
    publish(store, "r/iter-001/evaluation/evaluations", [evaluation(0.5, 0.04)], started_at=10.0)
    step = "r/iter-001/alpha/step-001"
    publish(store, f"{step}/prompts", [prompt("p", document_id="doc-t1")], "ask", 0.0, 1.0)
    replies = [rollout(f"t{i}", "p", text=HOSTILE, num_searches=i) for i in range(1, 5)]
    publish(store, f"{step}/rollouts", replies, "generate", 1.0, 5.0)
    tasks = [task("t1", HOSTILE), task("t2"), task("t3"), task("t4", None, "no task element")]
    publish(store, f"{step}/tasks", tasks, "read", 6.0, 0.5)
    scores = [paid("t1", 1.5, 0.5), paid("t2", 0.9, 0.2), paid("t3", 0.5, 0.8), paid("t4", 0.0)]
    publish(store, f"{step}/rewards", scores, "score", 6.5, 0.5)
    rewards = [{**row, "advantage": row["reward"] - 0.725} for row in scores]
    publish(store, f"{step}/advantages", rewards, "normalise", 7.0, 0.5)
    chosen = [selection("t1", 0.5), selection("t2", 0.2), selection("t3", 0.9, "too easy")]
    publish(
        store,
        f"{step}/selections",
        [*chosen, selection("t4", None, "malformed task")],
        "keep",
        7.5,
        0.5,
    )
    update = {
        "policy": "p1",
        "parent": "p0",
        "role": "writer",
        "policy_hash": "h",
        "weights": "w",
        "optimizer_step": 1,
    }
    update["metrics"] = [("loss", 0.1), ("kl", 0.02), ("clip_fraction", 0.01), ("grad_norm", 1.0)]
    publish(store, f"{step}/updates", [update], "update", 8.0, 2.0)
    return store


def rows_of(store, name, iteration=1):
    with open_source(store, "r", iteration) as source:
        return source.rows(name)


def test_the_headline_counts_the_gain_and_what_was_kept_and_not_read(store):
    """Gain 0.5 - 0.2, error hypot(0.03, 0.04); 11 s of wall time, 5 generating and 2 updating."""
    with open_source(store, "r", 1) as source:
        tiles = {name: (value, remark) for name, value, remark in headline(collect(source))}
    assert tiles["held-out score, exam"] == ("0.500", "+0.300 ± 0.050 since iteration 0")
    assert tiles["tasks kept"] == ("2", "of 4 candidates")
    assert tiles["malformed replies"] == ("25%", "1 of 4")
    assert tiles["wall time"] == ("11.0 s", "36% neither generation nor update")


def test_a_pause_of_more_than_a_minute_is_no_wall_time(store):
    """Iteration 1 took 11 s to 11 s; a stage of 1 s follows after 50 s, and another after 61 s:
    11 + 51 + 1."""
    step = "r/iter-001/alpha/step-002"
    publish(store, f"{step}/prompts", [prompt("q")], "ask", 61.0, 1.0)
    publish(store, f"{step}/tasks", [task("t5")], "read", 123.0, 1.0)
    [_, row] = rows_of(store, "wall_times")
    assert (row["wall_s"], row["generation_s"]) == (63.0, 5.0)


def test_candidates_stand_in_the_bar_of_their_score_and_the_unscored_in_none(store):
    bars = [(r["centre"], r["kept"], r["n"]) for r in rows_of(store, "difficulty")]
    assert bars == [(0.2, True, 1), (0.5, True, 1), (0.9, False, 1)]
    assert {(r["low"], r["high"]) for r in rows_of(store, "difficulty")} == {(0.2, 0.8)}


def test_the_training_score_is_the_mean_of_the_scored_whatever_a_method_calls_its_parts(
    store, page
):
    (found,) = rows_of(store, "task_scores")
    # t4 has no score
    expected = {"iteration": 1, "phase": "alpha", "step": 1, "role": "writer", "mean": 0.5, "n": 3}
    assert found == pytest.approx(expected)
    assert "Mean score of training tasks: alpha 0.50" in page


def test_roles_that_are_paid_in_one_phase_have_a_line_each(store):
    step = "r/iter-001/alpha/step-001"
    publish(
        store,
        f"{step}/rollouts.solve",
        [rollout("a1", "q", "reader"), rollout("a2", "q", "reader")],
    )
    publish(store, f"{step}/rewards.solve", [paid("a1", 1.0, 1.0), paid("a2", 1.0, 1.0)])
    title = task_scores(rows_of(store, "task_scores"), Colours()).title
    assert title == "Mean score of training tasks: reader in alpha 1.00; writer in alpha 0.50"


def test_a_later_iteration_is_not_in_an_earlier_report(store):
    assert {r["iteration"] for r in rows_of(store, "evaluations", iteration=0)} == {0}
    assert rows_of(store, "selection_reasons", iteration=0) == []


def test_an_unreadable_verdict_is_wrong_on_a_canary_and_left_out_on_an_answer(store):
    judged = [
        judgment("a1", 1, oracle=1),
        judgment("a2", 1, oracle=0),
        judgment("a3", None, oracle=1),
    ]
    canaries = [judgment("canary-1-x", 1, expected=1), judgment("canary-0-x", None, expected=0)]
    publish(store, "r/iter-001/beta/judgments.grade", judged)
    publish(store, "r/iter-001/beta/judgments.canary", canaries)
    of = {row["truth_of"]: row for row in rows_of(store, "judge")}
    assert (of["oracle"]["n"], of["oracle"]["num_right"], of["oracle"]["num_unread"]) == (2, 1, 1)
    assert (of["oracle"]["num_false_pass"], of["oracle"]["surplus"]) == (1, 0.5)
    assert (of["canary"]["n"], of["canary"]["num_right"]) == (2, 1)


def test_a_malformed_gate_verdict_stays_in_the_denominator(store):
    gate = {"gate": "source", "kind": "model"}
    passed = {**gate, "task_id": "t1", "passed": True}
    unread = {**gate, "task_id": "t2", "passed": None, "malformed": "no verdict"}
    publish(store, "r/iter-001/alpha/step-001/gates", [passed, unread])
    (row,) = rows_of(store, "gates")
    assert (row["n"], row["num_passed"], row["num_malformed"]) == (2, 1, 1)


def test_examples_are_good_bad_filtered_and_malformed(store):
    """The worst reward among readable replies is t3's; t4 is shown as malformed."""
    chosen = {(row["kind"], row["rollout_id"], row["why"]) for row in rows_of(store, "examples")}
    assert ("good", "t1", "highest reward of its role in this iteration") in chosen
    assert ("filtered", "t3", "too easy") in chosen
    assert ("malformed", "t4", "no task element") in chosen
    assert {(kind, i) for kind, i, _ in chosen if kind == "bad"} == {("bad", "t3")}


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.names = set()
        self.links = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href")]


def test_hostile_text_makes_no_tag_and_nothing_is_loaded_from_outside(page):
    tags = Tags(page)
    assert {"script", "img", "iframe", "link"}.isdisjoint(tags.names)
    assert all(link.startswith(("#", "http://127.0.0.1:4218/run/")) for link in tags.links)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\u202e" not in page
    assert "url(http" not in page and "@import" not in page


UNSEEN = "\x1b\x07\x9b\u00ad\u200b\u202e\u2066\ufeff\U000e0041"


def test_what_cannot_be_seen_is_named_wherever_data_brings_it(tmp_path):
    """A reason, a benchmark, a metric, a role, a gate, a template, a query, a title, a
    criterion, an id."""
    store = Store(tmp_path)
    step = "r/iter-001/alpha/step-001"
    name = f"x{UNSEEN}y"
    publish(store, "r/iter-000/evaluation/evaluations", [evaluation(0.2, 0.03, name, name)])
    publish(store, "r/iter-001/evaluation/evaluations", [evaluation(0.4, 0.03, benchmark=name)])
    publish(store, f"{step}/prompts", [{**prompt("p", name, document_id=name), "template": name}])
    turn = {
        "sampled_token_ids": [1],
        "finish_reason": "stop",
        "text": name,
        "message": name,
        "message_role": name,
    }
    turn["results"] = [{"query": name, "document_ids": [name]}]
    publish(
        store, f"{step}/rollouts", [{**rollout("t1", "p", name), "policy": name, "turns": [turn]}]
    )
    publish(store, f"{step}/tasks", [{**task("t1", name, name), "document_id": name}])
    publish(
        store,
        "r/documents",
        [{"document_id": name, "title": name, "text": name, "source": name, "num_chars": 9}],
    )
    publish(
        store,
        f"{step}/gates",
        [{"task_id": "t1", "gate": name, "kind": name, "passed": None, "malformed": name}],
    )
    publish(store, f"{step}/selections", [selection("t1", None, name)])
    publish(
        store,
        f"{step}/advantages",
        [{**paid("t1", 1.0, 0.5), "advantage": 0.5, "components": [(name, 0.1)]}],
    )
    path = report(store.run("r"), 1)
    for text in (
        path.read_text(encoding="utf-8"),
        path.with_suffix(".md").read_text(encoding="utf-8"),
    ):
        assert not set(UNSEEN) & set(text)
        assert r"x\x1b\x07\x9b\xad\u200b\u202e\u2066\ufeff\U000e0041y" in text.replace("\\\\", "\\")
    empty = {"num_runs": 2, "made_at": "", "tiles": [], "sections": []}
    compared = render("report_runs.html.jinja", name=name, tables={name: [{name: name}]}, **empty)
    assert not set(UNSEEN) & set(compared)


def test_the_report_shows_the_whole_rollout(page):
    for part in (
        "Searched “moon”, found doc-7",
        "Source document doc-t1",
        "template ask v1",
        "advantage 0.775",
    ):
        assert part in page, part


def test_markdown_and_latest_stand_beside_the_page(path):
    assert path.parts[-3:] == ("reports", "r", "iter-001.html")
    assert (path.parent / "latest.html").read_text() == path.read_text()
    markdown = path.with_suffix(".md").read_text()
    assert "| exam | score | 0.200 ± 0.030 | 0.500 ± 0.040 |" in markdown
    assert "| too easy | 1 |" in markdown


def test_names_from_data_are_text_in_markdown_and_in_figures(store):
    reason = "x$_1$ | <b>y</b>"
    publish(store, "r/iter-001/alpha/step-002/selections", [selection("t9", None, reason)])
    with open_source(store, "r", 1) as source:
        contents = collect(source)
    assert r"| x$\_1$ \| \<b\>y\</b\> | 1 |" in render_report("report.md.jinja", contents)
    assert "<b>y</b>" not in render_report("report.html.jinja", contents)


def test_a_run_without_any_table_still_has_a_report_that_says_so(tmp_path):
    page = report(Store(tmp_path).run("nothing"), 1).read_text(encoding="utf-8")
    for says in (
        "No held-out score was measured",
        "No candidate task has a mean score",
        "No policy was updated",
    ):
        assert says in page
    assert "<svg" not in page


def test_a_report_of_the_same_tables_is_left_as_it_is_and_a_new_table_makes_it_anew(store):
    path = report(store.run("r"), 1)
    made = path.stat().st_mtime_ns
    assert report(store.run("r"), 1).stat().st_mtime_ns == made
    publish(store, "r/iter-002/evaluation/evaluations", [evaluation(0.6, 0.04)], started_at=20.0)
    assert report(store.run("r"), 1).stat().st_mtime_ns == made
    publish(store, "r/iter-001/evaluation/evaluations", [evaluation(0.625, 0.04)], started_at=20.0)
    assert "0.625" in report(store.run("r"), 1).read_text(encoding="utf-8")
    path.with_suffix(".md").unlink()
    assert report(store.run("r"), 1).with_suffix(".md").exists()


def test_other_settings_of_the_last_command_make_a_report_anew(store):
    store.keep("r", "request.json", {"flow": "some", "overrides": {"monitor.max_falls": 2}})
    path = report(store.run("r"), 1)
    made = path.stat().st_mtime_ns
    redraw(store, "r")
    assert path.stat().st_mtime_ns == made
    store.keep("r", "request.json", {"flow": "some", "overrides": {"monitor.max_falls": 37}})
    redraw(store, "r")
    assert path.stat().st_mtime_ns != made and "37" in path.read_text(encoding="utf-8")


def test_the_latest_report_is_that_of_the_last_iteration_in_whatever_order_they_are_drawn(store):
    def latest() -> Path:
        pages = store.root / "reports" / "r"
        same = (pages / "latest.html").read_text(encoding="utf-8")
        return next(p for p in pages.glob("iter-*.html") if p.read_text(encoding="utf-8") == same)

    report(store.run("r"), 1)
    publish(store, "r/iter-002/evaluation/evaluations", [evaluation(0.6, 0.04)], started_at=20.0)
    report(store.run("r"), 2)
    publish(store, "r/iter-001/evaluation/evaluations", [evaluation(0.625, 0.04)], started_at=20.0)
    report(store.run("r"), 2)  # what a run does at its end; that of iteration 1 stays as it is
    redraw(store, "r")
    assert latest().name == "iter-002.html"
    (latest().parent / "latest.html").write_text("of an earlier iteration", encoding="utf-8")
    redraw(store, "r")
    assert latest().name == "iter-002.html"


def test_ink_of_figures_follows_the_page(page):
    assert "currentColor" in page and not re.search(r"(fill|stroke): ?#(000|fff)", page)


@pytest.mark.slow
def test_inside_a_flow_run_the_markdown_is_an_artifact(store):
    @flow
    def one_report():
        return report(store.run("r"), 1)

    with prefect_test_harness(server_startup_timeout=300):
        path = one_report()
        with get_client(sync_client=True) as client:
            (artifact,) = client.request("POST", "/artifacts/filter", json={}).json()
    assert artifact["key"] == "r-iter-1" and artifact["type"] == "markdown"
    assert artifact["data"].endswith(path.with_suffix(".md").read_text())  # after a line of links


def test_topic_drift_is_0_for_the_same_words_and_1_for_others(tmp_path):
    store = Store(tmp_path)
    for iteration, words in ((1, "river stone"), (2, "stone river"), (3, "metal craft")):
        publish(
            store,
            f"r/iter-00{iteration}/pool/step-001/tasks",
            [task(str(i), words) for i in range(8)],
        )
    found = {
        r["iteration"]: (round(r["drift"], 9), r["halves"])
        for r in rows_of(store, "topic_drift", iteration=3)
    }
    assert found == {1: (0.0, 0.0), 2: (0.0, 0.0), 3: (1.0, 0.0)}


def test_a_report_of_a_run_that_stopped_says_why(store):
    publish(store, "r/iter-001/play/step-001/tasks", [], "read")
    assert report_of_stopped(store, "r") is None
    with pytest.raises(RuntimeError), remembered(store, "r"):
        raise RuntimeError(f"malformed is 0.9, the limit is 0.8 {HOSTILE}")
    page = report_of_stopped(store, "r")
    assert page is not None and page.name == "iter-001.html"
    html = page.read_text(encoding="utf-8")
    assert "by RuntimeError: malformed is 0.9, the limit is 0.8" in html
    assert "<script>alert(1)" not in html
    assert "by RuntimeError" in page.with_suffix(".md").read_text(encoding="utf-8")
    with remembered(store, "r"):
        pass  # continued, and nothing stopped it
    again = report(store.run("r"), 1).read_text(encoding="utf-8")
    assert "RuntimeError" not in again
