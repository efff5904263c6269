"""Files of questions that users bring, in the forms that such files have."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from corpus_prep.read.rows import read_rows
from flows.benchmarks import find
from tasks.benchmarks.items import items_of
from tasks.benchmarks.own_file import columns_of, is_file_of_rows

LONG = "word " * 40_000 + "end"


def items(path: Path) -> list[tuple]:
    return [
        (item["task_id"], item["text"], item["references"], item["context"], item["options"])
        for item in items_of(read_rows(path), path.stem, columns_of(path))
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "plain.csv",
            "question,answer\nWho wrote it?,Ann Lee\n",
            [("plain-0", "Who wrote it?", ["Ann Lee"], None, None)],
        ),
        (
            "excel.csv",  # a byte order mark, capitals, and columns that mean nothing here
            "\ufeffID,Question,Notes,Answer,Passage\n7,Who?,x,Ann,Ann wrote it.\n",
            [("excel-7", "Who?", ["Ann"], "Ann wrote it.", None)],
        ),
        (
            "lists.csv",
            'query,answers\nWhere?,"[""Rome"", ""Roma""]"\n',
            [("lists-0", "Where?", ["Rome", "Roma"], None, None)],
        ),
        (
            "mixed.csv",  # a list in one column, or a single text in the other
            'query,answers,answer\nWhere?,"[""Rome"", ""Roma""]",\nWho?,,Ann\n',
            [
                ("mixed-0", "Where?", ["Rome", "Roma"], None, None),
                ("mixed-1", "Who?", ["Ann"], None, None),
            ],
        ),
        (
            "pandas.csv",
            "question,answers\nWhere?,\"['Rome', 'Roma']\"\n",
            [("pandas-0", "Where?", ["Rome", "Roma"], None, None)],
        ),
        (
            "squad.jsonl",
            json.dumps(
                {
                    "question": "Who won?",
                    "context": "They won.",
                    "answers": {"text": ["Denver Broncos", "Broncos"], "answer_start": [4, 4]},
                }
            ),
            [("squad-0", "Who won?", ["Denver Broncos", "Broncos"], "They won.", None)],
        ),
        (
            "objects.jsonl",
            json.dumps(
                {
                    "question": [{"role": "user", "content": "Who?"}],
                    "documents": [{"title": "T", "text": "a"}, {"title": "U", "text": "b"}],
                    "choices": {"text": ["one", "two"], "label": ["A", "B"]},
                    "answer": "B",
                }
            ),
            [("objects-0", "Who?", ["B"], "a\n\nb", ["one", "two"])],
        ),
        (
            "late.csv",  # the first hundred answers are lists, the last is a text
            "query,answers\n" + 'Where?,"[""Rome""]"\n' * 100 + "Who?,Ann\n",
            [
                *((f"late-{n}", "Where?", ["Rome"], None, None) for n in range(100)),
                ("late-100", "Who?", ["Ann"], None, None),
            ],
        ),
        (
            "tabs.tsv",
            "question\tanswer\nHow many?\t12\n",
            [("tabs-0", "How many?", ["12"], None, None)],
        ),
        (
            "lines.jsonl",
            json.dumps({"question": "Who?", "answers": ["Ann"], "context": ["a", "b"]})
            + "\n"
            + json.dumps({"question": "When?", "answer": 1972})
            + "\n",
            [
                ("lines-0", "Who?", ["Ann"], "a\n\nb", None),
                ("lines-1", "When?", ["1972"], None, None),
            ],
        ),
        (
            "choice.json",
            json.dumps([{"problem": "Which?", "choices": ["one", "two"], "answer": "two"}]),
            [("choice-0", "Which?", ["B"], None, ["one", "two"])],
        ),
        (
            "cells.csv",  # options in one cell; the second question has none
            'question,options,answer\nWhich?,"[""one"", 2]",2\nWho?,,Ann\n',
            [
                ("cells-0", "Which?", ["B"], None, ["one", "2"]),
                ("cells-1", "Who?", ["Ann"], None, None),
            ],
        ),
        (
            "long.csv",  # more letters than Python's csv takes by default
            f"question,answer,context\nWho?,Ann,{LONG}\n",
            [("long-0", "Who?", ["Ann"], LONG, None)],
        ),
    ],
)
def test_columns_are_told_by_their_names(tmp_path, name, text, expected):
    path = tmp_path / name
    path.write_text(text)
    assert items(path) == expected


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("gone.csv", None, r"there is no file .*gone\.csv"),
        ("other.csv", "a,b\n1,2\n", "has the columns a, b: name one of them question or query"),
        ("empty.jsonl", "", "has no rows with named columns"),
        ("numbers.jsonl", "1\n2\n", "has no rows with named columns"),
        (
            "hotpot.jsonl",
            json.dumps(
                {"question": "Who?", "answer": "A", "context": {"title": ["T"], "s": [["a"]]}}
            ),
            r'holds objects with the fields title, s, .*columns\.context = \["context\.FIELD"',
        ),
        ("broken.jsonl", '{"question": "Why?"\n', r"broken\.jsonl cannot be read"),
    ],
)
def test_a_file_that_is_none_of_questions_is_refused_with_what_it_has(tmp_path, name, text, why):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=why):
        columns_of(path)


def test_an_object_after_the_rows_that_were_looked_at_is_refused(tmp_path):
    rows = [{"question": "Who?", "answer": "Ann"}] * 100
    late = {"question": "Who?", "answer": {"value": "Ann"}}
    path = tmp_path / "late.jsonl"
    path.write_text("\n".join(map(json.dumps, [*rows, late])))
    with pytest.raises(ValueError, match="an object with the fields value is no text"):
        items(path)


def test_a_compressed_file_that_was_cut_off_is_named(tmp_path):
    path = tmp_path / "cut.jsonl.gz"
    lines = "".join(f'{{"question": "Who is {i}?"}}\n' for i in range(1_000))
    path.write_bytes(gzip.compress(lines.encode())[:-100])
    with pytest.raises(ValueError, match=r"cut\.jsonl\.gz cannot be read: Compressed file ended"):
        items(path)
    path.write_bytes(lines.encode())
    with pytest.raises(ValueError, match=r"cut\.jsonl\.gz cannot be read: Not a gzipped file"):
        columns_of(path)


def test_lines_may_be_compressed(tmp_path):
    row = {"question": "Who?", "answer": "Ann"}
    line = json.dumps(row).encode()
    with gzip.open(tmp_path / "a.jsonl.gz", "wb") as stream:
        stream.write(line)
    with pa.output_stream(str(tmp_path / "a.jsonl.zst"), compression="zstd") as stream:
        stream.write(line)
    for name in ("a.jsonl.gz", "a.jsonl.zst"):
        assert is_file_of_rows(name)
        [(_, text, references, _, _)] = items(tmp_path / name)
        assert (text, references) == ("Who?", ["Ann"])


def test_a_file_is_not_taken_for_one_of_its_name_in_the_folder_of_benchmarks(tmp_path, monkeypatch):
    for folder, question in (("benchmarks", "Other?"), ("mine", "Mine?")):
        (tmp_path / folder).mkdir()
        row = {"question": question, "answer": "x"}
        (tmp_path / folder / "test.jsonl").write_text(json.dumps(row))
    monkeypatch.chdir(tmp_path)
    source, _ = find("mine/test.jsonl").located(tmp_path / "benchmarks")
    assert Path(source) == tmp_path / "mine" / "test.jsonl"


def test_a_file_is_a_benchmark_by_its_path(tmp_path):
    (tmp_path / "mine.csv").write_text("question,answer\nWho?,Ann\n")
    entry = find(str(tmp_path / "mine.csv"))
    assert (entry.name, entry.prompt, entry.scorer) == ("mine", "short", "short")
    (tmp_path / "bare.csv").write_text("question\nWho?\n")
    with pytest.raises(ValueError, match="has no column answer, which says what is right"):
        find(str(tmp_path / "bare.csv"))
