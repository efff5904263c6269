"""Readers of replies to the prompts of benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tasks.prompt import Malformed
from tasks.read import UNANSWERED
from tasks.readers.boxed import last_box
from tasks.readers.quotes import quotes_of, verbatim
from tasks.readers.stated import stated_answer
from tasks.readers.tags import last_element
from tasks.readers.thoughts import spoken
from warehouse.schemas import PromptRow, Rollout, Row


def read_answer(rollout: Rollout, prompt: PromptRow, *, read: Callable[[str], str]) -> Row:
    """The column `answer` of `answers`: what `read` finds in a reply. A reply that was truncated
    after its answer still counts.

    Raises Malformed if there is no answer. Its reason says why the reply is incomplete or, if it is
    complete, what `read` found wrong.
    """
    try:
        return {"answer": read(rollout["reply"] or "")}
    except Malformed as problem:
        raise Malformed(UNANSWERED.get(rollout["finish_reason"], str(problem))) from problem


def read_parts(rollout: Rollout, prompt: PromptRow) -> Row:
    """The answer of a four-part reply (analysis, evidence, reasoning, answer), its quotes, and the
    share of them that is in the prompt.

    The other parts may be missing, since models that were not trained on this format are evaluated
    as well. Raises Malformed if there is no answer.
    """
    row = read_answer(rollout, prompt, read=read_element)
    try:
        quotes = quotes_of(last_element(rollout["reply"] or "", "evidence"))
    except Malformed:
        return row
    if not quotes:
        return row
    prompt_text = "\n".join(message["content"] for message in prompt["messages"])
    return {**row, "evidence": quotes, "verbatim": verbatim(quotes, prompt_text)}


def read_boxed(reply: str) -> str:
    """The content of the last box, or else the answer stated in words. Raises Malformed if there is
    neither."""
    try:
        return last_box(reply)
    except Malformed:
        return stated_answer(reply)


def read_tagged(reply: str) -> str:
    """The text of the last answer element, or else the answer stated in words. Raises Malformed if
    there is neither."""
    try:
        return last_element(reply, "answer")
    except Malformed:
        return stated_answer(reply)


def read_element(reply: str) -> str:
    """The text of the last answer element; text outside the tags is not an answer. Raises Malformed
    if there is no element, or if it is empty."""
    return last_element(reply, "answer")


def read_line(reply: str) -> str:
    """The first nonblank line of a reply after its thoughts.

    Raises Malformed if there is no such line.
    """
    for line in spoken(reply).splitlines():
        if line.strip():
            return line.strip()
    raise Malformed("no line says anything")


def read_whole(reply: str) -> str:
    """The whole reply except its thoughts.

    Raises Malformed if nothing is left.
    """
    text = spoken(reply).strip()
    if not text:
        raise Malformed("nothing is said")
    return text


# readers by prompt set, then by the name of the template
READERS: dict[str, dict[str, Callable[[str], str]]] = {
    "english": {
        "boxed": read_boxed,
        "letter": read_boxed,
        "short": read_tagged,
        "whole": read_whole,
    },
    "lines-2-shot": {"short": read_line},
    "lines-5-shot": {"short": read_line},
    "lines-4-shot": {"boxed": read_line},  # its examples are sums
    "lines": {"boxed": read_line, "letter": read_line, "short": read_line, "whole": read_whole},
}
# readers by the name that a protocol uses
PROTOCOL_READERS: dict[str, Callable[[Rollout, PromptRow], Row]] = {
    "boxed": partial(read_answer, read=read_boxed),
    "tagged": partial(read_answer, read=read_tagged),
    "element": partial(read_answer, read=read_element),
    "stated": partial(read_answer, read=stated_answer),
    "parts": read_parts,
    "whole": partial(read_answer, read=read_whole),
}
