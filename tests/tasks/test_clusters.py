"""Draws from clusters, and what is remembered about each cluster."""

from typing import Any

import pytest

from tasks.clusters import choose_clusters, documents_of, draw, remember
from tests.support.rows import publish, row
from warehouse.store import Place, Table

CLUSTERS = {0: "abcdef", 1: "ghijkl", 2: "mnopqr"}


def memberships(
    place: Place, clusters: dict[int, str] = CLUSTERS, label: str | None = None
) -> Table:
    rows = [
        row("memberships", document_id=d, cluster=c) for c, ids in clusters.items() for d in ids
    ]
    return publish(place, "memberships", *rows, label=label)


def samples(
    place: Place, memory: Table | None = None, types: str = "xy", **given: Any
) -> list[dict]:
    clusters = dict.fromkeys(types, memberships(place))
    settings = {"num_samples": 4, "documents_per_sample": 2, "seed": 0, **given}
    return draw(place, clusters, memory, label=str(settings["num_samples"]), **settings).rows()


def pair(place: Place, *remembered: dict) -> Table:
    defaults = {
        "cluster": 0,
        "task_type": "x",
        "place": 0,
        "text": "Who?",
        "reference": "Ada",
        "document_ids": [],
    }
    return publish(
        place, "memories", *({**defaults, "task_id": "t", **r} for r in remembered), label="given"
    )


def test_types_get_equal_shares_and_documents_of_their_cluster_in_the_order_of_the_corpus(place):
    found = samples(place)
    assert [s["task_type"] for s in found] == ["x", "x", "y", "y"]
    for sample in found:
        assert len(sample["document_ids"]) == 2 and sample["document_ids"] == sorted(
            sample["document_ids"]
        )
        assert set(sample["document_ids"]) <= set(CLUSTERS[sample["cluster"]])
        assert sample["document_id"] == sample["document_ids"][0]


def test_no_cluster_comes_twice_for_a_type_before_all_were_drawn(place):
    rounds = [samples(place.step(n), types="x", num_samples=2, num_before=n) for n in range(3)]
    drawn = [s["cluster"] for r in rounds for s in r]
    assert sorted(drawn[:3]) == sorted(drawn[3:]) == [0, 1, 2]
    assert drawn[:3] != drawn[3:]  # each lap in its own order


def test_draws_depend_on_the_seed_and_on_nothing_else(place):
    assert samples(place.step(1)) == samples(place.step(2)) != samples(place.step(3), seed=1)


def test_new_documents_are_those_that_memory_does_not_hold(place):
    memory = pair(place, *({"cluster": c, "document_ids": list(CLUSTERS[c][:4])} for c in CLUSTERS))
    found = samples(place, memory, types="x", num_samples=3)
    assert {sample["cluster"]: "".join(sample["document_ids"]) for sample in found} == {
        0: "ef",
        1: "kl",
        2: "qr",
    }


def test_memory_of_one_type_does_not_bind_another(place):
    memory = pair(place, *({"cluster": c, "document_ids": list(CLUSTERS[c][1:])} for c in CLUSTERS))
    of_x, of_y = (
        samples(place.step(i), memory, types=t, num_samples=3) for i, t in enumerate("xy")
    )
    assert [len(sample["document_ids"]) for sample in of_x] == [1, 1, 1]
    assert [len(sample["document_ids"]) for sample in of_y] == [2, 2, 2]


def test_where_all_documents_are_remembered_they_may_come_again(place):
    memory = pair(
        place, *({"cluster": c, "document_ids": list(ids)} for c, ids in CLUSTERS.items())
    )
    found = samples(place, memory, types="x", num_samples=3)
    assert [len(sample["document_ids"]) for sample in found] == [2, 2, 2]


