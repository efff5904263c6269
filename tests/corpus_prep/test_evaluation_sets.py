"""Evaluation sets as passages: what counts as a text, in every usual file format."""

import json

import pytest

from corpus_prep.contamination.benchmarks import Benchmark, read_passages

FORMATS = {
    "list.json": [{"Question": "who went there today", "answer": ["a", "b"]}],
    "data.json": {
        "version": 1,
        "data": [{"question": "who went there today", "answer": ["a", "b"]}],
    },
    "lines.jsonl": [
        {"context": "Question: who went there today\nAnswer:", "answer": "a b", "aliases": ["c"]}
    ],
    "deep.json": [
        {
            "meta": {"id": 3},
            "qas": [{"question": "who went there today", "answers": [{"text": "a b"}]}],
        }
    ],
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
    row = {
        "uid": "x1",
        "table": {"table": [["", "2019"], ["Sales", "7"]]},
        "paragraphs": [{"text": "It grew."}],
    }
    (tmp_path / "t.json").write_text(json.dumps([row]))
    found = {
        p["passage"]: (p["kind"], p["text"])
        for p in read_passages(Benchmark(name="t", path=str(tmp_path)))
    }
    assert found == {
        "t.json:0:x1#0": ("context", "2019\nSales 7"),
        "t.json:0:x1#1": ("context", "It grew."),
        "t.json:0:x1#2": ("whole", "2019\nSales 7\n\nIt grew."),
    }


def test_a_question_behind_its_passage_in_one_field_is_a_passage_of_its_own(tmp_path):
    row = {
        "context": (
            "Icing sugar is ground.\nIt is fine.\nQuestion: is icing sugar like powdered"
            " sugar?\nAnswer:"
        )
    }
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    found = [
        (p["kind"], p["text"])
        for p in read_passages(Benchmark(name="t", path=str(tmp_path / "t.jsonl")))
    ]
    assert found[1:] == [("question", "is icing sugar like powdered sugar?")]


def test_rows_of_a_csv_file_are_read_by_the_names_in_its_first_line(tmp_path):
    (tmp_path / "t.csv").write_text('question,A,answer\n"who, then, went",x,he\n')
    found = [p["text"] for p in read_passages(Benchmark(name="t", path=str(tmp_path / "t.csv")))]
    assert found == ["who, then, went", "he"]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("t.csv", 'question\nwho\n"when\nwhere\n', "a quote is never closed"),
        ("t.csv", "question,answer\nwho, then,he\n", "row 1 has more values than the first line"),
        ("t.json", '"who"', "one value instead of an object or a list"),
    ],
)
def test_rows_that_would_be_lost_or_cut_off_are_an_error(tmp_path, name, text, why):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=rf"{name} cannot be read: .*{why}"):
        list(read_passages(Benchmark(name="t", path=str(tmp_path / name))))


def test_a_file_without_a_known_field_is_refused_with_the_names_that_are_known(tmp_path):
    (tmp_path / "t.json").write_text('[{"frage": "wer"}]')
    with pytest.raises(ValueError, match="has a text in a field named answer"):
        list(read_passages(Benchmark(name="t", path=str(tmp_path / "t.json"))))
    named = Benchmark(name="t", path=str(tmp_path / "t.json"), questions=("frage",))
    assert [p["text"] for p in read_passages(named)] == ["wer"]
