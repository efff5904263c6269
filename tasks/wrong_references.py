"""Wrong references on purpose: what do errors in given answers cost a baseline that trusts them?

People and strong models err in the answers that they give. A built-in world's answers are all true,
so a baseline that trains on them is stronger there than anywhere else.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from string import ascii_uppercase

from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import ITEMS, TASKS, Item, Selection, Task
from warehouse.store import Table


@stage(ITEMS)
def wrong_items(items: Table, *, share: float, seed: int) -> Rows:
    """Yield the items. A `share` of them get the references, criteria and workings of another item
    of the same kind or, if they have options, another letter.

    The number of wrong items is rounded. An item stays as it is if all others have the same
    solution.
    """
    rows = items.rows(Item)
    wrong = _drawn([row["task_id"] for row in rows], share, seed)
    rng = random.Random(f"references {seed}")
    for row in rows:
        if row["task_id"] not in wrong:
            yield {**row}
        elif row["options"] and row["references"]:
            letter = _other_letter(rng, row["references"][0], row["options"])
            yield {**row, "references": [letter]}
        else:
            others = [
                other
                for other in rows
                if other["kind"] == row["kind"] and _solution(other) != _solution(row)
            ]
            giver = rng.choice(others or [row])
            yield {**row, "references": giver["references"], "given": giver["given"]}


@stage(TASKS)
def wrong_tasks(tasks: Table, *, chosen: Tables = (), share: float, seed: int) -> Rows:
    """Yield the tasks. A `share` of them get the reference of another task of the same type or, if
    they have options, another letter. It is then the only answer accepted.

    With `chosen` (selections), the share is of the tasks kept there. The number of wrong tasks is
    rounded. A task stays as it is if all others of its type have the same reference.
    """
    kept = {row["task_id"] for row in rows_of(chosen, Selection) if row["kept"]}
    rows = tasks.rows(Task)
    trained = [row["task_id"] for row in rows if not chosen or row["task_id"] in kept]
    wrong = _drawn(trained, share, seed)
    rng = random.Random(f"references {seed}")
    for row in rows:
        reference = row["reference"]
        if row["task_id"] not in wrong or reference is None:
            yield {**row}
        elif row["options"]:
            letter = _other_letter(rng, reference, row["options"])
            yield {**row, "reference": letter, "accepted": None}
        else:
            others = [
                other["reference"]
                for other in rows
                if other["task_type"] == row["task_type"] and other["reference"] != reference
            ]
            yield {**row, "reference": rng.choice(others or [reference]), "accepted": None}


def _drawn(task_ids: Sequence[str], share: float, seed: int) -> set[str]:
    """The ids of the tasks that get a wrong reference. Those of a smaller share are among those of
    a larger share."""
    order = random.Random(f"wrong {seed}").sample(task_ids, len(task_ids))
    return set(order[: round(share * len(order))])


def _solution(item: Item) -> tuple[list[str], str]:
    return item["references"], item["given"]


def _other_letter(rng: random.Random, letter: str, options: Sequence[str]) -> str:
    others = [other for other in ascii_uppercase[: len(options)] if other != letter]
    return rng.choice(others or [letter])
