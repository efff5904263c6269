"""Passages of evaluation sets found in documents: which count, where they stand, which documents they drop."""

import json
import random
from pathlib import Path

import pytest

from corpus_prep.contamination.benchmarks import Benchmark, read_passages
from corpus_prep.contamination.ngrams import NgramRule
from corpus_prep.dedup.minhash import MinHashing
from tasks.corpus.decontaminate import (
    find_contaminations,
    measure_contaminations,
    read_evaluation_sets,
    screen_contaminated,
)
from tasks.stage import Rows, stage
from warehouse.schemas import DOCUMENTS
from warehouse.store import Place, Table

RULE = NgramRule()
VOCABULARY = [f"w{number}" for number in range(5_000)]


def prose(num_words: int, seed: object) -> str:
    """Words drawn at random: two texts share no run of five but by plan."""
    rng = random.Random(repr(seed))
    return " ".join(rng.choices(VOCABULARY, k=num_words))


def evaluation_set(place: Place, tmp_path: Path, rows: list[dict]) -> Table:
    file = tmp_path / "quiz.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return read_evaluation_sets(place, [Benchmark(name="quiz", path=str(file))], identity="1")


@stage(DOCUMENTS)
def corpus(*texts: str) -> Rows:
    for number, text in enumerate(texts):
        yield {"document_id": f"d{number}", "text": text, "source": "test", "num_chars": len(text)}


def dropped(place: Place, passages: Table, *texts: str, rule: NgramRule = RULE, **given) -> list[str]:
    documents = corpus(place, *texts)
    found = find_contaminations(place, documents, passages, rule=rule, **given)
    return [row["document_id"] for row in screen_contaminated(place, documents, found).rows() if not row["kept"]]


@pytest.fixture
def question(place, tmp_path) -> Table:
    """One question of 30 words: 18 runs of 13."""
    return evaluation_set(place, tmp_path, [{"question": prose(30, "q"), "answer": "42"}])


def test_a_document_that_holds_a_question_is_dropped_and_says_where(place, question):
    text = f"{prose(50, 1)}. {prose(30, 'q').upper()}? {prose(50, 2)}"
    documents = corpus(place, prose(100, 3), text)
    found = find_contaminations(place, documents, question, rule=RULE)
    [row] = found.rows()
    assert (row["document_id"], row["benchmark"], row["passage"], row["share"]) == ("d1", "quiz", "0#0", 1.0)
    assert row["removes"] and row["text"] == text[row["start"] : row["end"]] == prose(30, "q").upper()
    screening = screen_contaminated(place, documents, found)
    assert [(r["document_id"], r["kept"], r["reason"]) for r in screening.rows()] == [
        ("d0", True, None),
        ("d1", False, "contaminated: quiz"),
    ]


@pytest.mark.parametrize(
    ("num_words", "drops"),
    [(13, False), (20, False), (21, True), (30, True)],  # 1, 8, 9 and 18 of 18 runs; half of them are asked for
)
def test_half_of_a_questions_runs_drop_a_document(place, question, num_words, drops):
    part = " ".join(prose(30, "q").split()[:num_words])
    assert dropped(place, question, f"{prose(40, 1)} {part} {prose(40, 2)}") == (["d0"] if drops else [])


def test_a_passage_found_in_part_is_reported_without_dropping(place, question):
    part = " ".join(prose(30, "q").split()[:17])  # 5 runs of 18
    found = find_contaminations(place, corpus(place, f"{prose(40, 1)} {part}"), question, rule=RULE)
    assert [(row["share"], row["removes"], row["text"]) for row in found.rows()] == [(5 / 18, False, part)]


def test_a_long_stretch_of_a_longer_passage_is_enough(place, tmp_path):
    passages = evaluation_set(place, tmp_path, [{"context": prose(400, "c")}])
    stretch = prose(400, "c").split()[100:]
    assert dropped(place, passages, f"{prose(9, 1)} {' '.join(stretch[:50])} x", prose(9, 2)) == ["d0"]
    assert dropped(place, passages, f"{prose(9, 1)} {' '.join(stretch[:49])} x", prose(9, 2)) == []


