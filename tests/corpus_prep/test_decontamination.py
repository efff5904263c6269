"""Passages of evaluation sets in documents: which count as found, where they are, which
documents they drop."""

import json
import random
from pathlib import Path

import pytest

from corpus_prep.contamination import aligned
from corpus_prep.contamination.benchmarks import Benchmark
from corpus_prep.contamination.ngrams import NgramRule
from corpus_prep.dedup import canaries
from corpus_prep.dedup.minhash import MinHashing
from tasks.corpus.decontaminate import (
    find_contaminations,
    measure_contaminations,
    read_evaluation_sets,
    screen_contaminated,
)
from tasks.stage import Rows, stage
from tests.support.rows import publish, row
from warehouse.schemas import DOCUMENTS
from warehouse.store import Place, Table

RULE = NgramRule()
VOCABULARY = [f"w{number}" for number in range(5_000)]


def prose(num_words: int, seed: object) -> str:
    """Words drawn at random: two texts share a run of five only by design."""
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


def dropped(
    place: Place, passages: Table, *texts: str, rule: NgramRule = RULE, **given
) -> list[str]:
    documents = corpus(place, *texts)
    found = find_contaminations(place, documents, passages, rule=rule, **given)
    return [
        row["document_id"]
        for row in screen_contaminated(place, documents, found).rows()
        if not row["kept"]
    ]


@pytest.fixture
def question(place, tmp_path) -> Table:
    """One question of 30 words: 18 runs of 13."""
    return evaluation_set(place, tmp_path, [{"question": prose(30, "q"), "answer": "42"}])


def test_a_document_that_holds_a_question_is_dropped_and_says_where(place, question):
    text = f"{prose(50, 1)}. {prose(30, 'q').upper()}? {prose(50, 2)}"
    documents = corpus(place, prose(100, 3), text)
    found = find_contaminations(place, documents, question, rule=RULE)
    [row] = found.rows()
    assert (row["document_id"], row["benchmark"], row["passage"], row["share"]) == (
        "d1",
        "quiz",
        "0#0",
        1.0,
    )
    assert (
        row["removes"] and row["text"] == text[row["start"] : row["end"]] == prose(30, "q").upper()
    )
    screening = screen_contaminated(place, documents, found)
    assert [(r["document_id"], r["kept"], r["reason"]) for r in screening.rows()] == [
        ("d0", True, None),
        ("d1", False, "contaminated: quiz"),
    ]


@pytest.mark.parametrize(
    ("num_words", "drops"),
    # 1, 8, 9 and 18 of 18 runs; half are required
    [(13, False), (20, False), (21, True), (30, True)],
)
def test_half_of_a_questions_runs_drop_a_document(place, question, num_words, drops):
    part = " ".join(prose(30, "q").split()[:num_words])
    assert dropped(place, question, f"{prose(40, 1)} {part} {prose(40, 2)}") == (
        ["d0"] if drops else []
    )


def test_a_passage_found_in_part_is_reported_without_dropping(place, question):
    part = " ".join(prose(30, "q").split()[:17])  # 5 runs of 18
    found = find_contaminations(place, corpus(place, f"{prose(40, 1)} {part}"), question, rule=RULE)
    assert [(row["share"], row["removes"], row["text"]) for row in found.rows()] == [
        (5 / 18, False, part)
    ]


def test_a_long_stretch_of_a_longer_passage_is_enough(place, tmp_path):
    passages = evaluation_set(place, tmp_path, [{"context": prose(400, "c")}])
    stretch = prose(400, "c").split()[100:]
    assert dropped(place, passages, f"{prose(9, 1)} {' '.join(stretch[:50])} x", prose(9, 2)) == [
        "d0"
    ]
    assert dropped(place, passages, f"{prose(9, 1)} {' '.join(stretch[:49])} x", prose(9, 2)) == []


def test_short_questions_have_to_stand_whole_and_very_short_ones_are_not_looked_for(
    place, tmp_path
):
    rows = [{"question": prose(8, "eight")}, {"question": prose(4, "four")}]
    passages = evaluation_set(place, tmp_path, rows)
    cut = " ".join(prose(8, "eight").split()[1:])
    texts = [
        f"{prose(20, n)} {part} {prose(20, -n)}"
        for n, part in enumerate([prose(8, "eight"), cut, prose(4, "four")])
    ]
    assert dropped(place, passages, *texts) == ["d0"]


