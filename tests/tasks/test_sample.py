from collections import Counter

import pytest

from corpus_prep.read.documents import DocumentRow
from corpus_prep.search.index import build_index
from tasks.sample import allot, nearest, sample
from tests.support.rows import publish, row
from warehouse.store import Store

TURNS = {1: 4, 2: 3, 3: 2}
TYPES = ("planning", "writing")


@pytest.fixture
def documents(store):
    """Nine usable documents, and two dropped ones."""
    used = [row("documents", document_id=f"d{i}") for i in range(9)]
    dropped = [row("documents", document_id=f"x{i}", dropped_reason="empty") for i in range(2)]
    return publish(store.run("r"), "documents", *used, *dropped)


def draw(documents, num_samples: int, **given) -> list[dict]:
    place = Store(documents.root).run("r").phase(repr(sorted(given.items())) + str(num_samples))
    settings = {"task_types": TYPES, "search_turns": TURNS, "seed": 0, "epoch": "e", **given}
    return sample(place, documents, num_samples=num_samples, **settings).rows()


def ids(rows: list[dict]) -> list[str]:
    return [r["document_id"] for r in rows]


@pytest.mark.parametrize(
    ("total", "counts"),
    [
        (9, (4, 3, 2)),
        (64, (29, 21, 14)),  # quotas 28.44, 21.33, 14.22: the remaining one goes to .44
        (10, (5, 3, 2)),
        (11, (5, 4, 2)),  # quotas 4.89, 3.67, 2.44
        (1, (1, 0, 0)),
        (2, (1, 1, 0)),  # quotas .89, .67, .44
        (3, (1, 1, 1)),
        (0, (0, 0, 0)),
        (500, (222, 167, 111)),  # quotas 222.22, 166.67, 111.11
    ],
)
def test_search_turns_are_allotted_4_to_3_to_2_by_largest_remainder(total, counts):
    allotted = Counter(allot(TURNS, total))
    assert tuple(allotted[n] for n in TURNS) == counts


def test_a_share_of_0_is_never_allotted():
    assert set(allot({1: 1, 2: 0, 3: 1}, 7)) == {1, 3}


def test_allotted_turns_are_shuffled_over_the_documents(documents):
    turns = [r["search_turns"] for r in draw(documents, 64)]
    assert Counter(turns) == {1: 29, 2: 21, 3: 14}
    assert turns != sorted(turns)


def test_without_types_and_turns_documents_are_drawn_as_with_them(documents):
    plain = draw(documents, 5, task_types=None, search_turns=None)
    assert ids(plain) == ids(draw(documents, 5))
    assert {(r["task_type"], r["search_turns"]) for r in plain} == {(None, None)}


def test_equal_seeds_draw_alike_and_others_do_not(documents):
    assert draw(documents, 9) == draw(documents, 9, epoch="e")
    assert ids(draw(documents, 9)) != ids(draw(documents, 9, seed=1))
    assert ids(draw(documents, 9)) != ids(draw(documents, 9, epoch="f"))


def test_another_seed_draws_other_types_and_turns_under_other_ids(documents):
    first, second = (draw(documents, 40, seed=seed) for seed in (0, 1))
    for column in ("task_type", "search_turns"):
        assert [sample[column] for sample in first] != [sample[column] for sample in second]
    assert not {sample["sample_id"] for sample in first} & {
        sample["sample_id"] for sample in second
    }


def test_no_document_comes_twice_before_all_came_once(documents):
    drawn = ids(draw(documents, 20))
    whole = {f"d{i}" for i in range(9)}
    assert set(drawn[:9]) == set(drawn[9:18]) == whole
    assert drawn[:9] != drawn[9:18]
    assert len(set(drawn[18:])) == 2


def test_documents_of_one_draw_are_all_different_and_each_lap_has_all(documents):
    """Draws of four of nine documents: the third, the fifth and others end in the next lap."""
    draws = [ids(draw(documents, 4, skip=4 * n, all_different=True)) for n in range(18)]
    assert all(len(set(drawn)) == 4 for drawn in draws)
    in_order = [document_id for drawn in draws for document_id in drawn]
    laps = [in_order[i : i + 9] for i in range(0, 72, 9)]
    assert all(len(set(lap)) == 9 for lap in laps)
    assert len({tuple(lap) for lap in laps}) == 8


def test_a_draw_of_more_than_there_are_has_some_twice(documents):
    assert set(ids(draw(documents, 12, all_different=True))[:9]) == {f"d{i}" for i in range(9)}


def test_dropped_documents_are_never_drawn(documents):
    assert not [i for i in ids(draw(documents, 50)) if i.startswith("x")]


def test_skipping_goes_on_where_the_last_draw_ended(documents):
    whole = draw(documents, 20)
    parts = [draw(documents, 4), draw(documents, 7, skip=4), draw(documents, 9, skip=11)]
    assert [i for part in parts for i in ids(part)] == ids(whole)
    assert [r["sample_id"] for part in parts for r in part] == [r["sample_id"] for r in whole]
    assert len({r["sample_id"] for r in whole}) == 20


def test_task_types_are_drawn_uniformly(documents):
    counts = Counter(r["task_type"] for r in draw(documents, 400))
    assert set(counts) == set(TYPES)
    assert abs(counts["planning"] - 200) < 40  # four standard deviations of 10


def test_a_corpus_without_usable_documents_is_an_error_that_says_so(store):
    empty = publish(
        store.run("r"), "documents", row("documents", document_id="x", dropped_reason="empty")
    )
    with pytest.raises(ValueError, match="r/documents has no usable document to sample from"):
        draw(empty, 1)


def test_the_documents_nearest_to_a_task_are_those_that_a_search_for_its_text_finds(store):
    place = store.run("r").iteration(1).phase("information")
    texts = {"m": "the moon is bright", "s": "the sun is hot", "b": "moon and sun and moon"}
    rows = [
        {**row("documents", document_id=i, text=text), "title": ""} for i, text in texts.items()
    ]
    documents = publish(store.run("r"), "documents", *rows)
    tasks = publish(
        place,
        "tasks",
        *(row("tasks", task_id=i, text=text) for i, text in (("t", "sun"), ("u", "moon"))),
    )
    # it has no index
    assert nearest(place, documents, tasks, chosen=["t"], most=2, label="bare").num_rows == 0
    shown = [DocumentRow(i, "", text) for i, text in texts.items()]
    build_index(shown, documents.files / "index")
    found = nearest(place, documents, tasks, chosen=["u", "t"], most=1).rows()
    assert [(r["sample_id"], r["document_id"]) for r in found] == [("u-0", "b"), ("t-0", "s")]
