"""Items of benchmarks: every entry of the registry, read from a row of its real format."""

import json
import math
from pathlib import Path

import pytest

from flows.benchmarks import find, names
from tasks.benchmarks.items import Columns, items_of, read_items

ROWS = json.loads((Path(__file__).parents[2] / "data" / "benchmark_rows.json").read_text())
ASKED = [name for name in names() if find(name).columns]


def items(name: str, *rows: dict) -> list[dict]:
    columns = find(name).columns
    assert columns is not None
    return list(items_of(rows, name, columns))


def test_every_benchmark_that_is_asked_here_has_a_row_to_be_tested_on():
    assert set(ROWS) == set(ASKED)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_becomes_the_item_that_it_is(name):
    first, *_ = items(name, ROWS[name]["row"])
    assert {key: first[key] for key in ROWS[name]["item"]} == ROWS[name]["item"]


def test_a_row_may_hold_several_items():
    found = items("tatqa", ROWS["tatqa"]["row"])
    assert [(i["task_id"], i["references"]) for i in found] == [
        ("tatqa-q1", ["1.2"]),
        ("tatqa-q2", ["2.4"]),
    ]
    assert json.loads(found[1]["given"]) == {
        "answer": 2.4,
        "scale": "million",
        "answer_type": "arithmetic",
    }


def test_options_whose_right_one_stands_first_are_shuffled_the_same_way_every_time():
    rows = [{**ROWS["gpqa-diamond"]["row"], "Record ID": f"rec{i}"} for i in range(40)]
    found = items("gpqa-diamond", *rows)
    assert all(i["options"]["ABCD".index(i["references"][0])] == "right" for i in found)
    assert {i["references"][0] for i in found} == {"A", "B", "C", "D"}
    assert found == items("gpqa-diamond", *rows)
    (marked,) = items("truthfulqa", ROWS["truthfulqa"]["row"])
    assert marked["options"]["ABC".index(marked["references"][0])] == "nothing"


def test_a_row_that_lacks_its_answer_is_an_error_that_names_the_row():
    with pytest.raises(ValueError, match="nq-1 has no answer: its fields are question"):
        items("nq", ROWS["nq"]["row"], {"question": "who?"})
    with pytest.raises(ValueError, match="openbookqa-0: '7' is none of the 4 options"):
        items("openbookqa", {**ROWS["openbookqa"]["row"], "gold": 7})


@pytest.mark.parametrize("missing", [None, "", " ", [], math.nan, math.inf])
def test_a_missing_value_is_neither_a_question_nor_an_answer(missing):
    """pandas writes NaN for it."""
    columns = Columns(question=("q",), answers=("a",))
    with pytest.raises(ValueError, match="b-0 has no answer: its a is empty"):
        list(items_of([{"q": "Who?", "a": missing}], "b", columns))
    with pytest.raises(ValueError, match="b-0 has no question: its q is empty"):
        list(items_of([{"q": missing, "a": "Ann"}], "b", columns))
    [item] = items_of([{"q": "Who?", "a": ["Ann", missing]}], "b", columns)
    assert item["references"] == ["Ann"]


@pytest.mark.parametrize("row", [[1, 2], 5, "text", None])
def test_a_row_that_is_no_object_is_named(row):
    columns = Columns(question=("q",))
    with pytest.raises(ValueError, match="row 2 of b is no object: "):
        list(items_of([{"q": "Who?"}, row], "b", columns))


