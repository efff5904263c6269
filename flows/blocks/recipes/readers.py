"""Rows of released datasets as documents to learn from, or as questions to train on.

A reader takes the rows of a source in their order and yields rows of our files. Nothing here knows
where a file comes from: `recipe.py` gets it.
"""

from __future__ import annotations

import ast
import json
import logging
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.benchmarks.items import parts
from warehouse.schemas import Row

Rows = Iterator[Row]
log = logging.getLogger("selfplay")
TITLE = re.compile(r'"(?P<title>.*)"\n')
# the wording of two kinds of released questions: MAE's evaluation asks these very questions
TESTED = (
    "You are an expert Python programmer. Complete the following",  # HumanEval
    "Answer the following multiple-choice question by selecting the correct option (A, B, C, or",
)


@dataclass(frozen=True)
class Reading:
    """What readers need besides the rows."""

    text: tuple[str, ...] = ("text",)  # columns whose texts are joined
    source: str = "url"  # the column that says where a document comes from
    seed: int = 0
    draw: int | None = None  # number of questions to draw, with `seed`; None takes all
    everything: bool = False  # include questions that a benchmark also asks
    count: Callable[[str], int] | None = None  # tokens of a text
    budgets: tuple[int, int] = (32_768, 122_880)  # tokens of a padded context, at least and most
    pages: Mapping[str, str] = field(default_factory=dict)  # address to text
    columns: Mapping[str, str] = field(default_factory=dict)  # names of question, answer, pages


def documents(rows: Rows, reading: Reading) -> Rows:
    """Yield a document for every row that has a text; its `document_id` is the row's `id` or else
    its number, from 1."""
    for number, row in enumerate(rows, start=1):
        if text := "\n\n".join(parts(row, reading.text)):
            yield {
                "document_id": str(row.get("id") or number),
                "text": text,
                "source": str(row.get(reading.source) or ""),
            }


def passages(rows: Rows, reading: Reading) -> Rows:
    r"""Yield passages whose first line is the title, in quotes.

    >>> list(passages(iter([{"id": "7", "contents": '"Ada"\nShe wrote.'}]), Reading()))
    [{'document_id': '7', 'title': 'Ada', 'text': 'She wrote.', 'source': ''}]
    """
    for row in rows:
        contents = row["contents"]
        title = ""
        if opening := TITLE.match(contents):
            title = opening["title"]
            contents = contents[opening.end() :]
        yield {"document_id": str(row["id"]), "title": title, "text": contents, "source": ""}


def clusters(rows: Rows, reading: Reading) -> Rows:
    """Yield the paragraphs of each row's cluster as documents; `source` is the cluster, the row's
    `question_id`."""
    for row in rows:
        cluster = str(row["question_id"])
        for position, text in enumerate(row["paragraphs"]):
            yield {"document_id": f"{cluster}-{position}", "text": text, "source": cluster}


def rubrics(rows: Rows, reading: Reading) -> Rows:
    """Yield tasks with criteria and weights.

    DR Tulu writes both as JSON in `ground_truth`; Rubrics as Rewards has columns `question` and
    `rubric`.
    """
    for row in rows:
        if "ground_truth" in row:
            truth = json.loads(row["ground_truth"])
            task = truth["query"]
            listed = truth["rubrics"]
        else:
            task = row["question"]
            listed = row["rubric"]
        criteria = [
            {"criterion": each["description"], "weight": float(each["weight"])} for each in listed
        ]
        # a task is useful for training only if it has something to earn
        if task.strip() and any(each["weight"] > 0 for each in criteria):
            yield {"task": task.strip(), "criteria": criteria}


