"""Render prompts: one row a prompt, with the ids of what it is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tasks.prompt import Prompt
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.draft import hash_json
from warehouse.schemas import DOCUMENTS, PROMPTS, Row
from warehouse.store import Table

ABOUT = ("search_turns", "document_id", "task_id", "task_type", "rollout_id", "criterion_id")


@stage(PROMPTS)
def ask(prompt: Prompt, *tables: Tables, values: dict[str, Any] | None = None, address: str) -> Rows:
    """Yield the prompts that `prompt.about` makes of the rows of `tables`; `values` are the same for all of them,
    and in the flow's own words: they alone may hold tags. Of tables of documents, which may be larger than memory,
    come only the rows that the other tables name.

    Where `about` yields `messages`, they are the conversation to go on with, and no template is rendered.
    A prompt's id hashes its address, what it is about and its text, so a rerun of equal inputs gives equal ids.
    """
    templates = {t.name: t for t in prompt.templates}
    for position, about in enumerate(prompt.about(*_rows(tables))):
        template = templates[about.pop("template", prompt.templates[0].name)]
        messages = about.pop("messages", None) or [{"role": "user", "content": template.render(values, **about)}]
        ids = {name: about.get(name) for name in ABOUT}
        yield {
            "prompt_id": hash_json([address, position, ids, messages]),
            "role": prompt.role,
            "template": template.name,
            "template_version": template.version,
            "messages": messages,
            "sample_id": about.get("sample_id"),
            **ids,
        }


def _rows(tables: Sequence[Tables]) -> list[list[Row]]:
    rows = [[] if _are_documents(table) else rows_of(table) for table in tables]
    named = {document_id for some in rows for row in some for document_id in _documents_named(row)}
    return [_documents(t, named) if _are_documents(t) else some for t, some in zip(tables, rows, strict=True)]


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
