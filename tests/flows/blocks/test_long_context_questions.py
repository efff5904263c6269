"""Held-out questions about long contexts, from a file."""

import json

import pytest

from flows.blocks.long_context import QuestionSet

WHO = {
    "id": 1,
    "task_type": "general_qa",
    "question": "Who?",
    "answer": 12,
    "context": "Ada and 12 others.",
}


def write(folder, *rows: dict) -> str:
    path = folder / "quiz.jsonl"
    path.write_text("\n\n".join(json.dumps(row) for row in rows))
    return str(path)


def test_tasks_and_contexts_of_a_file_have_the_same_ids(place, tmp_path):
    choice = {
        **WHO,
        "id": "b",
        "task_type": "multiple_choice",
        "answer": "A",
        "options": ["Ada", "Bo", "Cy", "Di"],
    }
    opened = QuestionSet.open(
        place, write(tmp_path, WHO, choice), {"general_qa", "multiple_choice"}
    )
    tasks = opened.tasks
    contexts = opened.contexts
    assert [(r["task_id"], r["text"], r["reference"], r["options"]) for r in tasks.rows()] == [
        ("1", "Who?", "12", None),
        ("b", "Who?", "A", ["Ada", "Bo", "Cy", "Di"]),
    ]
    assert (
        [r["document_id"] for r in tasks.rows()]
        == [r["document_id"] for r in contexts.rows()]
        == ["1", "b"]
    )
    assert [(r["text"], r["num_chars"]) for r in contexts.rows()] == [
        ("Ada and 12 others.", 18)
    ] * 2


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"id": 2}, "quiz.jsonl, line 2 lacks answer, context, question, task_type"),
        ({**WHO, "task_type": "poetry"}, "quiz.jsonl, line 2 has no task_type of general_qa"),
    ],
)
def test_the_first_wrong_line_is_named(place, tmp_path, row, says):
    with pytest.raises(ValueError, match=says):
        QuestionSet.open(place, write(tmp_path, WHO, row), {"general_qa"})


def test_a_benchmark_that_is_no_file_says_what_to_give(place):
    with pytest.raises(
        ValueError, match=r"there is no file nowhere: give a \.jsonl file of questions"
    ):
        QuestionSet.open(place, "nowhere", {"general_qa"})