def test_short_questions_have_to_stand_whole_and_very_short_ones_are_not_looked_for(place, tmp_path):
    rows = [{"question": prose(8, "eight")}, {"question": prose(7, "seven")}]
    passages = evaluation_set(place, tmp_path, rows)
    cut = " ".join(prose(8, "eight").split()[1:])
    texts = [
        f"{prose(20, n)} {part} {prose(20, -n)}" for n, part in enumerate([prose(8, "eight"), cut, prose(7, "seven")])
    ]
    assert dropped(place, passages, *texts) == ["d0"]


def test_short_answers_and_headings_may_stand_in_documents(place, tmp_path):
    rows = [{"question": prose(20, "q"), "answer": prose(12, "a"), "context": prose(12, "heading")}]
    passages = evaluation_set(place, tmp_path, rows)
    assert dropped(place, passages, f"{prose(9, 1)} {prose(12, 'a')} x", f"{prose(12, 'heading')} {prose(9, 2)}") == []


def test_phrases_of_many_documents_count_for_nothing(place, tmp_path):
    phrase = prose(13, "phrase")
    passages = evaluation_set(
        place, tmp_path, [{"question": f"{phrase} {prose(1, 'x')}"}, {"question": prose(20, "q")}]
    )
    texts = [f"{prose(30, n)} {phrase} {prose(30, -n)}" for n in range(11)]
    assert dropped(place, passages, *texts, f"{prose(9, 'y')} {prose(20, 'q')}") == ["d11"]
    assert dropped(place, passages, *texts[:10]) == [f"d{n}" for n in range(10)]


def test_a_long_passage_that_stands_whole_in_many_documents_drops_all_of_them(place, tmp_path):
    passages = evaluation_set(place, tmp_path, [{"question": prose(26, "q")}])
    texts = [f"{prose(30, n)} {prose(26, 'q')} {prose(30, -n)}" for n in range(12)]
    assert dropped(place, passages, *texts) == [f"d{n}" for n in range(12)]


def test_documents_that_an_earlier_step_dropped_do_not_count(place, question):
    documents = corpus(place, prose(30, "q"), f"{prose(30, 'q')} again", label="all")
    other = find_contaminations(place, corpus(place, prose(30, "q"), label="one"), question, rule=RULE, label="one")
    earlier = screen_contaminated(place, documents, other, label="one")
    found = find_contaminations(place, documents, question, rule=RULE, screened=[earlier])
    assert {row["document_id"] for row in found.rows()} == {"d1"}
    assert screen_contaminated(place, documents, found, screened=[earlier]).num_rows == 1


def test_a_near_copy_of_a_context_is_found_by_minhash(place, tmp_path):
    parts = [prose(60, "one"), prose(60, "two")]
    passages = evaluation_set(place, tmp_path, [{"question": prose(20, "q"), "contexts": [{"text": t} for t in parts]}])
    near = " ".join(parts).split()
    for at in (10, 60):
        near[at] = "changed"
    documents = corpus(place, " ".join(near), prose(120, 1))
    strict = NgramRule(ngram=60, min_words=60, min_span_words=100)  # finds nothing: no 60 words in a row are left
    found = find_contaminations(place, documents, passages, rule=strict, likeness=MinHashing())
    [row] = found.rows()
    # 116 shingles of 5 words each; 2 changes spoil 5 each: 106 in common of 2 * 116 - 106.
    assert (row["document_id"], row["rule"], row["start"]) == ("d0", "minhash", None)
    assert row["share"] == pytest.approx(106 / 126)


