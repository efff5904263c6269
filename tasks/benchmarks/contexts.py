"""How much of each item's context fits into a prompt."""

from __future__ import annotations

from collections.abc import Callable

from tasks.rollouts.tokens import count_tokens
from tasks.stage import Rows, stage
from warehouse.schemas import ITEM_CONTEXTS, Item
from warehouse.store import Table


@stage(ITEM_CONTEXTS)
def fit_contexts(
    items: Table,
    *,
    model: str,
    limit: int,
    longest: int | None,
    around: Callable[[Item], int],
) -> Rows:
    """Yield how many tokens the context of each item has, and how many of them a prompt of `limit`
    tokens of `model` keeps; `around` counts the tokens of the prompt without its context.

    An item whose context has more than `longest` tokens is left out, with the reason.
    """
    for item in items.rows(Item):
        num_tokens = count_tokens(item["context"] or "", model)
        kept = min(num_tokens, max(1, limit - around(item)))
        left_out = None
        if longest is not None and num_tokens > longest:
            kept = 0
            left_out = f"a context of more than {longest:,} tokens"
        yield {
            "task_id": item["task_id"],
            "num_tokens": num_tokens,
            "kept_tokens": kept,
            "left_out": left_out,
        }
