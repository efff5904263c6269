"""Render prompts: one row a prompt, with the ids of what it is about."""

from __future__ import annotations

from typing import Any

from tasks.prompt import Prompt
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.draft import hash_json
from warehouse.schemas import PROMPTS

ABOUT = ("search_turns", "document_id", "task_id", "task_type", "rollout_id", "criterion_id")


@stage(PROMPTS)
def ask(prompt: Prompt, *tables: Tables, values: dict[str, Any] | None = None, address: str) -> Rows:
    """Yield the prompts that `prompt.about` makes of the rows of `tables`; `values` are the same for all of them,
    and in the flow's own words: they alone may hold tags.

    Where `about` yields `messages`, they are the conversation to go on with, and no template is rendered.
    A prompt's id hashes its address, what it is about and its text, so a rerun of equal inputs gives equal ids.
    """
    templates = {t.name: t for t in prompt.templates}
    for position, about in enumerate(prompt.about(*map(rows_of, tables))):
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
