"""Replies that are only the prompt's own words, in the prompts that the methods ship."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.runtime.templates import load
from tasks.readers.copies import Instructions

FLOWS = Path(__file__).parents[3] / "flows"


def prompt(name: str) -> Instructions:
    """The instructions of a template, as `spell/english/questioner_general_qa`."""
    method, prompts, template = name.split("/")
    return Instructions.of([load(FLOWS / method / "prompts" / prompts, template).text])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("spell/english/questioner_general_qa", "the Old Toll Bridge"),
        (
            "spell/english/questioner_general_qa",
            "Which of the bridges of Halden was finished first?",
        ),
        ("spice/english/free_form", "independence from wind"),
        ("eapo/english/answer", "The answer alone, as short as it can be"),
        ("scope/english/rubrics", "First criterion."),
        (
            "scope/english/rubrics",
            "Each must tell a strong answer from a weak one, and two careful readers must agree",
        ),
        ("rzero/english/challenger", "the whole problem"),
        ("rzero/english/challenger", "its answer"),
        ("mae/english/propose", "What is the next number after 2, 3, 5, 8, 12?"),
        ("spell/lines/questioner_general_qa", "who was mount elbert named in honor of?"),
        ("scope/lines/rubrics", "Names two bridges in Dublin."),
        ("scope/lines/solver", "How does the life of Ole Berg explain the story of his film?"),
    ],
)
def test_words_of_a_prompt_are_told_from_a_reply(name, text):
    assert prompt(name).holds(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        # an answer of one word, a number or a letter may be that of an example
        ("spice/english/free_form", "false"),
        ("spice/english/multiple_choice", "1,440"),
        ("spice/english/multiple_choice", "B"),
        # its own words
        ("spell/english/questioner_general_qa", "Which bridge of Arvel was finished first?"),
        ("spell/english/questioner_general_qa", "the old bridge"),
        ("mae/english/propose", "What is the next number after 1, 2, 4, 8?"),
        ("rzero/english/challenger", "Find the number of primes below 100 that divide 2^12 - 1."),
        ("scope/english/rubrics", "Identifies 1874 as the year in which the bridge was opened."),
        ("eapo/english/answer", "as short as it can"),
        # what the document says is not the prompt's
        ("eapo/english/answer", "The bridge was opened in 1874 by the mayor of Arvel."),
    ],
)
def test_a_reply_of_its_own_is_not_taken_for_a_copy(name, text):
    assert not prompt(name).holds(text)
