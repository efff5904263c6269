"""Passages of a corpus as the contexts of questions that have none."""

from __future__ import annotations

from corpus_prep.read.titles import titled
from corpus_prep.search.index import load_index
from tasks.stage import Rows, stage
from warehouse.schemas import DOCUMENTS, ITEMS, Item, Task
from warehouse.store import Table


@stage(DOCUMENTS)
def found_contexts(tasks: Table, documents: Table, *, k: int) -> Rows:
    """Yield a context for every question: the `k` documents most similar to it, best first.

    `documents` have an index in their files. A context has the id of its task.
    """
    rows = tasks.rows(Task)
    contexts = passages_for([row["text"] or "" for row in rows], documents, k)
    for row, context in zip(rows, contexts, strict=True):
        yield {
            "document_id": row["task_id"],
            "text": context,
            "source": documents.address,
            "num_chars": len(context),
        }


@stage(ITEMS)
def with_passages(items: Table, documents: Table, *, k: int) -> Rows:
    """Yield the items of a benchmark with contexts as in `found_contexts`; an item that has a
    context keeps it."""
    rows = items.rows(Item)
    contexts = passages_for([row["text"] for row in rows], documents, k)
    for row, context in zip(rows, contexts, strict=True):
        yield {**row, "context": row["context"] or context}


def passages_for(questions: list[str], documents: Table, k: int) -> list[str]:
    """For each question, the texts of the `k` documents most similar to it, each with its title,
    best first.

    Raises ValueError for documents without an index.
    """
    # on a GPU, the flow's process would keep the model's memory during generation and updates
    index = load_index(documents.files / "index", default_device="cpu")
    return [
        "\n\n".join(titled(hit.title, hit.text) for hit in hits)
        for hits in index.search(questions, k)
    ]
