"""Render prompts: one row each, with the ids of the rows that the prompt is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypedDict, TypeVar

from tasks.prompt import Prompt
from tasks.readers.letters import LETTERS
from tasks.stage import Rows, Tables, check_tables, rows_of, stage
from warehouse.draft import hash_json
from warehouse.schemas import DOCUMENTS, PROMPTS, Row, Selection, Task
from warehouse.store import Table

P = TypeVar("P", bound=Mapping[str, Any])
ABOUT = ("search_turns", "document_id", "task_id", "task_type", "rollout_id", "criterion_id")


@stage(PROMPTS)
def ask(
    prompt: Prompt,
    /,
    *,
    values: dict[str, Any] | None = None,
    by_position: bool = True,
    address: str,
    **tables: Tables,
) -> Rows:
    """Yield the prompts that `prompt.about` makes from the rows of `tables`, which it gets by parameter name.

    `values` are the same for all prompts. The flow wrote them, so they alone may hold tags. Tables of documents may be
    larger than memory: only the rows that the other tables name are read.

    If `about` yields `messages`, the prompt continues that conversation and no template is rendered.
    A prompt's id hashes its address, what it is about, its text, and its position; or, unless `by_position`, how many
    equal ones come before it, so that it has the same id among fewer prompts.
    """
    check_tables(f"the prompt of {prompt.role}", prompt.about, tables)
    templates = {t.name: t for t in prompt.templates}
    said = [{"role": "system", "content": prompt.system}] if prompt.system else []
    seen = Counter[str]()
    for position, about in enumerate(prompt.about(**_rows(tables))):
        template = templates[about.pop("template", prompt.templates[0].name)]
        messages = about.pop("messages", None) or [*said, {"role": "user", "content": template.render(values, **about)}]
        ids = {name: about.get(name) for name in ABOUT}
        if not by_position:
            content = hash_json([ids, messages])
            position = seen[content]
            seen[content] += 1
        yield {
            "prompt_id": hash_json([address, position, ids, messages]),
            "role": prompt.role,
            "template": template.name,
            "template_version": template.version,
            "messages": messages,
            "sample_id": about.get("sample_id"),
            "rollout_ids": about.get("rollout_ids"),
            **ids,
        }


def _rows(tables: Mapping[str, Tables]) -> dict[str, list[Row]]:
    rows = {name: [] if _are_documents(table) else rows_of(table) for name, table in tables.items()}
    wanted = {document_id for some in rows.values() for row in some for document_id in _documents_named(row)}
    return {name: _documents(t, wanted) if _are_documents(t) else rows[name] for name, t in tables.items()}


def _are_documents(tables: Tables) -> bool:
    some = [tables] if isinstance(tables, Table) else tables
    return bool(some) and all(table.schema is DOCUMENTS for table in some)


def _documents_named(row: Row) -> Iterator[str]:
    if row.get("document_id") is not None:
        yield row["document_id"]
    for column in ("document_ids", "evidence"):
        yield from row.get(column) or ()


def _documents(tables: Tables, named: set[str]) -> list[Row]:
    some = [tables] if isinstance(tables, Table) else tables
    return [row for table in some for row in table.rows_with("document_id", named)]


# ---- what prompts are about, in many methods -----------------------------------------------------------------------


def repeatedly(*, count: int) -> Iterator[Row]:
    """`count` prompts about nothing."""
    return ({} for _ in range(count))


class Posed(TypedDict):
    """The question of a task or of a pool entry, without its document and reference."""

    task_id: str
    task_type: str | None
    text: str | None
    options: list[str] | None


def readable(tasks: Iterable[P]) -> Iterator[P]:
    """The tasks that have a text."""
    return (task for task in tasks if task["text"] is not None)


def readable_tasks(tasks: Iterable[Posed]) -> Iterator[Row]:
    """The text of every task that has one, and its options."""
    for task in readable(tasks):
        offered = zip(LETTERS, task["options"] or [], strict=False)
        options = [{"letter": letter, "text": text} for letter, text in offered]
        yield {"task_id": task["task_id"], "task_type": task["task_type"], "task": task["text"], "options": options}


class Given(TypedDict):
    """An answer, or an entry in a pool of answers."""

    task_id: str
    rollout_id: str
    answer: str | None


def answered_tasks(answers: list[Given], tasks: list[Posed]) -> Iterator[Row]:
    """Every readable answer with the text of its task."""
    text_of = {task["task_id"]: task["text"] for task in tasks}
    for row in answers:
        if row["answer"] is not None:
            ids = {"task_id": row["task_id"], "rollout_id": row["rollout_id"]}
            yield {**ids, "task": text_of[row["task_id"]], "answer": row["answer"]}


def kept_tasks(selections: list[Selection], tasks: list[Task], *, first: int, count: int) -> Iterator[Row]:
    """`count` of the kept tasks, in the order of their selection."""
    task_of = {task["task_id"]: task for task in tasks}
    kept = [task_of[row["task_id"]] for row in selections if row["kept"]]
    return readable_tasks(kept[first : first + count])
