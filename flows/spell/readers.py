"""Read SPELL's replies: the keys of a question, the statement of an answer, the vote.

`tasks.readers` parses JSON, letters, numbers, statements and verdicts. Some unusable questions (the
answer is too long or not a single number, or the reply was cut off while thinking) are dropped
without penalty: their reason is one of `NO_PENALTY`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from tasks.prompt import Row
from tasks.readers import lines
from tasks.readers.letters import LETTERS, letter_of
from tasks.readers.malformed import Malformed
from tasks.readers.numbers import number_in
from tasks.readers.objects import last_object
from tasks.readers.stated import stated_answer
from tasks.readers.thoughts import is_thinking
from tasks.readers.verdicts import bracketed
from tasks.rollouts.tokens import count_tokens
from warehouse.schemas import PromptRow, Rollout

MAX_ANSWER_TOKENS = 40
CUT_THINKING = "cut off inside its thinking"
LONG_ANSWER = "answer too long"
NO_NUMBER = "answer is no single non-zero number"
NO_PENALTY = (CUT_THINKING, LONG_ANSWER, NO_NUMBER)
# the examples in the prompts: a reply that copies one states nothing
EXAMPLE_ANSWERS = ("the Old Toll Bridge", "1,846.25")
EXAMPLE_QUESTIONS = (
    "Which of the bridges of Halden was finished first?",
    "What did Halden Ferries earn a crossing in 2013, in dollars?",
    "Which bridge of Halden was finished first?",
)
# an answer is what follows the last "the answer is"; a vote is the last verdict in brackets
read_answer = partial(stated_answer, placeholders=EXAMPLE_ANSWERS)
read_vote = partial(bracketed, values={"YES": 1, "NO": 0})


def read_questioner(
    rollout: Rollout, prompt: PromptRow, *, model: str, most_words: int | None, in_lines: bool
) -> Row:
    """The question in a rollout.

    Raises Malformed as `read_question` does and, without penalty, for an answer of more than
    `most_words` words and for a reply that was cut off while thinking.
    """
    reply = rollout["reply"] or ""
    if in_lines:
        question = lines.read_question(reply, prompt["messages"][-1]["content"])
    elif rollout["finish_reason"] == "length" and is_thinking(reply):
        raise Malformed(CUT_THINKING)
    else:
        count = partial(count_tokens, model=model)
        question = read_question(reply, prompt["task_type"] or "", count)
    if most_words is not None and len(question["reference"].split()) > most_words:
        raise Malformed(LONG_ANSWER)
    return question


def read_short(reply: str, *, read: Callable[[str], str], most_words: int | None) -> str:
    """The answer that `read` finds. Raises Malformed if it has more than `most_words` words."""
    answer = read(reply)
    if most_words is not None and len(answer.split()) > most_words:
        raise Malformed(f"more than {most_words} words")
    return answer


def measure_reply(rollout: Rollout, prompt: PromptRow, *, model: str) -> Row:
    """The length of a whole reply, in tokens of `model`."""
    return {"answer_tokens": count_tokens(rollout["reply"] or "", model)}


def read_question(reply: str, task_type: str, length: Callable[[str], int]) -> Row:
    """The last JSON object of a reply: text, reference, answer_type, and options for a choice.

    `length` counts tokens. Raises Malformed if there is no object, if a key is missing or has the
    wrong type, if a letter is not A to D, or if the options are not four different texts; and,
    without penalty, for the reasons in `NO_PENALTY`.

    >>> read_question('so { "question": "Who?", "answer": "Ada" }', "general_qa", len)["reference"]
    'Ada'
    """
    keys = last_object(reply, ("question", "answer"))
    text = text_of(keys, "question")
    answer = text_of(keys, "answer")
    if text in EXAMPLE_QUESTIONS:
        raise Malformed("the example of the prompt")
    question = {"text": text, "reference": answer, "answer_type": "text", "options": None}
    if task_type == "multiple_choice":
        options = options_of(keys)
        letter = letter_of(answer, options)
        if letter is None:
            raise Malformed("answer is none of the letters A to D")
        return {**question, "reference": letter, "answer_type": "letter", "options": options}
    if task_type == "finance_math":
        if not single_number(answer):
            raise Malformed(NO_NUMBER)
        return {**question, "answer_type": "number"}
    if length(answer) > MAX_ANSWER_TOKENS:
        raise Malformed(LONG_ANSWER)
    return question


def text_of(keys: dict[str, Any], key: str) -> str:
    """The text under a key; an answer or option may be a number. Raises Malformed if there is
    none."""
    value = keys.get(key)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and key != "question":
        value = json.dumps(value)
    if not isinstance(value, str) or not value.strip():
        raise Malformed(f"no text under {key!r}")
    return value.strip()


def options_of(keys: dict[str, Any]) -> list[str]:
    """The texts under A to D. Raises Malformed unless there are four different ones."""
    options = keys.get("options")
    if not isinstance(options, dict) or set(options) != set(LETTERS):
        raise Malformed("options are not A, B, C and D")
    texts = [text_of(options, letter) for letter in LETTERS]
    if len({text.lower() for text in texts}) < len(texts):
        raise Malformed("two options are the same")
    return texts


def single_number(answer: str) -> bool:
    """Whether an answer is one finite nonzero number, and not a fraction, sum or power.

    >>> single_number("$1,250"), single_number("0"), single_number("12 or 13"), single_number("2/3")
    (True, False, False, False)
    """
    try:
        number = number_in(answer)
    except Malformed:
        return False
    return number.plain and number.value != 0
