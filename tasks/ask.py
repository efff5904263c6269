"""Render prompts: one row each, with the ids of the rows that the prompt is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypedDict, TypeVar

from tasks.prompt import Prompt
from tasks.readers.letters import lettered
from tasks.stage import Rows, Tables, as_tables, check_tables, rows_of, stage
from warehouse.draft import hash_json
from warehouse.schemas import DOCUMENTS, PROMPTS, Row, Selection, Task

P = TypeVar("P", bound=Mapping[str, Any])
# columns of `prompts` that say which rows a prompt is about
ID_COLUMNS = ("search_turns", "document_id", "task_id", "task_type", "rollout_id", "criterion_id")


@stage(PROMPTS)
def ask(
    prompt: Prompt,
    /,
    *,
    values: dict[str, Any] | None = None,
    address: str,
    **tables: Tables,
) -> Rows:
    """Yield the prompts that `prompt.variables` makes from the rows of `tables`, passed by
    parameter name.

    `values` are template values shared by all prompts. They come from the flow, so only they may
    contain tags. Tables of documents may be larger than memory: only the documents that the other
    tables refer to are read.

    If `variables` yields `messages`, the prompt continues that conversation and no template is
    rendered. A prompt's id is a hash of its address, its position, its ids, and its messages.

    Raises TypeError if the tables do not match the parameters of `prompt.variables`.
    """
    # A worked example: `variables` yields {"task_id": "t", "task": "Why?"}, and the template is
    # "Answer: {{ task }}". The row has task_id "t", which is one of ID_COLUMNS, and the messages
    # [{"role": "user", "content": "Answer: Why?"}].
    check_tables(f"the prompt of {prompt.role}", prompt.variables, tables)
    templates = {template.name: template for template in prompt.templates}
    opening = [{"role": "system", "content": prompt.system}] if prompt.system else []
    for position, row in enumerate(prompt.variables(**_rows_by_name(tables))):
        template = templates[row.pop("template", prompt.templates[0].name)]
        messages = row.pop("messages", None)
        if not messages:
            content = template.render(values, **row)
            messages = [*opening, {"role": "user", "content": content}]
        ids = {name: row.get(name) for name in ID_COLUMNS}
        yield {
            "prompt_id": hash_json([address, position, ids, messages]),
            "role": prompt.role,
            "template": template.name,
            "template_version": template.version,
            "messages": messages,
            "sample_id": row.get("sample_id"),
            "rollout_ids": row.get("rollout_ids"),
            **ids,
        }


def _rows_by_name(tables: Mapping[str, Tables]) -> dict[str, list[Row]]:
    """The rows of each argument; for documents, only those that rows of the others refer to."""
    rows = {
        name: rows_of(argument) for name, argument in tables.items() if not _are_documents(argument)
    }
    named = {
        document_id
        for some in rows.values()
        for row in some
        for document_id in _documents_named(row)
    }
    documents = {
        name: _documents(argument, named)
        for name, argument in tables.items()
        if _are_documents(argument)
    }
    return rows | documents


def _are_documents(tables: Tables) -> bool:
    some = as_tables(tables)
    return bool(some) and all(table.schema is DOCUMENTS for table in some)


def _documents_named(row: Row) -> Iterator[str]:
    if row.get("document_id") is not None:
        yield row["document_id"]
    for column in ("document_ids", "evidence"):
        yield from row.get(column) or ()


def _documents(tables: Tables, ids: set[str]) -> list[Row]:
    return [row for table in as_tables(tables) for row in table.rows_with("document_id", ids)]


# ---- what prompts are about, in many methods ----


def repeatedly(*, count: int) -> Iterator[Row]:
    """Yield `count` prompts that are not about any row."""
    return ({} for _ in range(count))


class Question(TypedDict):
    """The question of a task or of a pool entry, without its document and reference."""

    task_id: str
    task_type: str | None
    text: str | None
    options: list[str] | None


def readable(tasks: Iterable[P]) -> Iterator[P]:
    """The tasks that have a text."""
    return (task for task in tasks if task["text"] is not None)


def readable_tasks(tasks: Iterable[Question]) -> Iterator[Row]:
    """The text of every task that has one, and its options."""
    for task in readable(tasks):
        yield {
            "task_id": task["task_id"],
            "task_type": task["task_type"],
            "task": task["text"],
            "options": lettered(task["options"]),
        }


class AnswerToTask(TypedDict):
    """An answer, or an entry in a pool of answers."""

    task_id: str
    rollout_id: str
    answer: str | None


def answered_tasks(answers: list[AnswerToTask], tasks: list[Question]) -> Iterator[Row]:
    """Every readable answer with the text of its task."""
    text_of = {task["task_id"]: task["text"] for task in tasks}
    for row in answers:
        if row["answer"] is not None:
            yield {
                "task_id": row["task_id"],
                "rollout_id": row["rollout_id"],
                "task": text_of[row["task_id"]],
                "answer": row["answer"],
            }


def kept_tasks(
    selections: list[Selection], tasks: list[Task], *, first: int, count: int
) -> Iterator[Row]:
    """Yield `count` of the kept tasks, from position `first` (0-based), in selection order."""
    task_of = {task["task_id"]: task for task in tasks}
    kept = [task_of[row["task_id"]] for row in selections if row["kept"]]
    return readable_tasks(kept[first : first + count])