def test_an_unpaired_surrogate_can_be_stored(place, tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text('{"q": "Who is \\ud800?", "a": "\\ud83d\\ude00"}\n')
    columns = Columns(question=("q",), answers=("a",))
    [item] = read_items(place, str(path), identity="x", benchmark="b", columns=columns).rows()
    assert (item["text"], item["references"]) == ("Who is \ufffd?", ["\U0001f600"])


def test_a_number_is_a_place_though_an_option_looks_like_it():
    (asked,) = items("mmlu", {**ROWS["mmlu"]["row"], "choices": ["2", "3", "4", "12"], "answer": 2})
    assert (asked["options"], asked["references"]) == (["2", "3", "4", "12"], ["C"])
    (asked,) = items(
        "arc-challenge",
        {**ROWS["arc-challenge"]["row"], "choices": {"text": ["3", "2", "1", "4"]}},
    )
    assert asked["references"] == ["D"]  # its key is "4"
    (asked,) = items(
        "supergpqa",
        {**ROWS["supergpqa"]["row"], "options": ["B", "A", "AB"], "answer_letter": "B"},
    )
    assert asked["references"] == ["B"]


@pytest.mark.parametrize(
    ("options", "answer", "right"),
    [
        (["2", "3", "4"], "3", "B"),  # a text is looked for among the options first
        (["2", "3", "4"], 0, "A"),
        ([2, 3, 4], 4, "C"),  # numbers among numbers are what they say
        ([2.0, 3.0], 3, "B"),
        (["no", "yes"], True, "B"),
        (["one", "two"], "(B)", "B"),
        (["", "two", None, "four"], 3, "D"),  # empty options keep their places
    ],
)
def test_the_right_option_is_told_by_what_the_answer_is(options, answer, right):
    columns = Columns(question=("q",), options=("o",), answers=("a",))
    [item] = items_of([{"q": "Which?", "o": options, "a": answer}], "b", columns)
    assert item["references"] == [right] and len(item["options"]) == len(options)


@pytest.mark.parametrize("answer", ["AB", ".", "()", "three", "C", -1])
def test_an_answer_that_is_no_option_is_an_error(answer):
    columns = Columns(question=("q",), options=("o",), answers=("a",))
    with pytest.raises(ValueError, match=r"b-0: '.*' is none of the 2 options"):
        list(items_of([{"q": "Which?", "o": ["one", "two"], "a": answer}], "b", columns))


def test_columns_of_options_that_a_row_does_not_use_are_no_options():
    columns = Columns(question=("q",), options=("a", "b", "c"), answers=("right",))
    row = {"q": "Which?", "a": "one", "b": "two", "c": "", "right": "B"}
    [item] = items_of([row], "b", columns)
    assert (item["options"], item["references"]) == (["one", "two"], ["B"])


def test_items_that_share_an_id_are_told_apart_and_equal_ones_are_asked_once(
    place, tmp_path, caplog
):
    path = tmp_path / "questions.jsonl"
    rows = [("d1", "Who?", "Ann"), ("d1", "When?", "1972"), ("d2", "Who?", "Bo")]
    rows += [("d1", "Who?", "Ann")]
    path.write_text(
        "".join(json.dumps({"id": i, "question": q, "answer": a}) + "\n" for i, q, a in rows)
    )
    columns = Columns(id="id", question=("question",), answers=("answer",))
    read = read_items(place, str(path), identity="x", benchmark="b", columns=columns)
    assert [(row["task_id"], row["references"]) for row in read.rows()] == [
        ("b-d1", ["Ann"]),
        ("b-d1#2", ["1972"]),
        ("b-d2", ["Bo"]),
    ]
    assert "items left out, as an equal one has their id: 1" in caplog.text
    assert "another id" not in caplog.text


def test_equal_items_without_ids_are_counted(place, tmp_path, caplog):
    path = tmp_path / "questions.jsonl"
    path.write_text('{"q": "Who?"}\n' * 3 + '{"q": "When?"}\n')
    columns = Columns(question=("q",))
    read = read_items(place, str(path), identity="x", benchmark="b", columns=columns)
    assert read.num_rows == 4
    assert "items that equal an earlier one of another id: 2" in caplog.text


def test_rows_can_be_chosen_by_a_field():
    columns = Columns(question=("q",), only={"language": "en"})
    rows = [{"q": "one", "language": "zh"}, {"q": "two", "language": "en"}]
    assert [i["task_id"] for i in items_of(rows, "b", columns)] == ["b-1"]


def test_a_subsample_is_drawn_by_seed_and_keeps_the_order(place, tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps({"q": f"question {i}"}) + "\n" for i in range(50)))
    about = {"identity": "x", "benchmark": "b", "columns": Columns(question=("q",))}
    whole = [row["task_id"] for row in read_items(place, str(path), **about).rows()]
    drawn = [
        row["task_id"] for row in read_items(place, str(path), most=10, label="ten", **about).rows()
    ]
    again = [
        row["task_id"]
        for row in read_items(place, str(path), most=10, label="again", **about).rows()
    ]
    assert len(drawn) == 10 and drawn == again == [name for name in whole if name in drawn]


def test_a_file_that_is_not_the_entrys_is_refused_unless_it_is_named(tmp_path):
    (tmp_path / "nq_open").mkdir()
    file = tmp_path / "nq_open" / "NQ-open.dev.jsonl"
    file.write_text('{"question": "who?", "answer": ["Ann"]}\n')
    with pytest.raises(ValueError, match="is not the nq that its entry names"):
        find("nq").located(tmp_path)
    assert find("nq").located(tmp_path, str(file))[0] == str(file)


def test_a_dataset_without_a_pinned_revision_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no revision of hf:math-ai/minervamath\S* is pinned"):
        find("minerva").located(tmp_path)
    source, revision = find("gsm8k").located(tmp_path)
    assert source == f"hf:openai/gsm8k?config=main&split=test&revision={revision}"
