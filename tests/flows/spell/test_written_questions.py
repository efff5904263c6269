"""Which of the questions that another model wrote are taken."""

from __future__ import annotations

from flows.spell.steps import Questions
from flows.spell.written_questions import NO_WORDS, NOT_IN_TEXT, NOT_NEEDED, QuestionLists, _take
from tests.support.rows import publish, row
from warehouse.store import Place


def questions(place: Place, answers: list[str]) -> Questions:
    """One question with each answer, about a document of its own that says "The value is 7"."""
    numbers = range(len(answers))
    text = "The value is 7, and a @ b multiplies."
    documents = [row("documents", document_id=f"d{n}", title=f"T{n}", text=text) for n in numbers]
    samples = [
        row("samples", sample_id=f"s{n}", document_id=f"d{n}", cluster=n, document_ids=[f"d{n}"])
        for n in numbers
    ]
    said = [{"role": "user", "content": "Ask."}]
    prompts = [row("prompts", prompt_id=f"p{n}", sample_id=f"s{n}", messages=said) for n in numbers]
    tasks = [
        row("tasks", task_id=f"t{n}", prompt_id=f"p{n}", text=f"What is it in T{n}?", reference=ref)
        for n, ref in enumerate(answers)
    ]
    return Questions(
        publish(place, "tasks", *tasks),
        publish(place, "documents", *documents),
        (publish(place, "samples", *samples),),
        (publish(place, "prompts", *prompts),),
    )


def test_a_question_whose_answer_is_a_sign_is_dropped_and_the_others_are_taken(place: Place):
    written = QuestionLists()
    _take(written, questions(place, ["7", "@", "**", "8"]), 4, 0, None)
    assert [question["answer"] for question in written.questions] == ["7"]
    assert written.dropped == {NO_WORDS: 2, NOT_IN_TEXT: 1}
    assert (written.num_asked, written.num_usable) == (4, 1)


def test_good_questions_that_are_not_needed_are_counted(place: Place):
    written = QuestionLists()
    _take(written, questions(place, ["7"] * 5), 2, 0, None)
    assert len(written.questions) == 2 and written.dropped == {NOT_NEEDED: 3}
    assert (written.num_asked, written.num_usable) == (5, 5)
