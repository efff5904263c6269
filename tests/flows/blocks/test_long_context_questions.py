"""Held-out questions about long contexts, from a file."""

import json

import pytest

from flows.blocks.long_context import QuestionSet
from tasks.corpus.documents import corpus_identity, read_documents
from tasks.corpus.passages import found_contexts, with_passages
from tests.support.rows import publish, row

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
        ({"id": 2}, r"quiz\.jsonl, row 2: quiz-0 has no question: its fields are id"),
        ({**WHO, "task_type": "poetry"}, r"quiz\.jsonl, row 2 has no task_type of general_qa"),
    ],
)
def test_the_first_wrong_line_is_named(place, tmp_path, row, says):
    with pytest.raises(ValueError, match=says):
        QuestionSet.open(place, write(tmp_path, WHO, row), {"general_qa"})


def test_a_benchmark_that_is_no_file_says_what_to_give(place):
    with pytest.raises(
        ValueError, match=r"there is no file nowhere: give a file of questions \(\.json,"
    ):
        QuestionSet.open(place, "nowhere", {"general_qa"})


DOCUMENTS = {
    "rivers": "The Rhine rises in the Alps and ends in the North Sea.",
    "towns": "Bern is the seat of the Swiss government.",
    "bread": "Rye is sown in autumn and baked with sour dough.",
}


def corpus(place, tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = ({"id": name, "title": name, "text": text} for name, text in DOCUMENTS.items())
    path.write_text("\n".join(map(json.dumps, rows)))
    return read_documents(
        place, str(path), identity=corpus_identity(str(path)), embedding=None, label="corpus"
    )


def test_questions_without_contexts_get_the_documents_that_are_most_like_them(place, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("question,answer\nWhere does the Rhine end?,North Sea\nWho bakes rye?,nobody\n")
    documents = corpus(place, tmp_path)
    opened = QuestionSet.open(place, str(path), {"general_qa"}, documents=documents)
    assert [(r["document_id"], r["text"]) for r in opened.contexts.rows()] == [
        ("mine-1", f"[rivers] {DOCUMENTS['rivers']}"),
        ("mine-2", f"[bread] {DOCUMENTS['bread']}"),
    ]
    both = found_contexts(place, opened.tasks, documents, k=2, label="two").rows()
    # the second question has a word of one document only
    assert [r["text"].count("[") for r in both] == [2, 1]
    with pytest.raises(ValueError, match="has no column context, and there are no documents"):
        QuestionSet.open(place, str(path), {"general_qa"})


def test_items_of_a_benchmark_keep_their_own_contexts(place, tmp_path):
    items = publish(
        place,
        "items",
        row("items", task_id="a", text="Where does the Rhine end?", context=None),
        row("items", task_id="b", text="Where does the Rhine end?", context="In Basel."),
    )
    found = with_passages(place, items, corpus(place, tmp_path), k=1).rows()
    assert [r["context"] for r in found] == [f"[rivers] {DOCUMENTS['rivers']}", "In Basel."]
