"""Duplicate removal as stages: compared with an exact join of all pairs, worked by hand, and
after interruptions."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus_prep import corpus
from corpus_prep.dedup import bands, edges
from corpus_prep.dedup.edges import Comparing
from corpus_prep.dedup.minhash import MinHashing
from corpus_prep.workers import Workers
from tasks.corpus import dedup
from tests.end_to_end.kill_dedup import compare
from tests.support.corpora import documents, edited, generated, with_copies
from tests.support.rows import publish, row
from tests.support.truth import defined_shingles, exact_join, judge, word_shingles
from warehouse.schemas import DOCUMENTS
from warehouse.store import Place, Table

SETTINGS = MinHashing()
BASE = (
    "the quick brown fox jumps over the lazy dog while seven wise men watch from their old stone"
    " bridge"
)


def stored(place: Place, table: pa.Table) -> Table:
    """Publish a table in row groups of 50, since shards consist of whole row groups."""
    recipe = {
        "key": "given",
        "stage": "tests.given",
        "started_at": 0.0,
        "seconds": 0.0,
        "counts": {},
    }
    with place.store.draft(DOCUMENTS) as draft:
        for start in range(0, len(table), 50):
            draft.write(table.slice(start, 50))
        return place.store.publish(draft, place.address("documents"), recipe)


def run(
    place: Place, table: Table, keep: dedup.Keep = "first", **given
) -> tuple[Table, Table, Table, Table]:
    """Run the stages; returns the tables exact, bands, duplicates and near."""
    workers = given.pop("workers", None)
    exact = dedup.screen_exact_duplicates(place, table, keep=keep, label="exact", workers=workers)
    banded = dedup.band_documents(
        place, table, screened=[exact], settings=SETTINGS, workers=workers
    )
    found = dedup.find_duplicates(
        place, table, banded, screened=[exact], settings=SETTINGS, workers=workers, **given
    )
    near = dedup.screen_near_duplicates(
        place, table, found, screened=[exact], keep=keep, label="near"
    )
    return exact, banded, found, near


def dropped(table: Table) -> dict[str, str]:
    return {r["document_id"]: r["instead"] for r in table.rows() if not r["kept"]}


def texts_of(*edits: dict[int, str]) -> list[str]:
    """BASE with words replaced."""
    return [" ".join(edit.get(n, word) for n, word in enumerate(BASE.split())) for edit in edits]


@pytest.fixture
def small_shards(monkeypatch):
    """Divide the work finely: shards of 100 documents, partitions of a few bands and hashes, 50
    pairs at once."""
    monkeypatch.setattr(corpus, "SHARD_DOCUMENTS", 100)
    monkeypatch.setattr(bands, "PARTITION_ROWS", 300)
    monkeypatch.setattr(edges, "PAIRS_AT_ONCE", 50)


def test_what_is_removed_is_what_an_exact_join_of_all_pairs_removes(place, small_shards):
    texts = with_copies(list(generated(500)), 250)
    # three texts without words, one of them twice
    texts += [texts[7].upper(), texts[8] + " !", "...", "|", "...", ""]
    exact, _, found, near = run(place, stored(place, documents(texts)))
    truth = exact_join([defined_shingles(text) for text in texts], 0.8)
    alike = {(r["first"], r["second"]): r["jaccard"] for r in found.rows() if r["jaccard"] >= 0.8}
    same = {int(copy[1:]): int(kept[1:]) for copy, kept in dropped(exact).items()}
    distinct = {pair: jaccard for pair, jaccard in truth.items() if not same.keys() & set(pair)}
    assert len(distinct) > 60
    assert alike == pytest.approx(distinct)
    judged = judge({int(document[1:]) for document in (*dropped(exact), *dropped(near))}, truth)
    assert (judged.wrong, judged.missed) == (0, 0)
    assert judged.direct > 60
    assert {750: 7, 751: 8, 754: 752}.items() <= same.items()


@pytest.mark.parametrize(
    ("keep", "kept"), [("first", "d0"), ("longest", "d1"), ("best", "d2"), ("newest", "d0")]
)
def test_of_a_family_the_first_the_longest_the_best_or_the_newest_is_kept(place, keep, kept):
    # Changing the first or last word changes one of 15 shingles: d0 and each of the others share 14
    # of 16.
    table = documents(texts_of({}, {18: "magnificence"}, {0: "a"}))
    table = table.set_column(7, "score", pa.array([0.1, None, 0.9]))
    table = table.set_column(9, "date", pa.array(["2022-03", "2021-12-31", None]))
    exact, _, found, near = run(place, stored(place, table), keep=keep)
    jaccards = {(r["first"], r["second"]): r["jaccard"] for r in found.rows()}
    assert (jaccards[0, 1], jaccards[0, 2]) == (14 / 16, 14 / 16)
    assert dropped(exact) == {}
    assert dropped(near) == {other: kept for other in ("d0", "d1", "d2") if other != kept}


def test_without_dates_the_last_version_is_the_newest(place):
    assert dropped(
        run(place, stored(place, documents(texts_of({}, {18: "river"}))), keep="newest")[3]
    ) == {"d0": "d1"}


def test_soft_hyphens_and_zero_width_characters_do_not_tell_texts_apart(place):
    [text] = texts_of({})
    exact, *_ = run(
        place,
        stored(
            place, documents([text, text.replace("ow", "o\u00adw\u200b").replace("e", "e\u2060")])
        ),
    )
    assert dropped(exact) == {"d1": "d0"}


@pytest.mark.parametrize(
    "letters", ["កខគឃងចឆជឈញដឋឌឍណតថទធន", "ကခဂဃငစဆဇဈညဋဌဍဎဏတထဒဓန"], ids=["Khmer", "Burmese"]
)
def test_near_duplicates_are_found_in_scripts_without_blanks(place, letters):
    rng = random.Random(0)
    texts = ["".join(rng.choices(letters, k=400)) for _ in range(20)]
    edited_ = [text[:200] + letters[0] + text[201:] for text in texts]
    assert len(dropped(run(place, stored(place, documents([*texts, *edited_])))[3])) == 20


def test_nothing_else_than_counting_documents_takes_part(place):
    table = documents(texts_of({}, {}, {}, {}))
    table = table.set_column(8, "dropped_reason", pa.array(["too_long", None, None, None]))
    everything = stored(place, table)
    earlier = publish(
        place,
        "screenings",
        row("screenings", document_id="d1", kept=False, reason="language"),
        label="l",
    )
    exact = dedup.screen_exact_duplicates(place, everything, screened=[earlier], label="exact")
    assert [(r["document_id"], r["reason"], r["instead"]) for r in exact.rows()] == [
        ("d2", None, None),
        ("d3", "exact_duplicate", "d2"),
    ]
    banded = dedup.band_documents(place, everything, screened=[earlier, exact], settings=SETTINGS)
    assert {r["document"] for r in banded.rows()} == {2}
    assert banded.num_rows == 21


def test_a_corpus_of_one_document_and_one_without_words(place):
    exact, banded, found, near = run(place, stored(place, documents(["one text", "...", ""])))
    assert [t.num_rows for t in (exact, banded, found, near)] == [3, 21, 0, 3]
    assert dropped(exact) == dropped(near) == {}


def test_another_threshold_needs_no_new_comparison(place):
    table = stored(place, documents(texts_of({}, {1: "slow"})))  # 2 of 15 shingles change
    _, _, found, near = run(place, table)
    assert [r["jaccard"] for r in found.rows()] == [13 / 17]
    assert dropped(near) == {}
    lower = dedup.screen_near_duplicates(
        place, table, found, threshold=0.7, keep="first", label="lower"
    )
    assert dropped(lower) == {"d1": "d0"}
    with pytest.raises(
        ValueError, match=r"has pairs from Jaccard 0\.5 on; find them again from 0\.4 on"
    ):
        dedup.screen_near_duplicates(place, table, found, threshold=0.4, label="lowest")


def test_a_document_joined_through_another_is_counted(place):
    table = stored(place, documents(texts_of({}, {0: "a"}, {0: "a", 18: "river"}, {18: "river"})))
    exact, banded, found, near = run(place, table)
    jaccards = {(r["first"], r["second"]): r["jaccard"] for r in found.rows()}
    assert (jaccards[0, 1], jaccards[0, 2]) == (14 / 16, 13 / 17)
    assert dropped(near) == {"d1": "d0", "d2": "d0", "d3": "d0"}
    measured = {
        (r["part"], r["metric"]): r["value"]
        for r in dedup.measure_duplicates(place, exact, banded, found, near).rows()
    }
    assert measured["near", "dropped through others"] == 1
    assert measured["near", "rows_in"] == 4
    assert measured["near", "rows_out"] == 1
    assert measured["near", "dropped: near_duplicate"] == 3
    assert measured["duplicates", "pairs from 0.85"] == 4
    assert measured["duplicates", "pairs from 0.75"] == 2
    assert measured["bands", "cpu_s"] >= 0
    assert measured["bands", "peak_memory_mb"] > 50


def test_canaries_are_found_and_leave_no_trace(place, store, small_shards):
    texts = list(generated(300, seed=3))
    other = store.run("other")
    table = stored(place, documents(texts))
    same = stored(other, documents(texts))
    steps = run(place, table, canaries=100)
    plain = run(other, same)
    for one, without in zip(steps, plain, strict=True):
        assert one.arrow.equals(without.arrow)
    planted = pq.read_table(steps[2].files / dedup.CANARIES).to_pylist()
    assert len(planted) == 100
    assert all(p["found"] for p in planted if p["jaccard"] >= 0.8)
    assert sum(p["jaccard"] >= 0.8 for p in planted) > 40
    measured = {r["metric"]: r["value"] for r in dedup.measure_duplicates(place, *steps).rows()}
    assert measured["canary_recall"] == 1
    assert measured["canaries"] == sum(p["jaccard"] >= 0.8 for p in planted)


def test_canaries_of_a_script_without_blanks_have_a_few_characters_changed(place):
    rng = random.Random(0)
    letters = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏"
    texts = ["".join(rng.choices(letters, k=400)) for _ in range(20)]
    steps = run(place, stored(place, documents(texts)), canaries=20)
    planted = pq.read_table(steps[2].files / dedup.CANARIES).to_pylist()
    assert len(planted) == 20
    assert all(0.6 < p["jaccard"] < 1 for p in planted)


def test_documents_too_short_for_canaries_have_none(place):
    short = " ".join(f"w{n}" for n in range(38))
    steps = run(place, stored(place, documents([f"{short} {end}" for end in "abc"])), canaries=10)
    assert steps[2].num_rows == 3
    assert pq.read_table(steps[2].files / dedup.CANARIES).num_rows == 0


def test_text_that_many_documents_share_neither_costs_all_pairs_nor_hides_duplicates(place):
    shared = next(generated(1, 99, (200, 201)))
    rng = random.Random(0)
    texts = [f"{shared} {text}" for text in generated(800, 1, (100, 101))]
    copies = {n: edited(texts[n], 0.02, ["new"], rng) for n in rng.sample(range(800), 80)}
    table = stored(place, documents([*texts, *copies.values()]))
    exact, _, found, near = run(place, table, comparing=Comparing(max_bucket=50, max_leaders=8))
    counts = json.loads((found.files / dedup.COUNTS).read_text())
    assert counts["crowds"] > 5 and counts["documents_compared_by_rare_shingles"] > 400
    assert counts["candidate_pairs"] + 8 * counts["crowd_documents"] < 880 * 879 / 2 / 10
    truth = exact_join([word_shingles(text) for text in (*texts, *copies.values())], 0.8)
    due = {(f"d{other}", f"d{one}") for one, other in truth}
    assert len(due) == 80
    assert dropped(exact).items() | dropped(near).items() == due


def test_a_stopped_search_goes_on_with_what_is_whole(place, small_shards, monkeypatch):
    table = stored(place, documents(with_copies(list(generated(400)), 100)))
    exact = dedup.screen_exact_duplicates(place, table, label="exact")
    made = []
    real = bands.write_bands

    def stops(shard, settings):
        made.append(shard.first)
        real(shard, settings)
        if len(made) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(dedup, "write_bands", stops)
    with pytest.raises(KeyboardInterrupt):
        dedup.band_documents(place, table, screened=[exact], settings=SETTINGS)
    banded = dedup.band_documents(place, table, screened=[exact], settings=SETTINGS)
    assert made == [0, 100, 200, 200, 300, 400]
    monkeypatch.undo()
    again = dedup.band_documents(place.step(9), table, screened=[exact], settings=SETTINGS)
    assert banded.arrow.sort_by([("document", "ascending"), ("band", "ascending")]).equals(
        again.arrow.sort_by([("document", "ascending"), ("band", "ascending")])
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "workers", [Workers(count=2), Workers(kind="ray", count=2)], ids=["pool", "ray"]
)
def test_two_workers_give_row_for_row_what_one_process_gives(place, store, small_shards, workers):
    texts = with_copies(list(generated(600)), 300)
    alone = run(place, stored(place, documents(texts)), canaries=50)
    other = store.run("other")
    together = run(other, stored(other, documents(texts)), canaries=50, workers=workers)
    for one, same in zip(alone, together, strict=True):
        assert one.arrow.equals(same.arrow)


@pytest.mark.slow
def test_a_search_killed_at_random_ends_with_the_same_tables():
    line = compare(20_000, kills=3)
    assert line["kills"] > 0
    assert line["equal"] == line["tables"] == 5
