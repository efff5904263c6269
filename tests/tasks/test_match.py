import os
import signal
from functools import partial

import pytest

from tasks.match import match
from tasks.processes import comparisons
from tests.support.comparisons import compare, compare_once, compare_where, limits_of_traps
from tests.support.rows import publish, row


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    return limits_of_traps(monkeypatch)


def compared(place, *texts, reference="7", **settings):
    """Matches of answers a0, a1, ... to one task, with these texts (None: malformed)."""
    tasks = publish(place, "tasks", row("tasks", task_id="t", reference=reference))
    given = [
        row(
            "answers",
            rollout_id=f"a{i}",
            task_id="t",
            answer=text,
            malformed=None if text is not None else "no box",
        )
        for i, text in enumerate(texts)
    ]
    answers = publish(place, "answers", *given)
    return match(place, answers, tasks, **{"compare": compare, **settings}).rows()


def outcomes(rows):
    return [(r["matched"], r["reason"]) for r in rows]


def test_every_answer_matches_or_not_or_says_why_it_could_not_be_compared(place):
    found = compared(place, "7", "8", None, "unread", "deep", "memory", "crash", "7 ")
    assert [r["rollout_id"] for r in found] == [f"a{i}" for i in range(8)]
    assert outcomes(found) == [
        (True, None),
        (False, None),
        (None, "no box"),
        (None, "no number"),
        (None, "nested too deeply"),
        (None, "out of memory"),
        (None, "the comparison crashed"),
        (False, None),
    ]


@pytest.mark.parametrize("trap", ["hang", "spin"])
def test_a_comparison_that_does_not_end_is_killed_and_the_next_goes_on(place, trap):
    found = compared(place, "7", trap, "8", time_limit_s=0.5)
    assert outcomes(found) == [(True, None), (None, "timed out"), (False, None)]
    assert found[1]["seconds"] >= 0.5


def test_hostile_answers_cost_a_batch_the_whole_limit_only_so_often(place, monkeypatch, limits):
    """After two timeouts, the limit of a comparison falls from 0.2 to 0.1 s."""
    monkeypatch.setattr(comparisons, "PATIENCE", 2)
    monkeypatch.setattr(comparisons, "HASTE_S", 0.1)
    found = compared(place, "hang", "spin", "hang 2", "7", compare=hang_on_words, time_limit_s=0.2)
    assert outcomes(found) == [(None, "timed out")] * 3 + [(True, None)]
    assert limits == [0.2, 0.2, 0.1]


def hang_on_words(task, answer):
    return compare(task, answer.split()[0])


def test_equal_answers_are_compared_once(place, tmp_path):
    log = tmp_path / "log"
    found = compared(
        place,
        "hang",
        "7",
        "hang",
        "7",
        "7",
        compare=partial(compare_once, log=str(log)),
        time_limit_s=0.5,
    )
    assert log.read_text().split() == ["hang", "7"]
    assert [r["matched"] for r in found] == [None, True, None, True, True]


def test_workers_side_by_side_change_nothing_but_the_time(place):
    texts = ["7", "8", "hang", "unread", None] * 3 + [str(i) for i in range(40)]
    assert outcomes(compared(place, *texts, time_limit_s=0.5, num_workers=3)) == outcomes(
        compared(place.step(3), *texts, time_limit_s=0.5)
    )


def test_a_fault_of_the_rule_is_not_taken_for_a_wrong_answer(place):
    with pytest.raises(RuntimeError, match="a fault of the rule"):
        compared(place, "fault")


def test_no_answer_needs_no_process(place):
    assert outcomes(compared(place, None)) == [(None, "no box")]
    assert compared(place.step(3)) == []


def test_no_more_workers_are_left_than_may_wait(place, monkeypatch, waiting):
    monkeypatch.setattr(waiting, "maxsize", 1)
    compared(place, "7", "hang", "8", time_limit_s=0.2, num_workers=3)
    children = [p for p in os.listdir("/proc") if p.isdigit() and _parent(p) == os.getpid()]
    assert sum("comparison_child" in _command(p) for p in children) == waiting.qsize() == 1


def test_the_next_batch_is_compared_by_a_worker_that_waits_by_its_own_rule(
    place, tmp_path, waiting
):
    log = str(tmp_path / "pids")
    compared(place, "7", compare=partial(compare_where, log=log))
    assert outcomes(compared(place.step(3), "7", compare=never)) == [(False, None)]
    compared(place.step(4), "7", compare=partial(compare_where, log=log))
    assert len(set((tmp_path / "pids").read_text().split())) == waiting.qsize() == 1


def never(task, answer):
    return False


def test_a_worker_that_was_killed_while_it_waited_is_replaced(place, tmp_path, waiting):
    log = str(tmp_path / "pids")
    compared(place, "7", compare=partial(compare_where, log=log))
    (pid,) = (tmp_path / "pids").read_text().split()
    os.kill(int(pid), signal.SIGKILL)
    found = compared(place.step(3), "7", compare=partial(compare_where, log=log))
    assert outcomes(found) == [(True, None)]
    assert len(set((tmp_path / "pids").read_text().split())) == 2


def test_a_worker_that_died_after_its_last_comparison_is_replaced():
    worker = comparisons.Worker(compare)
    task = {"task_id": "t", "reference": "7"}
    assert worker.compare(task, "7", time_limit_s=60).matched
    worker._process.kill()
    worker._process.wait()
    assert worker.compare(task, "7", time_limit_s=60).matched
    worker.end()


@pytest.fixture
def waiting():
    """The workers that wait, at first none."""
    while not comparisons._idle.empty():
        comparisons._idle.get().end()
    return comparisons._idle


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _command(pid: str) -> str:
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read()


def test_by_default_all_answers_are_compared_in_one_process(place, tmp_path):
    log = tmp_path / "pids"
    compared(place, "7", "8", compare=partial(compare_where, log=str(log)))
    pids = log.read_text().split()
    assert len(pids) == 2 and len(set(pids)) == 1


def test_what_is_not_compared_takes_no_time(place):
    assert [r["seconds"] for r in compared(place, None)] == [0.0]


def test_the_label_of_a_task_stands_for_its_reference(place):
    tasks = publish(place, "tasks", *(row("tasks", task_id=t, reference="7") for t in "tu"))
    labels = publish(
        place,
        "labels",
        row("labels", task_id="t", answer="8"),
        row("labels", task_id="u", reason="tied"),
    )
    given = (row("answers", rollout_id=f"{t}{a}", task_id=t, answer=a) for t in "tu" for a in "78")
    found = match(
        place, publish(place, "answers", *given), tasks, labels=labels, compare=compare
    ).rows()
    assert outcomes(found) == [(False, None), (True, None), (None, "tied"), (None, "tied")]