def test_a_question_of_few_words_has_to_stand_alone(place, tmp_path):
    passages = evaluation_set(place, tmp_path, [{"question": f"{prose(5, 'five')}?"}])
    five = prose(5, "five")
    before = prose(20, "before")
    after = prose(20, "after")
    stand = [
        f"{before}\n{five}\n{after}",
        f"{before}. {five.title()}? {after}",
        f'{before} 3) "{five}" | {after}',
        five,
    ]
    within = [f"{before} {five} {after}", f"{before}. {five} {after}", f"{before} {five}? {after}"]
    assert dropped(place, passages, *stand, *within) == ["d0", "d1", "d2", "d3"]


@pytest.mark.parametrize(
    ("question", "alone", "within"),
    [
        ("谁写了这本书", "他走了。谁写了这本书？没有人知道。", "他问谁写了这本书的时候走了。"),
        (
            "¿Quién escribió la novela aquella",
            "Fin. «¿Quién escribió la novela aquella?» Nadie.",
            "Dime quién escribió la novela aquella",
        ),
        (
            "من كتب هذه الرواية القديمة",
            "انتهى؟ من كتب هذه الرواية القديمة؟ لا أحد",
            "قال من كتب هذه الرواية القديمة هنا",
        ),
        (
            "यह पुस्तक किसने कब लिखी",
            "वह गया। यह पुस्तक किसने कब लिखी? कोई नहीं।",
            "कहा यह पुस्तक किसने कब लिखी था",
        ),
    ],
)
def test_sentences_end_with_the_marks_of_their_script(place, tmp_path, question, alone, within):
    passages = evaluation_set(place, tmp_path, [{"question": question}])
    assert dropped(place, passages, alone, within) == ["d0"]


def changed(text: str, *places: int) -> str:
    return " ".join("other" if at in places else word for at, word in enumerate(text.split()))


def test_an_edited_passage_is_found_and_says_where(place, tmp_path):
    """With one word in ten replaced, the longest run left in 60 words is 9, so no run of 13."""
    passages = evaluation_set(place, tmp_path, [{"context": prose(60, "c")}])
    text = f"{prose(40, 1)} {changed(prose(60, 'c'), *range(0, 60, 10))} {prose(40, 2)}"
    documents = corpus(place, prose(100, 3), text)
    for alignment in (False, True):
        found = find_contaminations(place, documents, passages, rule=RULE, alignment=alignment)
        assert found.num_rows == alignment
    [row] = found.rows()
    assert (row["document_id"], row["rule"], row["removes"], row["share"]) == (
        "d1",
        "aligned",
        True,
        54 / 60,
    )
    # from the second word on
    assert row["text"] == changed(prose(60, "c"), *range(10, 60, 10)).partition(" ")[2]


@pytest.mark.parametrize(
    ("kind", "num_words", "make", "drops"),
    [
        ("context", 80, lambda text: " ".join(text.split()[:40]), True),  # the first half
        # an unchanged part with as much information as a sentence: 16 bits a word
        ("context", 200, lambda text: " ".join(text.split()[50:60]), True),
        ("context", 200, lambda text: " ".join(text.split()[50:59]), False),  # 144 of 150 bits
        # a changed part of less than 45 %: only 27 of 30 words are equal
        ("context", 200, lambda text: changed(" ".join(text.split()[50:80]), 5, 15, 25), False),
        ("question", 10, lambda text: changed(text, 4), True),
        ("question", 10, lambda text: changed(text, 4, 9), True),  # 80 % of its words, 128 bits
        ("question", 10, lambda text: changed(text, 3, 6), False),  # no run of four words is left
        ("question", 10, lambda text: changed(text, 2, 4, 6), False),  # 70 %
        # a title that a question quotes: 8 of 10 words, but the document has not the first two
        ("question", 8, lambda text: " ".join(text.split()[2:]), False),  # 75 %
        ("question", 8, lambda text: changed(text, 2), True),
        # answers belong in documents
        ("answer", 40, lambda text: changed(text, *range(0, 40, 10)), False),
    ],
)
def test_passages_in_part_and_questions_with_a_word_changed_are_found(
    place, tmp_path, kind, num_words, make, drops
):
    passages = evaluation_set(
        place, tmp_path, [{"question": prose(30, "q"), kind: prose(num_words, kind)}]
    )
    texts = [f"{prose(40, 1)} {make(prose(num_words, kind))} {prose(40, 2)}", prose(90, 3)]
    assert dropped(place, passages, *texts, alignment=True) == (["d0"] if drops else [])


