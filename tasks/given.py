"""Tasks and replies from a file instead of a policy.

The file's items, or draws from them, become rows of `tasks`, `rubrics` and `rollouts`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from tasks.benchmarks.items import Columns, read_items
from tasks.corpus.documents import corpus_identity
from tasks.models.engine import Policy
from tasks.prompt import Template
from tasks.rollouts.replies import speak
from tasks.rollouts.rollout import Dialogue
from tasks.stage import Rows, Tables, rows_of, stage
from tasks.wrong_references import wrong_items
from warehouse.schemas import ROLLOUTS, RUBRICS, TASKS, Item, PromptRow, Selection, Task
from warehouse.store import Place, Table

Drawn = TypeVar("Drawn", Item, Task)


class GivenTasks(BaseModel):
    """A file of tasks that people wrote, and where its rows hold each part."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    file: str = Field(
        description="JSON lines, CSV or Parquet, or hf:owner/name?split=...&revision=..."
    )
    columns: Columns = Columns(question=("task",), criteria=("criteria",))
    wrong: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description=(
            "share of the tasks that deliberately get another task's answer or rubric: a noisy"
            " baseline"
        ),
    )

    def items(self, place: Place, seed: int) -> Table:
        """The file's items as a table of the run, made at `place` by the stage `read_items`.

        If `wrong` is above 0, `seed` draws the items that get a wrong reference, and a second table
        with these errors is returned. Raises ValueError for a file without items, or with rows that
        do not fit `columns`.
        """
        items = read_items(
            place,
            self.file,
            identity=corpus_identity(self.file),
            benchmark="given",
            columns=self.columns,
        )
        if self.wrong == 0:
            return items
        return wrong_items(place, items, share=self.wrong, seed=seed, label="wrong")


@stage(TASKS)
def given_tasks(
    items: Table, *, number: int, count: int, seed: int, with_context: bool = False
) -> Rows:
    """Yield the `number`-th draw (from 0) of `count` items, all different, as tasks.

    No item repeats before all have been drawn; then all are drawn again in another order.
    `document_id` is the item's id if it has a context; the reference is its first accepted answer.
    `with_context` puts the context before the question, for prompts that show only a text. Raises
    ValueError if there are fewer items than `count`.
    """
    rows = items.rows(Item)
    if len(rows) < count:
        raise ValueError(f"{items.address} has {len(rows)} items; {count} are drawn at once")
    for row in next(islice(_draws(rows, count, seed), number, None)):
        text = row["text"]
        if with_context and row["context"]:
            text = f"{row['context']}\n\n{text}"
        yield {
            "task_id": row["task_id"],
            "document_id": row["task_id"] if row["context"] else None,
            "task_type": row["kind"],
            "text": text,
            "reference": next(iter(row["references"]), None),
            "accepted": row["references"] or None,
            "options": row["options"],
        }


def _draws(items: list[Drawn], count: int, seed: int) -> Iterator[list[Drawn]]:
    """Yield draws of `count` different items, or tasks, for ever."""
    # A worked example: of 10 items, draws of 3 take 0-2, 3-5 and 6-8 of a first order. The next
    # draw takes the one item left, and the first two others of a second order of all ten. The item
    # is then moved to the end of that order.
    waiting = list[Drawn]()
    lap = 0
    while True:
        draw = waiting[:count]
        waiting = waiting[count:]
        if len(draw) < count:
            order = list(items)
            random.Random(f"{seed}-{lap}").shuffle(order)
            lap += 1
            drawn = {item["task_id"] for item in draw}
            others = [item for item in order if item["task_id"] not in drawn]
            missing = count - len(draw)
            waiting = others[missing:] + draw
            draw = draw + others[:missing]
        yield draw


@stage(TASKS)
def draw_tasks(tasks: Table, *, chosen: Tables = (), number: int, size: int, seed: int) -> Rows:
    """Yield the `number`-th draw (from 0) of `size` tasks, all different; all if there are fewer.

    No task repeats before all have been drawn; then all are drawn again in another order. With
    `chosen` tables (selections), only the tasks kept there are drawn. Raises ValueError if there
    are none.
    """
    kept = {row["task_id"] for row in rows_of(chosen, Selection) if row["kept"]}
    rows = [row for row in tasks.rows(Task) if not chosen or row["task_id"] in kept]
    if not rows:
        raise ValueError(f"{tasks.address} has no task to draw")
    yield from next(islice(_draws(rows, min(size, len(rows)), seed), number, None))


@stage(TASKS)
def without_answers(tasks: Table) -> Rows:
    """Yield the tasks without their references and accepted answers."""
    for row in tasks.rows(Task):
        yield {**row, "reference": None, "accepted": None}


@stage(RUBRICS)
def given_rubrics(items: Table, *, tasks: Table) -> Rows:
    """Yield the criteria that came with the items of `tasks`. Raises ValueError for an item that
    has no criterion of positive weight."""
    criteria_of = {
        row["task_id"]: json.loads(row["given"]).get("criteria") for row in items.rows(Item)
    }
    for task_id in dict.fromkeys(row["task_id"] for row in tasks.rows()):
        if not criteria_of[task_id]:
            raise ValueError(
                f"{task_id} has no criteria: columns.criteria names the field of its rubric"
            )
        if not any(criterion["weight"] > 0 for criterion in criteria_of[task_id]):
            raise ValueError(f"{task_id}: none of its criteria has a positive weight")
        for i, criterion in enumerate(criteria_of[task_id]):
            yield {
                "criterion_id": f"{task_id}-{i}",
                "task_id": task_id,
                "position": i,
                "criterion": criterion["text"],
                "priority": "critical",
                "weight": criterion["weight"],
            }


@stage(ROLLOUTS)
def given_replies(
    prompts: Table, items: Table, *, reply: Template, model: Policy, dialogue: Dialogue
) -> Rows:
    """Yield one rollout per prompt, whose reply is made from the prompt's item.

    The reply is the template `reply`, rendered with the item's first reference as `answer` and its
    `given` fields, in tokens of `model`. It was not sampled: it has no policy, and its
    log-probabilities are 0.
    """
    item_of = {row["task_id"]: row for row in items.rows(Item)}
    rows = prompts.rows(PromptRow)
    texts = []
    for row in rows:
        item = item_of[row["task_id"] or ""]
        texts.append(reply.render(answer=item["references"][0], **json.loads(item["given"])))
    yield from speak(rows, texts, model, dialogue)
