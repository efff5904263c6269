"""What MAE's replies mean: a question, an answer or a score between tags, and how well the tags were kept."""

from __future__ import annotations

import re
from functools import partial

from flows.mae.rewards import well_formed
from tasks.prompt import Row
from tasks.read import Reader, reads
from tasks.readers.malformed import Malformed
from tasks.readers.tags import elements, last_element
from warehouse.schemas import PromptRow, Rollout

_SCORE = re.compile(r"[\s*_`\"']*(-?\d{1,3}(?:\.\d{1,3})?)\s*(?:(?:/|out of)\s*10)?[\s*_`\"'.]*", re.IGNORECASE)


def read_mark(reply: str) -> float:
    """The last score, 1 to 10, as a mark in 0..1.

    >>> read_mark("<think><score>2</score></think> <score> 10/10 </score>"), read_mark("<score>1</score>")
    (1.0, 0.0)
    """
    text = last_element(reply, "score")
    found = _SCORE.fullmatch(text)
    if not found:
        raise Malformed("the score is no number")
    return min(1.0, max(0.0, (float(found[1]) - 1) / 9))


def reader(name: str, column: str) -> Reader:
    """The text between `<name>` tags as `column`, and the format reward in any case."""
    read = read_mark if name == "score" else partial(last_element, name=name)
    return reads(column, read, measure=partial(_measure, name=name))


def _measure(rollout: Rollout, prompt: PromptRow, *, name: str) -> Row:
    return {"format": {"total": well_formed(len(elements(rollout["reply"] or "", name)))}}