def played(place: Place, *questions: dict) -> tuple[Table, Table, Table, Table]:
    """Tasks, scores, samples and prompts of questions, each with task_id, text, reference, r_bar,
    cluster and document_ids."""
    tasks = []
    scores = []
    drawn = []
    prompts = []
    for q in questions:
        t = q["task_id"]
        about = {
            "task_id": t,
            "prompt_id": f"p-{t}",
            "task_type": "x",
            "text": q.get("text", f"{t}?"),
        }
        tasks.append(
            row("tasks", **about, reference=q.get("reference", t), options=q.get("options"))
        )
        parts = {} if q["r_bar"] is None else {"r_bar": q["r_bar"]}
        scores.append(row("rewards", rollout_id=t, task_id=t, components=parts))
        ids = {
            "cluster": q.get("cluster", 0),
            "task_type": "x",
            "document_ids": q.get("document_ids", ["a"]),
        }
        drawn.append(row("samples", sample_id=f"s-{t}", **ids))
        prompts.append(row("prompts", prompt_id=f"p-{t}", sample_id=f"s-{t}", messages=[]))
    tables = ("tasks", tasks), ("rewards", scores), ("samples", drawn), ("prompts", prompts)
    return tuple(publish(place, name, *rows) for name, rows in tables)  # type: ignore[return-value]


def recall(place: Place, memory: Table | None, *questions: dict, most: int = 3) -> Table:
    return remember(
        place, memory, *played(place, *questions), component="r_bar", low=0.0, high=1.0, most=most
    )


def test_solvable_tasks_are_remembered_and_no_others(place):
    given = [("none", 0.0), ("all", 1.0), ("unasked", None), ("some", 0.125), ("most", 0.875)]
    found = recall(place, None, *({"task_id": t, "r_bar": r} for t, r in given)).rows()
    assert [(m["task_id"], m["place"]) for m in found] == [("some", 0), ("most", 1)]


def test_the_most_recent_stay_oldest_first(place):
    memory = None
    for step, names in enumerate(["ab", "c", "d"], start=1):
        memory = recall(place.step(step), memory, *({"task_id": t, "r_bar": 0.5} for t in names))
    assert memory is not None
    assert [(m["task_id"], m["place"]) for m in memory.rows()] == [("b", 0), ("c", 1), ("d", 2)]


def test_clusters_are_remembered_apart_and_stay_while_others_play(place):
    first = recall(place.step(1), None, {"task_id": "a", "r_bar": 0.5, "cluster": 7})
    second = recall(
        place.step(2),
        first,
        {"task_id": "b", "r_bar": 0.5, "cluster": 3, "document_ids": ["g", "h"]},
    )
    assert [(m["cluster"], m["task_id"]) for m in second.rows()] == [(3, "b"), (7, "a")]
    assert second.rows()[0]["document_ids"] == ["g", "h"]


@pytest.mark.parametrize(
    "again", [{"text": "a?", "reference": "new"}, {"text": "new?", "reference": "a"}]
)
def test_a_question_or_answer_that_is_already_there_is_not_added(place, again):
    first = recall(place.step(1), None, {"task_id": "a", "r_bar": 0.5})
    second = recall(place.step(2), first, {"task_id": "b", "r_bar": 0.5, **again})
    assert [m["task_id"] for m in second.rows()] == ["a"]


def test_a_letter_is_remembered_as_what_it_stands_for(place):
    options = {"options": ["red", "blue", "green", "grey"], "reference": "B", "r_bar": 0.5}
    other = {**options, "options": ["one", "two", "three", "four"]}
    found = recall(place, None, {"task_id": "a", **options}, {"task_id": "b", **other})
    assert [m["reference"] for m in found.rows()] == ["blue", "two"]


def test_documents_are_those_of_the_clusters_drawn(place):
    corpus = publish(
        place,
        "documents",
        *(row("documents", document_id=d, text=d) for ids in CLUSTERS.values() for d in ids),
    )
    drawn = publish(place, "samples", row("samples", sample_id="s", cluster=1, document_ids=["g"]))
    found = documents_of(place, corpus, memberships(place), samples=drawn, label="shown")
    assert [d["document_id"] for d in found.rows()] == list(CLUSTERS[1])


def test_types_that_share_a_corpus_get_clusters_of_their_own(place):
    source = memberships(place)
    taken = [
        choose_clusters(place, source, num_clusters=1, skip=i, label=str(i)).rows()
        for i in range(3)
    ]
    assert sorted(rows[0]["cluster"] for rows in taken) == [0, 1, 2]
    assert all(len(rows) == 6 for rows in taken)
    with pytest.raises(ValueError, match="has 3 clusters, but 4 are wanted"):
        choose_clusters(place, source, num_clusters=1, skip=3, label="more")


def test_clusters_of_another_corpus_are_numbered_on(place):
    found = choose_clusters(
        place, memberships(place), num_clusters=None, shift=100, label="shifted"
    ).rows()
    assert {r["cluster"] for r in found} == {100, 101, 102}
