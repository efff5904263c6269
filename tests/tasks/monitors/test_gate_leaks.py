"""Which tasks gates should not have let through: by hand, and by the worlds' oracles."""

from functools import partial

import pytest

from flows.worlds import clusters, encyclopaedia, ledgers
from flows.worlds.tables import cluster_sound, encyclopaedia_sound, ledger_sound
from tasks.monitors.audit import gate_leaks, show_passed
from tasks.monitors.limits import Limits
from tasks.monitors.monitor import Alarm, watch
from tests.support.rows import publish, row

CHOSEN = [
    ("kept", True, None),
    ("more", True, None),
    ("full", False, "batch full"),
    ("hard", False, "too hard"),
]
TASKS = [row("tasks", task_id=i, text=i, reference="4") for i, *_ in CHOSEN]


def chosen():
    return [row("selections", task_id=i, kept=kept, reason=why) for i, kept, why in CHOSEN]


def values(measured) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for metric, value in measured:
        found.setdefault(metric, []).append(value)
    return found


def is_four(task) -> bool | None:
    """Nothing is known of the task `more`."""
    return None if task["text"] == "more" else task["reference"] == "4"


def test_a_leak_is_a_task_that_was_let_through_and_is_not_sound():
    assert values(gate_leaks(TASKS, chosen(), sound=is_four)) == {"gate_leak of truth": [0]}
    found = values(gate_leaks(TASKS, chosen(), sound=is_four, passed=("batch full",)))
    assert found == {"gate_leak of truth": [0, 0]}
    labels = [
        row("labels", task_id=i, answer=answer)
        for i, answer in (("kept", "5"), ("full", None), ("hard", "5"))
    ]
    found = values(gate_leaks(TASKS, chosen(), labels, sound=is_four, passed=("batch full",)))
    assert found == {"gate_leak of truth": [1, 1]}
    assert values(gate_leaks(TASKS, chosen())) == {}


def test_an_auditor_counts_where_it_was_heard_and_beside_the_truth():
    audits = [
        row("gates", task_id=i, passed=passed)
        for i, passed in (("kept", False), ("more", True), ("hard", True))
    ]
    found = values(
        gate_leaks(TASKS, chosen(), audits=audits, sound=is_four, passed=("batch full",))
    )
    assert found == {"gate_leak of truth": [0, 0], "gate_leak of auditor": [1, 0]}
    audits = [row("gates", task_id="kept", passed=None)]
    assert values(gate_leaks(TASKS, chosen(), audits=audits)) == {}


def test_one_limit_holds_for_whoever_says_it(place):
    tables = {
        "tasks": publish(place, "tasks", *TASKS),
        "chosen": publish(place, "selections", *chosen()),
    }
    audits = publish(
        place, "gates", *(row("gates", task_id=i, passed=i == "more") for i in ("kept", "more"))
    )
    about = {"policy": "p", "benchmark": "gate monitor", "limits": Limits()}
    watch(place, partial(gate_leaks, sound=is_four), **tables, **about)
    with pytest.raises(Alarm, match=r"gate_leak of auditor is 0\.5, the limit is 0\.1\."):
        watch(place.step(2), gate_leaks, audits=audits, **tables, **about)


def shown(*ids: str, **how):
    """What an auditor is shown of tasks about d1, which is in a cluster with d3; their evidence
    is d1 and d2."""
    tasks = [
        row(
            "tasks",
            task_id=i,
            text=f"task {i}",
            document_id="d1",
            evidence=["d1", "d2"],
            reference="B",
        )
        for i in ids
    ]
    kept = [row("selections", task_id=i, kept=True) for i in ids]
    documents = [row("documents", document_id=f"d{n}", text=f"text {n}") for n in (1, 2, 3)]
    about = {"count": 9, "seed": 0, "model": "data/micro/spell", "limit": 100, **how}
    return list(show_passed(tasks, kept, documents=documents, **about))


def test_an_auditor_sees_the_documents_of_the_evidence_or_of_the_cluster():
    assert [row["documents"] for row in shown("a")] == ["text 1\n\ntext 2"]
    members = [row("memberships", document_id=f"d{n}", cluster=7) for n in (3, 1)]
    assert [row["documents"] for row in shown("a", memberships=members)] == ["text 3\n\ntext 1"]


def test_an_auditor_sees_the_task_its_options_and_its_reference_or_label():
    task = row("tasks", task_id="a", text="which ?", options=["red", "blue"], task_type="choice")
    kept = [row("selections", task_id="a", kept=True)]
    about = {"count": 1, "seed": 0, "model": "data/micro/spell", "limit": 0}
    options = [{"letter": "A", "text": "red"}, {"letter": "B", "text": "blue"}]
    ids = {
        "task_id": "a",
        "task_type": "choice",
        "task": "which ?",
        "options": options,
        "documents": "",
    }
    assert list(show_passed([{**task, "reference": "B"}], kept, **about)) == [
        {**ids, "reference": "B"}
    ]
    assert list(show_passed([task], kept, **about)) == [{**ids, "reference": ""}]
    labels = [row("labels", task_id="a", answer="A")]
    assert list(show_passed([task], kept, labels, **about)) == [{**ids, "reference": "A"}]


def test_an_auditor_is_shown_tasks_drawn_by_the_seed():
    ids = [chr(number) for number in range(ord("a"), ord("z"))]
    first, again, other = (
        [row["task_id"] for row in shown(*ids, count=8, seed=seed, limit=0)] for seed in (1, 1, 2)
    )
    assert len(set(first)) == 8
    assert first == again != other
    assert len(shown(*ids, count=99)) == len(ids)


def test_a_ledgers_question_is_sound_with_its_true_answer_or_without_one():
    task = ledgers.held_out_tasks(7, 1)[0]
    given = row(
        "tasks", text=task.question, reference=task.answer, options=list(task.options) or None
    )
    assert ledger_sound(given)
    assert ledger_sound({**given, "reference": None})
    assert not ledger_sound({**given, "reference": "no such answer"})
    assert not ledger_sound({**given, "text": "why why why ?"})
    assert not ledger_sound({**given, "text": None})


def test_a_question_about_a_cluster_is_sound_with_its_true_answer():
    cluster = clusters.world_cluster(3, 0)
    name = cluster.names[0]
    question = clusters.Question(cluster.attributes(name)[0], name)
    text = clusters.write_question(question)
    task = row(
        "tasks", document_id="cluster-3-0-x", text=text, reference=cluster.true_answer(question)
    )
    assert cluster_sound(task)
    assert not cluster_sound({**task, "reference": "nobody"})
    assert not cluster_sound({**task, "reference": None})
    assert not cluster_sound({**task, "text": "what is what ?"})


def test_a_task_of_the_encyclopaedia_is_sound_where_it_names_what_is_so():
    world = encyclopaedia.World(5, 20)
    sound = partial(encyclopaedia_sound, seed=5, num_documents=20)
    name = world.names[0]
    has = world.attributes(name)[:2]
    lacks = next(a for a in encyclopaedia.ATTRIBUTES if a not in world.facts[name])
    kind = next(iter(encyclopaedia.TASK_SENTENCES))
    asks = [
        encyclopaedia.Task(kind, name, attributes=tuple(some)) for some in (has, [has[0], lacks])
    ]
    vague = encyclopaedia.Task("", name, generic=next(iter(encyclopaedia.GENERIC_SENTENCES)))
    texts = [*map(encyclopaedia.write_task, (*asks, vague)), "tell me all", None]
    assert [sound(row("tasks", text=text)) for text in texts] == [True, False, False, False, False]
