"""How to use a policy outside this project: what its prompts look like, and code that sends them.

A trained policy answers best in the form that it was trained in. Its rollouts record that form: the
messages of a prompt, how they were rendered, how tokens were sampled, and where a reply ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from warehouse.schemas import BATCHES, PROMPTS, ROLLOUTS
from warehouse.store import Store
from warehouse.table import Table

TEMPLATE = Path(__file__).parent / "usage.md.jinja"
LONGEST = 4000  # characters of an example that are shown


@dataclass(frozen=True)
class Usage:
    """How a role of a run was prompted.

    `messages` is one of its prompts. `chat_template`: "model" renders them with the model's own
    template and `template_arguments`, "none" takes the text as it is, "conversation" writes User
    and Assistant.
    """

    role: str
    messages: list[dict[str, str]]
    chat_template: str
    temperature: float
    top_p: float
    max_tokens: int
    stop: list[str]
    template_arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The prompt as text to be continued, for use without the model's chat template."""
        if self.chat_template == "conversation":
            turns = [f"{m['role'].capitalize()}: {m['content']}" for m in self.messages]
            return "\n\n".join([*turns, "Assistant:"])
        return "\n\n".join(m["content"] for m in self.messages)

    def markdown(self, base: str, *, is_adapter: bool) -> str:
        """The section of a model card. `base`: the base model's name or folder."""
        template = jinja2.Template(
            TEMPLATE.read_text(encoding="utf-8"), trim_blocks=True, lstrip_blocks=True
        )
        is_chat = self.chat_template == "model"
        given = self.template_arguments
        prompt = json.dumps(self.messages if is_chat else self.text, ensure_ascii=False, indent=1)
        return template.render(
            usage=self,
            base=json.dumps(base),
            is_adapter=is_adapter,
            is_chat=is_chat,
            prompt=prompt,
            is_shown=len(prompt) <= LONGEST,
            stop=json.dumps(self.stop),
            arguments="".join(f", {name}={value!r}" for name, value in given.items()),
            chat_arguments=json.dumps(given, ensure_ascii=False) if given else "",
        )


def usage_of(store: Store, run: str, updates: list[Table]) -> Usage | None:
    """Return how the role was prompted on which a policy's last update trained most.

    That is the role of the table with the most rollouts in the update's batch, or with the most
    rollouts if there is no batch. None if its rollouts are gone.
    """
    last = updates[-1]
    beside = _beside(last, store.tables(run, ROLLOUTS))
    if not beside:
        return None
    trained = {id_ for table in _beside(last, store.tables(run, BATCHES)) for id_ in _ids(table)}
    rollouts = max(
        beside, key=lambda table: (sum(id_ in trained for id_ in _ids(table)), table.num_rows)
    )
    params = rollouts.recipe["params"]
    shown = rollouts.rows()[0]
    for table in store.tables(run, PROMPTS):
        for row in table.rows() if table.at.step == rollouts.at.step else ():
            if row["prompt_id"] == shown["prompt_id"]:
                return _usage(shown["role"], row, params)
    return None


def _beside(update: Table, tables: Iterable[Table]) -> list[Table]:
    """The tables with rows at the place of an update."""
    here = (update.at.iteration, update.at.phase, update.at.step)
    return [
        table
        for table in tables
        if (table.at.iteration, table.at.phase, table.at.step) == here
        and table.has_rows
        and table.num_rows
    ]


def _ids(table: Table) -> list[str]:
    return [
        id_
        for batch in table.batches(["rollout_id"])
        for id_ in batch.column("rollout_id").to_pylist()
    ]


def _usage(role: str, prompt: dict[str, Any], params: dict[str, Any]) -> Usage:
    sampling = params["sampling"]
    dialogue = params["dialogue"]
    return Usage(
        role=role,
        messages=[
            {"role": message["role"], "content": message["content"]}
            for message in prompt["messages"]
        ],
        chat_template=dialogue["chat_template"],
        temperature=sampling["temperature"],
        top_p=sampling["top_p"],
        max_tokens=sampling["max_tokens"],
        stop=list(sampling["stop"]),
        template_arguments=dialogue.get("template_arguments", {}),
    )