def test_phrases_of_many_documents_say_nothing_however_long_they_are(place, tmp_path):
    phrase = prose(30, "phrase")
    passages = evaluation_set(place, tmp_path, [{"context": f"{phrase} {prose(20, 'own')}"}])
    texts = [f"{prose(30, n)} {changed(phrase, 12, 25)} {prose(30, -n)}" for n in range(6)]
    assert dropped(place, passages, *texts, alignment=True) == []
    assert dropped(place, passages, *texts[:5], alignment=True) == [f"d{n}" for n in range(5)]


def test_a_context_of_many_questions_is_found_for_each_of_them(place, tmp_path):
    """A file with a question a row repeats the context: its words are no common phrase for that."""
    rows = [{"question": f"{prose(9, ('q', n))}?", "context": prose(200, "c")} for n in range(9)]
    passages = evaluation_set(place, tmp_path, rows)
    part = changed(prose(200, "c"), *range(0, 200, 10))
    documents = corpus(place, prose(90, "clean"), f"{prose(40, 1)} {part} {prose(40, 2)}")
    found = find_contaminations(place, documents, passages, rule=RULE, alignment=True)
    assert [(row["document_id"], row["passage"]) for row in found.rows()] == [
        ("d1", f"{n}#1") for n in range(9)
    ]


def test_a_question_is_found_without_its_options_unless_many_items_ask_it(place):
    texts = [prose(15, "own"), prose(15, "stock"), prose(15, "stock")]
    items = publish(
        place,
        "items",
        *(
            row("items", task_id=f"i{n}", text=text, options=[prose(20, (n, o)) for o in range(4)])
            for n, text in enumerate(texts)
        ),
        label="quiz",
    )
    passages = read_evaluation_sets(place, [], items, identity="")
    texts = [f"{prose(30, n)} {text} {prose(30, -n)}" for n, text in enumerate(texts)]
    whole = " ".join([prose(15, "stock"), *(prose(20, (1, o)) for o in range(4))])
    assert dropped(place, passages, *texts, f"{prose(9, 9)} {whole}") == ["d0", "d3"]


def test_short_answers_and_headings_may_stand_in_documents(place, tmp_path):
    rows = [{"question": prose(20, "q"), "answer": prose(12, "a"), "context": prose(12, "heading")}]
    passages = evaluation_set(place, tmp_path, rows)
    assert (
        dropped(
            place,
            passages,
            f"{prose(9, 1)} {prose(12, 'a')} x",
            f"{prose(12, 'heading')} {prose(9, 2)}",
        )
        == []
    )


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
    other = find_contaminations(
        place, corpus(place, prose(30, "q"), label="one"), question, rule=RULE, label="one"
    )
    earlier = screen_contaminated(place, documents, other, label="one")
    found = find_contaminations(place, documents, question, rule=RULE, screened=[earlier])
    assert {row["document_id"] for row in found.rows()} == {"d1"}
    assert screen_contaminated(place, documents, found, screened=[earlier]).num_rows == 1


