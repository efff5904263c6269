"""Read EAPO's replies: an answer in four parts, and a verdict."""

from __future__ import annotations

import re

from tasks.prompt import Row
from tasks.readers.copies import Instructions
from tasks.readers.lines import TEXT, first_line
from tasks.readers.malformed import Malformed
from tasks.readers.quotes import first_quotes, verbatim
from tasks.readers.tags import in_order
from tasks.readers.verdicts import bracketed
from warehouse.schemas import PromptRow, Rollout

PARTS = ("analysis", "evidence", "reasoning", "answer")
QUOTE = re.compile(r"(?P<quote>.*?\S)\s*\bAnswer:\s*(?P<answer>\S.*)", re.IGNORECASE)
NO_INSTRUCTIONS = Instructions(())
VERDICTS = {"CORRECT": 1, "INCORRECT": 0, "NOT_ATTEMPTED": 0}


def read_answer(
    rollout: Rollout, prompt: PromptRow, *, instructions: Instructions = NO_INSTRUCTIONS
) -> Row:
    """The answer and the quotes of a four-part reply, and the share of the quotes that are in the
    prompt and not in its `instructions`.

    Raises Malformed for a reply that lacks a part or whose answer is empty. The content of the
    evidence does not affect the format (R_f of eq. 2): it may quote nothing, and if it has very
    many quotes, only the first ones are read.
    """
    parts = in_order(rollout["reply"] or "", PARTS, may_be_empty=PARTS[:-1])
    quotes = first_quotes(parts["evidence"].text)
    of_the_text = [quote for quote in quotes if not instructions.holds(quote)]
    text = "\n".join(message["content"] for message in prompt["messages"])
    return {
        "answer": parts["answer"].text,
        "evidence": quotes,
        "verbatim": verbatim(of_the_text, text) * len(of_the_text) / max(1, len(quotes)),
    }


def read_line(rollout: Rollout, prompt: PromptRow) -> Row:
    """The answer and the quote of a one-line reply, `QUOTE Answer: ANSWER`, and whether the quote
    is in the text at the end of the prompt.

    Raises Malformed for a line that does not have both.
    """
    line = QUOTE.fullmatch(first_line(rollout["reply"] or ""))
    if line is None:
        raise Malformed("no quote with its answer on one line")
    quotes = [line["quote"]]
    prompted = "\n".join(message["content"] for message in prompt["messages"])
    return {
        "answer": line["answer"].strip(),
        "evidence": quotes,
        "verbatim": verbatim(quotes, prompted.rpartition(TEXT)[2]),
    }


def read_verdict(reply: str) -> int:
    """1 if the last verdict says that the answer is right, else 0.

    Raises Malformed for a reply without a verdict.

    >>> read_verdict("Both name Ulm: [[CORRECT]]"), read_verdict("[[NOT_ATTEMPTED]]")
    (1, 0)
    """
    return bracketed(reply, VERDICTS)
