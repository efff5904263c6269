"""The share of valid tasks, by who judged them, with its interval."""

from __future__ import annotations

import pytest

from flows.environments.certificate import Share, certificate, wilson
from tasks.monitors.monitor import OF
from tests.support.rows import publish, row


def test_the_interval_is_wilsons():
    # worked by hand: p = 0.95, n = 200, z = 1.96: centre .9415, half width .0311
    assert wilson(190, 200) == pytest.approx((0.9104, 0.9726), abs=1e-4)
    assert wilson(0, 5)[0] == 0.0 and wilson(5, 5)[1] == pytest.approx(1.0)


def test_a_share_stands_with_its_interval():
    share = Share("auditor", "kept tasks", n=200, valid=190)
    assert (share.share, share.low, share.high) == pytest.approx((0.95, 0.9104, 0.9726), abs=1e-4)


def test_a_share_of_no_task_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        wilson(0, 0)


def gate(task: str, name: str, passed: bool | None) -> dict:
    return row("gates", task_id=task, gate=name, kind="model", passed=passed)


def label(task: str, who: str, opinion: str, at: float = 1.0) -> dict:
    return row(
        "annotations", kind="task", subject=task, labeller=who, opinion=opinion, labelled_at=at
    )


@pytest.fixture
def judged(store):
    """Four tasks: an auditor judged t0 to t2 and could not be read for t3; two people labelled."""
    at = store.run("mine").iteration(1).phase("pool")
    publish(at, "gates", *[gate(f"t{i}", "safety", i != 2) for i in range(4)], label="gate")
    audits = [gate(f"t{i}", "auditor", (True, False, True, None)[i]) for i in range(4)]
    publish(at, "gates", *audits, label="audit-gates")
    publish(
        store.run("mine"),
        "annotations",
        label("t0", "ann", "bad", at=1.0),
        label("t0", "ann", "good", at=2.0),  # the later opinion counts
        label("t1", "ann", "hack"),
        label("t2", "ann", "good"),
        label("t3", "ann", "unsure"),
        label="ann",
    )
    publish(
        store.run("mine"),
        "annotations",
        label("t2", "bob", "bad"),  # a tie: nobody knows
        label="bob",
    )
    return store


def shares(judged, kept) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        (share.auditor, share.of): (share.valid, share.n)
        for share in certificate(judged, "mine", kept)
    }


def test_kept_tasks_are_certified_by_the_auditor_and_by_people(judged):
    found = shares(judged, ["t0", "t1", "t3"])
    assert found["auditor", "kept tasks"] == (1, 2)  # no verdict on t3
    assert found["people", "kept tasks"] == (1, 2)


def test_each_gate_is_measured_on_what_it_passed_and_on_what_it_refused(judged):
    found = shares(judged, ["t0", "t1", "t3"])
    assert found["auditor", "passed by safety"] == (1, 2)
    assert found["auditor", "refused by safety"] == (1, 1)  # t2 was valid
    assert found["people", "passed by safety"] == (1, 2)


def test_the_truth_of_a_built_in_world_counts_all_that_passed(store):
    at = store.run("mine").iteration(1).phase("pool")
    leak = row(
        "evaluations", policy="p", benchmark="gate monitor", metric=f"gate_leak{OF}truth", n=20
    )
    publish(at, "evaluations", {**leak, "score": 0.1}, label="gates")
    publish(at.step(2), "evaluations", {**leak, "score": 0.2}, label="gates")
    found = shares(store, [])
    assert found == {("truth", "tasks that passed"): (34, 40)}  # 2 and 4 leaks


def test_nothing_judged_is_no_certificate(store):
    publish(store.run("mine"), "tasks", row("tasks", task_id="t"))
    assert certificate(store, "mine", ["t"]) == []