def musique(rows: Rows, reading: Reading) -> Rows:
    """Yield answerable questions of MuSiQue, each in a context padded with other questions'
    paragraphs.

    A context holds all of a question's own paragraphs, supporting or not, and others in a seeded
    order up to a length drawn uniformly from `budgets`. No added paragraph has the title of one of
    the question's own or contains an accepted answer. `evidence` is the supporting paragraphs.
    """
    assert reading.count is not None, "the command asks for a tokenizer"
    asked = [row for row in rows if row.get("answerable", True)]
    pool = {_paragraph(each): each for row in asked for each in row["paragraphs"]}
    texts = sorted(pool)
    lengths: dict[str, int] = {}
    if reading.draw is not None and reading.draw < len(asked):
        asked = random.Random(reading.seed).sample(asked, reading.draw)
    for row in asked:
        own = row["paragraphs"]
        chosen = [_paragraph(each) for each in own]
        accepted = [row["answer"], *row.get("answer_aliases", [])]
        titles = {each["title"] for each in own}
        order = random.Random(f"{reading.seed} {row['id']}")
        budget = order.randint(*reading.budgets)
        total = sum(_length(text, lengths, reading.count) for text in chosen)
        for text in _in_random_order(texts, order):
            if pool[text]["title"] in titles or _holds(text, accepted):
                continue
            total += _length(text, lengths, reading.count)
            if total > budget:
                break
            chosen.append(text)
        order.shuffle(chosen)
        yield {
            "id": row["id"],
            "task_type": "multi_hop",
            "question": row["question"],
            "context": "\n\n".join(chosen),
            "answers": list(dict.fromkeys(accepted)),
            "evidence": [each["paragraph_text"] for each in own if each["is_supporting"]],
        }


def _in_random_order(texts: list[str], order: random.Random) -> Iterator[str]:
    """Yield every text once, in random order, lazily: only a few are taken, so a full shuffle would
    cost more."""
    given = set[int]()
    while len(given) < len(texts):
        place = order.randrange(len(texts))
        if place not in given:
            given.add(place)
            yield texts[place]


def _paragraph(each: Mapping[str, Any]) -> str:
    return f"{each['title']}\n{each['paragraph_text']}"


def _length(text: str, lengths: dict[str, int], count: Callable[[str], int]) -> int:
    if text not in lengths:
        lengths[text] = count(text)
    return lengths[text]


def _holds(text: str, accepted: list[str]) -> bool:
    lower = text.lower()
    return any(answer.lower() in lower for answer in accepted)


def linked(rows: Rows, reading: Reading) -> Rows:
    """Yield questions with the text of the pages that they link to as context.

    A row without any of its pages is left out. A warning says how many have only some of them.
    """
    num_partial = 0
    for row in rows:
        addresses = addresses_of(row, reading.columns["pages"])
        texts = [reading.pages[each] for each in addresses if each in reading.pages]
        if texts:
            num_partial += len(texts) < len(addresses)
            yield {**row, "context": "\n\n".join(texts)}
    if num_partial:
        log.warning("questions with only some of their pages as context: %d", num_partial)


def addresses_of(row: Row, column: str) -> list[str]:
    """The addresses that a row links to, given as a list or as the text of a Python or JSON list.

    >>> addresses_of({"links": "['https://a/1,_(2)', \\"https://b/Assassin's\\"]"}, "links")
    ['https://a/1,_(2)', "https://b/Assassin's"]
    >>> addresses_of({"links": "see https://a/1, https://b/2"}, "links")
    ['https://a/1', 'https://b/2']
    """
    value = row[column] or []
    if not isinstance(value, str):
        return list(value)
    for read in (json.loads, ast.literal_eval):
        try:
            listed = read(value)
        except (ValueError, SyntaxError):
            continue
        if isinstance(listed, list):
            return list(map(str, listed))
    return re.findall(r"https?://[^\s'\",\]]+", value)


def fusionbench(rows: Rows, reading: Reading) -> Rows:
    """Yield the questions that MAE's authors released, each once, with options and passages in
    their texts.

    Without `everything`, questions with the wording of a benchmark's questions are left out.
    """
    seen = set[str]()
    for row in rows:
        text = " ".join(row["question"].split())
        if text in seen or (not reading.everything and text.startswith(TESTED)):
            continue
        seen.add(text)
        yield {"question": text, "answer": row["reward_model"]["ground_truth"]}


READERS: dict[str, Callable[[Rows, Reading], Rows]] = {
    "documents": documents,
    "passages": passages,
    "clusters": clusters,
    "rubrics": rubrics,
    "musique": musique,
    "linked": linked,
    "fusionbench": fusionbench,
}
