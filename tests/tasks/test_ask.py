"""Prompts are rendered from the rows that they are about, and no other rows of a corpus are
read."""

from tasks.ask import ask
from tasks.prompt import Prompt, Template
from tests.support.rows import publish, row


def watched_prompt():
    """A prompt about nothing, and the rows of each table that it was given."""
    given = []

    def about(tasks, documents, samples):
        given.extend((tasks, documents, samples))
        return iter([])

    return given, Prompt("r", (Template("t", "{{ text }}"),), about)


def test_of_a_corpus_only_the_documents_that_others_name_are_read(place):
    corpus = publish(
        place,
        "documents",
        *(row("documents", document_id=f"d{i}", text=str(i)) for i in range(2000)),
    )
    tasks = publish(
        place,
        "tasks",
        row("tasks", task_id="t", document_id="d1999", evidence=["d1999", "d7", "gone"]),
    )
    samples = publish(
        place, "samples", row("samples", sample_id="s", document_id="d3", document_ids=["d5", "d3"])
    )
    given, prompt = watched_prompt()
    ask(place, prompt, tasks=tasks, documents=[corpus], samples=samples)
    assert [[r.get("document_id") for r in rows] for rows in given] == [
        ["d1999"],
        ["d3", "d5", "d7", "d1999"],
        ["d3"],
    ]
    assert [r["text"] for r in given[1]] == ["3", "5", "7", "1999"]


def about_texts(tasks):
    return ({"text": task["text"]} for task in tasks)