def test_a_near_copy_of_a_context_is_found_by_minhash(place, tmp_path):
    parts = [prose(60, "one"), prose(60, "two")]
    passages = evaluation_set(
        place, tmp_path, [{"question": prose(20, "q"), "contexts": [{"text": t} for t in parts]}]
    )
    near = " ".join(parts).split()
    for at in (10, 60):
        near[at] = "changed"
    documents = corpus(place, " ".join(near), prose(120, 1))
    # finds nothing: no run of 60 words is left
    strict = NgramRule(ngram=60, min_words=60, min_span_words=100)
    found = find_contaminations(place, documents, passages, rule=strict, likeness=MinHashing())
    [row] = found.rows()
    # 116 shingles of 5 words each; each of 2 changes spoils 5: 106 in common of 2 * 116 - 106.
    assert (row["document_id"], row["rule"], row["start"]) == ("d0", "minhash", None)
    assert row["share"] == pytest.approx(106 / 126)


def test_planted_passages_are_measured_and_leave_no_row(place, tmp_path, monkeypatch):
    sampled = []  # how many documents the frequency of words is estimated from

    def sample(corpus, count, seed):
        sampled.append(corpus.num_documents)
        return canaries.sample(corpus, count, seed)

    monkeypatch.setattr(aligned, "sample", sample)
    rows = [{"question": prose(8 + number, number), "answer": "yes"} for number in range(40)]
    rows += [
        {"context": prose(70, f"context {n}"), "question": prose(6, f"short {n}")}
        for n in range(10)
    ]
    passages = evaluation_set(place, tmp_path, rows)
    documents = corpus(place, *(prose(80, f"clean {n}") for n in range(60)), prose(20, 12))
    found = find_contaminations(place, documents, passages, rule=RULE, alignment=True, canaries=40)
    assert {row["document_id"] for row in found.rows()} == {"d60"}
    assert sampled == [61]  # canaries change nothing about the corpus's own documents
    screening = screen_contaminated(place, documents, found)
    measured = {
        (m["part"], m["metric"]): m["value"]
        for m in measure_contaminations(place, passages, found, screening).rows()
    }
    assert measured["contaminations", "canaries"] == 40
    for kind in ("verbatim", "half", "short"):
        assert measured["contaminations", f"canaries: {kind}"] == 10
        assert measured["contaminations", f"canary_recall: {kind}"] == 1
    # missed if both ends of a short one changed
    assert measured["contaminations", "canary_recall: edited"] >= 0.8
    assert measured["contaminations", "passages_looked_for"] == 60
    assert measured["decontamination", "rows_in"] == 61
    assert measured["decontamination", "dropped: contaminated: quiz"] == 1


def test_passages_in_a_script_without_blanks_are_compared_and_planted(place, tmp_path):
    def chinese(length: int, seed: object) -> str:
        rng = random.Random(repr(seed))
        return "".join(chr(rng.randrange(0x4E00, 0x9000)) for _ in range(length))

    rows = [{"context": chinese(100, ("c", n)), "question": chinese(20, n)} for n in range(4)]
    passages = evaluation_set(place, tmp_path, rows)
    near = chinese(100, ("c", 0))
    near = f"{near[:50]}改{near[51:]}"
    documents = corpus(place, near, *(chinese(200, ("d", n)) for n in range(12)))
    strict = NgramRule(ngram=60, min_words=60, min_span_words=200)
    found = find_contaminations(place, documents, passages, rule=strict, likeness=MinHashing())
    assert [(row["document_id"], row["rule"]) for row in found.rows()] == [("d0", "minhash")]
    found = find_contaminations(
        place, documents, passages, rule=RULE, alignment=True, canaries=9, label="planted"
    )
    screening = screen_contaminated(place, documents, found, label="planted")
    measured = measure_contaminations(place, passages, found, screening, label="planted")
    recall = {row["metric"]: row["value"] for row in measured.rows()}
    for kind in ("verbatim", "edited", "half"):
        assert recall[f"canaries: {kind}"] == 3
        assert recall[f"canary_recall: {kind}"] == 1


def test_a_search_that_was_cut_off_goes_on_with_the_shards_it_has(place, question, monkeypatch):
    """The second of three shards fails once; the first is not searched again."""
    from corpus_prep.contamination import ngrams as contamination

    # 512 rows per row group
    documents = corpus(place, *[prose(30, n) for n in range(1_500)], prose(30, "q"))
    monkeypatch.setattr("corpus_prep.corpus.SHARD_DOCUMENTS", 1)
    looked_through = []
    whole = contamination.Finder.hits

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
