"""A search dialogue with a scripted engine and a library that finds the same text for every
query."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.models.engine import Sampling
from tasks.rollouts.rollout import Dialogue, roll_out
from tests.support.scripted import POLICY, word_tokenizer

SAMPLING = Sampling(max_tokens=20, stop=("</search>", "</answer>"))
TALK = Dialogue(
    search="tags",
    final="answer",
    max_turns=3,
    results="<information> {% for d in documents %}{{ d.text }} {% endfor %}</information>",
    searched="{{ results }} search left {{ searches_left }}",
    searched_out="{{ results }} search left none",
    format_error="format error",
    insist="answer now",
)


@dataclass(frozen=True)
class Found:
    document_id: str
    text: str
    title: str = ""


class Library:
    """Finds `text` for each query, and remembers the batches of queries."""

    def __init__(self, text="the moon"):
        self.text = text
        self.batches = []

    def search(self, queries, k):
        self.batches.append(list(queries))
        return [[Found(f"doc {query}", self.text)] for query in queries]


def prompt(prompt_id="p", content="a b", search_turns=None):
    messages = [{"role": "user", "content": content}]
    return {
        "prompt_id": prompt_id,
        "role": "solver",
        "messages": messages,
        "search_turns": search_turns,
    }


def script(*replies):
    """Replies by the number of assistant turns so far."""
    return lambda key, text: replies[min(text.count("assistant") - 1, len(replies) - 1)]


def converse(engine, dialogue=TALK, library=None, prompts=None, **settings):
    prompts = prompts or [prompt()]
    return list(
        roll_out(engine, prompts, POLICY, SAMPLING, dialogue, library or Library(), **settings)
    )


def words(ids):
    return word_tokenizer().decode(ids)
