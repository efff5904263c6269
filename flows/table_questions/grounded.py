"""Questions written with their evidence: check it, and write the kept questions to a file."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tasks.readers.quotes import verbatim
from tasks.readers.words import holds, words_of
from tasks.rollouts.neutral import neutralise
from tasks.stage import Rows, rows_by, stage
from warehouse.draft import Draft
from warehouse.schemas import (
    GATES,
    TASKS,
    Criterion,
    Document,
    PromptRow,
    Sample,
    Selection,
    Task,
)
from warehouse.store import Table

QUESTIONS_FILE = "questions.jsonl"


@stage(GATES)
def check_evidence(
    tasks: Table, evidence: Table, prompts: Table, samples: Table, parts: Table
) -> Rows:
    """Yield three checks of every readable task.

    `verbatim`: each quote is in a part that was shown, word for word. `covered`: every part is
    quoted. `not_given_away`: the question does not contain the answer. Parts are compared as the
    prompt showed them, neutralised.
    """
    shown_of = {row["sample_id"]: row["document_ids"] or [] for row in samples.rows(Sample)}
    sample_of = {row["prompt_id"]: row["sample_id"] for row in prompts.rows(PromptRow)}
    text_of = {row["document_id"]: row["text"] for row in parts.rows(Document)}
    evidence_of = rows_by("task_id", evidence.rows(Criterion))
    for task in tasks.rows(Task):
        if task["text"] is None:
            continue
        sample_id = sample_of[task["prompt_id"] or ""] or ""
        shown = [neutralise(text_of[document_id]) for document_id in shown_of[sample_id]]
        criteria = [row["criterion"] for row in evidence_of[task["task_id"]]]
        quotes = [neutralise(criterion) for criterion in criteria if criterion is not None]
        for gate, passed in _checks(task, quotes, shown):
            yield {"task_id": task["task_id"], "gate": gate, "kind": "rule", "passed": passed}


def _checks(task: Task, quotes: list[str], shown: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield the name of each check, and whether the task passes it."""
    all_shown = all(any(verbatim([quote], text) for text in shown) for quote in quotes)
    yield "verbatim", bool(quotes) and all_shown
    yield "covered", all(any(verbatim([quote], text) for quote in quotes) for text in shown)
    answer = task["reference"] or ""
    yield "not_given_away", bool(words_of(answer)) and not holds(answer, task["text"] or "")


@stage(TASKS)
def write_questions(
    tasks: Table, evidence: Table, articles: Table, chosen: Table, *, draft: Draft
) -> Rows:
    """Yield the kept tasks, and also write them as JSON lines beside the rows.

    A line has id, task_type, question, answer, context (the whole article) and evidence.
    """
    kept = {row["task_id"] for row in chosen.rows(Selection) if row["kept"]}
    text_of = {row["document_id"]: row["text"] for row in articles.rows(Document)}
    evidence_of = rows_by("task_id", evidence.rows(Criterion))
    draft.files.mkdir(parents=True, exist_ok=True)
    with (draft.files / QUESTIONS_FILE).open("w", encoding="utf-8") as file:
        for task in tasks.rows(Task):
            if task["task_id"] not in kept:
                continue
            question = {
                "id": task["task_id"],
                "task_type": task["task_type"],
                "question": task["text"],
                "answer": task["reference"],
                "evidence": [row["criterion"] or "" for row in evidence_of[task["task_id"]]],
                "context": text_of[task["document_id"] or ""],
            }
            file.write(json.dumps(question, ensure_ascii=False) + "\n")
            yield task
