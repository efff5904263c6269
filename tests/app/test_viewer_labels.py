"""Labels: stored by person and thing, and used to measure gates and judges."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from flows.app.viewer.app import make_app
from flows.app.viewer.guard import Key
from flows.app.viewer.labels import annotation, label
from tasks.report import made_from
from tests.support.rows import publish, row
from tests.support.store_to_view import lay
from warehouse.query import query
from warehouse.status import runs
from warehouse.store import Store

HOST = "http://127.0.0.1:4218"
ROWS = "select kind, subject, labeller, opinion, note from annotations order by all"


def browser(store: Store) -> TestClient:
    key = Key(4218)
    client = TestClient(make_app(store, key), base_url=HOST, headers={"Origin": HOST})
    client.cookies.set(key.cookie, key.token)
    return client


def test_a_label_is_a_row_of_the_view_and_survives_a_restart(store):
    lay(store)
    said = {
        "kind": "rollout",
        "subject": "a1",
        "labeller": "Ada",
        "opinion": "good",
        "note": "it says Oslo",
    }
    answer = browser(store).post("/run/mine/label", data=said)
    assert answer.status_code == 200 and "good by Ada" in answer.text
    assert query(store.root, ROWS) == [said]
    assert "good by Ada" in browser(store).get("/run/mine/rollout?id=a1").text
    assert store.get("mine/annotations.Ada").recipe["stage"] == "flows.app.viewer.labels.label"


def test_a_form_is_filled_with_what_its_own_person_said_and_shows_what_others_did(store):
    lay(store)
    label(store, "mine", annotation("task", "t1", "Ada", "good", note="Ada's words"))
    graces = browser(store)
    form = graces.get("/run/mine/task?id=t1").text
    assert 'aria-pressed="true"' not in form and 'value="Ada&#39;s words"' not in form
    assert "good by Ada: Ada&#39;s words" in form
    said = {"kind": "task", "subject": "t1", "labeller": "Grace é", "opinion": "leak"}
    for form in (
        graces.post("/run/mine/label", data=said).text,
        graces.get("/run/mine/task?id=t1").text,
    ):
        assert form.count('aria-pressed="true"') == 1
        assert '<button name="opinion" value="leak" data-label aria-pressed="true"' in form
        assert 'name="labeller" value="Grace é"' in form


def test_two_names_that_share_a_table_keep_their_labels_apart(store):
    lay(store)
    label(store, "mine", annotation("task", "t1", "A b", "good"))
    label(store, "mine", annotation("task", "t1", "A_b", "bad"))
    found = [(r["labeller"], r["opinion"]) for r in query(store.root, ROWS)]
    assert found == [("A b", "good"), ("A_b", "bad")]


def test_a_person_has_one_label_a_thing_and_can_take_it_back(store):
    lay(store)
    for opinion in ("good", "bad"):
        label(store, "mine", annotation("task", "t1", "Ada", opinion))
    label(store, "mine", annotation("task", "t1", "Grace", "leak"))
    label(store, "mine", annotation("rollout", "a1", "Ada", note="read again"))
    found = [tuple(r.values()) for r in query(store.root, ROWS)]
    assert found == [
        ("rollout", "a1", "Ada", None, "read again"),
        ("task", "t1", "Ada", "bad", None),
        ("task", "t1", "Grace", "leak", None),
    ]
    label(store, "mine", annotation("task", "t1", "Ada"))
    assert [r["labeller"] for r in query(store.root, ROWS)] == ["Ada", "Grace"]


@pytest.mark.parametrize(
    "change", [{"opinion": "great"}, {"kind": "run"}, {"labeller": "../x"}, {"labeller": "a/b"}]
)
def test_what_is_no_label_is_refused(store, change):
    lay(store)
    said = {"kind": "task", "subject": "t1", "labeller": "Ada", "opinion": "good", **change}
    assert browser(store).post("/run/mine/label", data=said).status_code == 422
    assert query(store.root, ROWS) == []


def test_a_label_from_another_page_is_refused(store):
    lay(store)
    said = {"kind": "task", "subject": "t1", "labeller": "Ada", "opinion": "good"}
    assert (
        browser(store)
        .post("/run/mine/label", data=said, headers={"Origin": "http://evil"})
        .status_code
        == 403
    )
    assert query(store.root, ROWS) == []


def test_precision_and_recall_of_a_gate_and_a_judge(store):
    """The gate passes t1 to t3 and refuses t4 and t5. People call t1, t2 and t4 good, t3 a leak, t5
    bad: 2 of the 3 that pass are good, 2 of the 3 good ones pass, and 1 of the 2 others does. The
    judge says met, met, not met, and is right, wrong, wrong: 1 of its 2 "met" is true, and it finds
    1 of the 2 that are."""
    place = store.run("r").iteration(1).phase("pool")
    gates = [
        row("gates", task_id=f"t{i}", gate="g", kind="rule", passed=i < 4) for i in range(1, 6)
    ]
    publish(place, "gates", *gates)
    for i, opinion in enumerate(("good", "good", "leak", "good", "bad"), 1):
        label(store, "r", annotation("task", f"t{i}", "Ada", opinion))
    label(store, "r", annotation("task", "t6", "Ada", "good"))
    label(store, "r", annotation("task", "t1", "Grace", "unsure"))
    verdicts = [
        row("judgments", rollout_id=f"a{i}", judge_rollout_id=f"j{i}", verdict=int(i < 3))
        for i in range(1, 4)
    ]
    publish(place, "judgments", *verdicts)
    for i, opinion in enumerate(("good", "bad", "bad"), 1):
        label(store, "r", annotation("verdict", f"j{i}", "Ada", opinion))
    app = browser(store).app
    found = {r["judge"]: tuple(r.values())[2:] for r in _agreement(app)}
    assert found == {"gate g": (5, 2, 1, 1, 1), "verdict on a criterion": (3, 1, 1, 1, 0)}
    page = browser(store).get("/run/r/labels").text
    assert "0.67 <small>" in page and "0.50 <small>" in page


def test_labels_that_are_divided_evenly_say_nothing_of_a_gate(store):
    place = store.run("r").iteration(1).phase("pool")
    gates = [row("gates", task_id=name, gate="g", kind="rule", passed=True) for name in "ab"]
    publish(place, "gates", *gates)
    for name, opinions in {"a": ("good", "bad"), "b": ("good", "bad", "bad")}.items():
        for labeller, opinion in zip(("Ada", "Grace", "Emmy"), opinions, strict=False):
            label(store, "r", annotation("task", name, labeller, opinion))
    [gate] = _agreement(browser(store).app)
    assert (gate["n"], gate["bad_accepted"]) == (1, 1)


def _agreement(app):
    from flows.app.viewer.view import View

    return View(app.state.lake, "r").rows("agreement")


def test_a_sample_takes_as_many_of_each_stratum_and_is_the_same_each_time(store):
    place = store.run("r").iteration(1)
    roles = ["common"] * 95 + ["rare"] * 5
    rows = [
        row("rollouts", rollout_id=f"r{i}", prompt_id="p", role=role, reply="x")
        for i, role in enumerate(roles)
    ]
    publish(place, "rollouts", *rows)
    client = browser(store)
    drawn = client.get("/run/r/read?stratum=role&n=20&seed=1").text
    # as stratum and as role
    assert drawn.count(">common</td>") == 2 * 15 and drawn.count(">rare</td>") == 2 * 5
    ids = [line.partition("id=")[2][:3] for line in drawn.split("rollout?")[1:]]
    again = client.get("/run/r/read?stratum=role&n=20&seed=1").text
    assert [line.partition("id=")[2][:3] for line in again.split("rollout?")[1:]] == ids
    other = client.get("/run/r/read?stratum=role&n=20&seed=2").text
    assert [line.partition("id=")[2][:3] for line in other.split("rollout?")[1:]] != ids


def test_progress_of_a_sample_is_kept(store):
    lay(store)
    assert "0 labelled" in browser(store).get("/run/mine/read?stratum=role").text
    said = {
        "kind": "verdict",
        "subject": "j1",
        "labeller": "Ada",
        "opinion": "bad",
        "sample": "role-20-1",
    }
    browser(store).post("/run/mine/label", data=said)
    assert "1 labelled" in browser(store).get("/run/mine/read?stratum=role").text


def test_a_refused_label_keeps_the_note_that_was_typed(store):
    lay(store)
    said = {"kind": "task", "subject": "t1", "labeller": "../x", "note": "it says Oslo twice"}
    answer = browser(store).post("/run/mine/label", data=said)
    assert answer.status_code == 422
    assert 'value="it says Oslo twice"' in answer.text and 'value="../x"' in answer.text
    assert "cannot be a name" in answer.text


@pytest.mark.parametrize("kind", ["rollout", "task", "verdict"])
def test_what_the_run_does_not_hold_takes_no_label(store, kind):
    lay(store)
    said = {"kind": kind, "subject": "nowhere", "labeller": "Ada", "opinion": "good"}
    answer = browser(store).post("/run/mine/label", data=said)
    assert answer.status_code == 422 and "mine has no" in answer.text
    assert query(store.root, ROWS) == []


def test_labels_change_nothing_of_what_a_run_made_or_took(store):
    lay(store)
    before = runs(store), made_from(store, "mine", 1)
    listed = browser(store).get("/").text.partition("</table>")[0]
    label(store, "mine", annotation("task", "t1", "Ada", "good"))
    assert (runs(store), made_from(store, "mine", 1)) == before
    assert browser(store).get("/").text.partition("</table>")[0] == listed
