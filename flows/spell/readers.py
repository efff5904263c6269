"""What SPELL's replies mean. A reader looks only past the last think block and raises `Malformed` with the reason.

A question that is in good form but not of use (its answer too long, no single number, cut off while thinking) is
dropped without penalty: its reason is one of `NO_PENALTY`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from flows.spell.rules import number_of
from tasks.prompt import Malformed, Row

LETTERS = ("A", "B", "C", "D")
MAX_ANSWER_TOKENS = 40
CUT_THINKING = "cut off inside its thinking"
LONG_ANSWER = "answer too long"
NO_NUMBER = "answer is no single non-zero number"
NO_PENALTY = (CUT_THINKING, LONG_ANSWER, NO_NUMBER)
STATED = re.compile(r"\b(?:the|final)\s+(?:(?:correct|final)\s+)?answer\s+is\b\s*:?", re.IGNORECASE)
VERDICT = re.compile(r"\[\[\s*(YES|NO)\s*\]\]", re.IGNORECASE)
WRAPPED = (("**", "**"), ("(", ")"), ("[", "]"), ('"', '"'), ("“", "”"), ("$", "$"), ("\\boxed{", "}"))


def spoken(reply: str) -> str:
    """The part of a reply after its last think block. An unclosed one hides all that follows it."""
    return reply.rpartition("</think>")[2].partition("<think>")[0]


def still_thinking(reply: str) -> bool:
    return "<think>" in reply.rpartition("</think>")[2]


def read_question(reply: str, task_type: str, count_tokens: Callable[[str], int]) -> Row:
    """The last JSON object of a reply: text, reference, answer_type, and options for multiple choice.

    Raises Malformed: no object, a key missing or of another type, a letter that is none, options that are not four
    different texts; and, without penalty, what `NO_PENALTY` names.

    >>> read_question('so { "question": "Who?", "answer": "Ada" }', "general_qa", len)["reference"]
    'Ada'
    """
    found = last_object(spoken(reply))
    question, answer = text_of(found, "question"), text_of(found, "answer")
    read = {"text": question, "reference": answer, "answer_type": "text", "options": None}
    if task_type == "multiple_choice":
        letter = answer.strip("()[]. ").upper()
        if letter not in LETTERS:
            raise Malformed("answer is none of the letters A to D")
        return {**read, "reference": letter, "answer_type": "letter", "options": options_of(found)}
    if task_type == "finance_math":
        if not single_number(answer):
            raise Malformed(NO_NUMBER)
        return {**read, "answer_type": "number"}
    if count_tokens(answer) > MAX_ANSWER_TOKENS:
        raise Malformed(LONG_ANSWER)
    return read


def last_object(text: str) -> dict[str, Any]:
    """The last JSON object that does not lie within another; a trailing comma, which the models like, is forgiven."""
    decoder, found, at = json.JSONDecoder(strict=False), None, 0
    text = re.sub(r",(\s*[}\]])", r"\1", text)
    while (at := text.find("{", at)) >= 0:
        try:
            value, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            at += 1
            continue
        found = value if isinstance(value, dict) else found
    if found is None:
        raise Malformed("no JSON object")
    return found


def text_of(found: dict[str, Any], key: str) -> str:
    value = found.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and key == "answer":
        value = json.dumps(value)
    if not isinstance(value, str) or not value.strip():
        raise Malformed(f"no text under {key!r}")
    return value.strip()


def options_of(found: dict[str, Any]) -> list[str]:
    options = found.get("options")
    if not isinstance(options, dict) or set(options) != set(LETTERS):
        raise Malformed("options are not A, B, C and D")
    texts = [text_of(options, letter) for letter in LETTERS]
    if len({text.lower() for text in texts}) < len(texts):
        raise Malformed("two options are the same")
    return texts


def single_number(answer: str) -> bool:
    """One number that is not zero, and nothing else but signs and units.

    >>> single_number("$1,250"), single_number("0"), single_number("12 or 13"), single_number("twelve")
    (True, False, False, False)
    """
    try:
        return number_of(answer) != 0
    except Malformed:
        return False


def read_answer(reply: str) -> str:
    """What follows the last "the answer is", to the end of its line, without full stop and wrapping.

    >>> read_answer("<think>the answer is 3</think> Therefore, the answer is **(12.5%)**.")
    '12.5%'
    """
    said = spoken(reply)
    places = list(STATED.finditer(said))
    if not places:
        raise Malformed("no answer is stated")
    answer = said[places[-1].end() :].strip().partition("\n")[0].strip()
    while answer != (bare := unwrapped(answer)):
        answer = bare
    if not answer:
        raise Malformed("the stated answer is empty")
    return answer


def unwrapped(text: str) -> str:
    text = text.removesuffix(".").strip()
    for opening, closing in WRAPPED:
        inside = text[len(opening) : len(text) - len(closing)]
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) and opening not in inside:
            return inside.strip()
    return text


def read_vote(reply: str) -> int:
    """1 for the last verdict being [[YES]], 0 for [[NO]].

    >>> read_vote("<think>[[NO]]</think> They differ in form only. [[YES]]")
    1
    """
    found = VERDICT.findall(spoken(reply))
    if not found:
        raise Malformed("no verdict")
    return int(found[-1].upper() == "YES")
