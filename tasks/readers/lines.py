"""Read a base model's replies to few-shot prompts. A reply is the rest of its line; what follows
is already the model's next example."""

from __future__ import annotations

import re

from tasks.readers.malformed import Malformed
from tasks.readers.words import holds, words_of
from warehouse.schemas import Row

PAIR = re.compile(r"(?P<question>.*?\S)\s*\bAnswer:\s*(?P<answer>\S.*)", re.IGNORECASE)
TEXT = "Text: "  # prefix of a context
# "The answer is", and whatever ends with a colon
ANNOUNCED = re.compile(r".*:\s*|(the )?((final|correct|right) )?answer( is)?\W*", re.IGNORECASE)
VOTES = {"yes": 1, "no": 0}
# the form that structured output may impose on a reply
VOTE_FORM = " (yes|no)"
PAIR_FORM = r" [^\n?]{8,160}\? Answer: [^\n]{1,80}\n"


def read_question(reply: str, prompt: str) -> Row:
    """`who ...? Answer: ...`: the words of the answer must occur in the last text of the prompt and
    not in the question.

    Raises Malformed.

    >>> read_question(" who came? Answer: Ada.", "Text: Bob left. ... Text: Ada came.")["reference"]
    'Ada'
    """
    question, answer = read_pair(reply, prompt)
    if holds(answer, question):
        raise Malformed("the question gives its answer away")
    return {"text": question, "reference": answer, "answer_type": "text", "options": None}


def read_told(reply: str, prompt: str) -> tuple[str, str]:
    """A standalone question, which contains the words of its answer, and that answer. Raises
    Malformed."""
    question, answer = read_pair(reply, prompt)
    if not holds(answer, question):
        raise Malformed("the question does not tell what it asks for")
    return question, answer


def read_pair(reply: str, prompt: str) -> tuple[str, str]:
    """A question and its answer, whose words must occur in the last text of the prompt. Raises
    Malformed."""
    pair = PAIR.fullmatch(first_line(reply))
    if pair is None:
        raise Malformed("no question with its answer on one line")
    question = pair["question"]
    answer = pair["answer"].removesuffix(".")
    if not words_of(answer) or not holds(answer, prompt.rpartition(TEXT)[2]):
        raise Malformed("the answer is not in the text")
    return question, answer


def read_answer(reply: str) -> str:
    """The answer on the first line of a reply. Raises Malformed for a reply without an answer, and
    for one that only announces an answer: a model that did so for every question would always agree
    with itself.

    >>> read_answer(" Ada\\nQuestion: who left?")
    'Ada'
    """
    answer = first_line(reply)
    if not answer or ANNOUNCED.fullmatch(answer):
        raise Malformed("no answer is stated")
    return answer


def read_result(reply: str) -> str:
    """The answer on the first line of a reply: what follows its last equals sign, or all of it.
    Raises Malformed for a reply without an answer.

    >>> read_result(" 34 + 25 = 59\\nQuestion: What"), read_result(" 59")
    ('59', '59')
    """
    return read_answer(read_answer(reply).rpartition("=")[2])


def read_vote(reply: str) -> int:
    """1 or 0, by the first word of a reply. Raises Malformed if it is not a verdict.

    >>> read_vote(" Yes.")
    1
    """
    words = words_of(first_line(reply))
    if not words or words[0] not in VOTES:
        raise Malformed("no verdict")
    return VOTES[words[0]]


def labelled(reply: str, name: str) -> str:
    """What follows `name:` on the first line of a reply. Raises Malformed if the line does not
    begin with it, or if nothing follows.

    >>> labelled("Task: Why did Ada leave?\\nText: more", "task")
    'Why did Ada leave?'
    """
    label, colon, text = first_line(reply).partition(":")
    if not colon or label.strip().lower() != name.lower():
        raise Malformed(f"no line {name.capitalize()}:")
    if not words_of(text):
        raise Malformed(f"nothing behind {name.capitalize()}:")
    return text.strip()


def read_items(reply: str) -> list[str]:
    """The items of a list that a prompt has begun with `-`, up to the first line that is not an
    item. Raises Malformed for an empty list.

    >>> read_items(" Names Ada.\\n- Gives the year.\\n\\nTask: more")
    ['Names Ada.', 'Gives the year.']
    """
    items: list[str] = []
    for line in f"-{reply}".strip().splitlines():
        if not line.startswith("-"):
            break
        text = line[1:].strip()
        if words_of(text):
            items.append(text)
    if not items:
        raise Malformed("no item of a list")
    return items


def first_line(reply: str) -> str:
    """The first non-blank line of a reply, stripped; '' if there is none."""
    return reply.strip().partition("\n")[0].strip()
