"""Readers of conversations that search, and the rules for a valid question."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tasks.readers.words import holds, words_of
from warehouse.schemas import PromptRow, Rollout, Row

_IN_BRACKETS = re.compile(r"\s*\([^()]*\)$")


def answer_of(title: str | None, max_words: int) -> str | None:
    """A document's title as an answer, on one line and without trailing parentheses.

    None for a title without a word, or with more than `max_words`, which is probably the beginning
    of a text.

    >>> [answer_of(title, 2) for title in ("Mercury (planet)", "Ole Berg was born", "(?)", None)]
    ['Mercury', None, None, None]
    """
    line = " ".join((title or "").split())
    answer = _IN_BRACKETS.sub("", line)
    if 1 <= len(words_of(answer)) <= max_words:
        return answer
    return None


def measure_question(rollout: Rollout, prompt: PromptRow) -> Row:
    """As `evidence`, the ids of the documents that the Proposer's searches found, in order: the
    ones that the check may show."""
    results = [result for turn in rollout["turns"] or [] for result in turn["results"] or []]
    found = [document_id for result in results for document_id in result["document_ids"]]
    return {"evidence": list(dict.fromkeys(found))}


def measure_answer(rollout: Rollout, prompt: PromptRow) -> Row:
    """How often the Solver searched."""
    return {"num_searches": rollout["num_searches"]}


def queries_of(rollout: Rollout) -> list[str]:
    """The search queries of a conversation, in order."""
    return [query for turn in rollout["turns"] or [] for query in turn["queries"]]


def rules(
    question: str,
    answer: str,
    queries: list[str],
    *,
    min_words: int,
    max_characters: int,
    min_searches: int,
) -> Mapping[str, bool]:
    """Whether a question passes each rule, by the rule's name.

    >>> rules(
    ...     "Where did Ole Berg die?",
    ...     "Aarhus",
    ...     ["Ole Berg", "ole berg"],
    ...     min_words=5,
    ...     max_characters=99,
    ...     min_searches=2,
    ... )
    {'length': True, 'answer is hidden': True, 'searched': True, 'no search twice': False}
    """
    searched = [" ".join(words_of(query)) for query in queries]
    is_long_enough = len(question.split()) >= min_words
    return {
        "length": is_long_enough and len(question) <= max_characters,
        "answer is hidden": not holds(answer, question),
        "searched": len(searched) >= min_searches,
        "no search twice": len(set(searched)) == len(searched),
    }