def test_planted_passages_are_measured_and_leave_no_row(place, tmp_path):
    rows = [{"question": prose(8 + number, number), "answer": "yes"} for number in range(40)]
    passages = evaluation_set(place, tmp_path, rows)
    documents = corpus(place, *(prose(80, f"clean {n}") for n in range(60)), prose(20, 12))
    found = find_contaminations(place, documents, passages, rule=RULE, canaries=30)
    assert {row["document_id"] for row in found.rows()} == {"d60"}
    screening = screen_contaminated(place, documents, found)
    measured = {
        (m["part"], m["metric"]): m["value"] for m in measure_contaminations(place, passages, found, screening).rows()
    }
    assert measured["contaminations", "canaries"] == 30
    assert measured["contaminations", "canary_recall"] == 1
    assert measured["contaminations", "passages_looked_for"] == 40
    assert measured["decontamination", "rows_in"] == 61
    assert measured["decontamination", "dropped: contaminated: quiz"] == 1


def test_a_search_that_was_cut_off_goes_on_with_the_shards_it_has(place, question, monkeypatch):
    """The second of three shards fails once; the first is not looked through again."""
    from corpus_prep.contamination import ngrams as contamination

    documents = corpus(place, *[prose(30, n) for n in range(1_500)], prose(30, "q"))  # 512 rows a row group
    monkeypatch.setattr("corpus_prep.corpus.SHARD_DOCUMENTS", 1)
    looked_through, whole = [], contamination.Finder.hits

    def hits(self, numbers, texts):
        looked_through.append(int(numbers[0]))
        if len(looked_through) == 2:
            raise RuntimeError("cut off")
        return whole(self, numbers, texts)

    monkeypatch.setattr(contamination.Finder, "hits", hits)
    with pytest.raises(RuntimeError, match="cut off"):
        find_contaminations(place, documents, question, rule=RULE)
    found = find_contaminations(place, documents, question, rule=RULE)
    assert looked_through == [0, 512, 512, 1024]
    assert {row["document_id"] for row in found.rows()} == {"d1500"}


FORMATS = {
    "list.json": [{"Question": "who went there today", "answer": ["a", "b"]}],
    "data.json": {"version": 1, "data": [{"question": "who went there today", "answer": ["a", "b"]}]},
    "lines.jsonl": [{"context": "Question: who went there today\nAnswer:", "answer": "a b", "aliases": ["c"]}],
    "deep.json": [{"meta": {"id": 3}, "qas": [{"question": "who went there today", "answers": [{"text": "a b"}]}]}],
}


@pytest.mark.parametrize("name", FORMATS)
def test_texts_are_found_in_every_usual_form_of_file(tmp_path, name):
    rows = FORMATS[name]
    lines = "\n".join(map(json.dumps, rows)) if name.endswith("l") else json.dumps(rows)
    (tmp_path / name).write_text(lines)
    found = list(read_passages(Benchmark(name="b", path=str(tmp_path / name))))
    assert sorted(p["text"] for p in found) == ["a b", "who went there today"]
    assert len({p["passage"] for p in found}) == 2


def test_tables_are_texts_and_the_contexts_of_a_row_are_one_more(tmp_path):
    row = {"uid": "x1", "table": {"table": [["", "2019"], ["Sales", "7"]]}, "paragraphs": [{"text": "It grew."}]}
    (tmp_path / "t.json").write_text(json.dumps([row]))
    found = {p["passage"]: (p["kind"], p["text"]) for p in read_passages(Benchmark(name="t", path=str(tmp_path)))}
    assert found == {
        "t.json:0:x1#0": ("context", "2019\nSales 7"),
        "t.json:0:x1#1": ("context", "It grew."),
        "t.json:0:x1#2": ("whole", "2019\nSales 7\n\nIt grew."),
    }


def test_a_file_without_a_known_field_is_refused_with_the_names_that_are_known(tmp_path):
    (tmp_path / "t.json").write_text('[{"frage": "wer"}]')
    with pytest.raises(ValueError, match="has a text in a field named answer"):
        list(read_passages(Benchmark(name="t", path=str(tmp_path / "t.json"))))
    named = Benchmark(name="t", path=str(tmp_path / "t.json"), questions=("frage",))
    assert [p["text"] for p in read_passages(named)] == ["wer"]
