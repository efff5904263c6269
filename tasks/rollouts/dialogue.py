"""The messages between the turns of a conversation: search results, corrections, the demand for
an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from jinja2 import Environment, StrictUndefined
from jinja2.exceptions import TemplateError
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tasks.rollouts.neutral import neutralise, special_tokens_of
from tasks.rollouts.search_syntax import Syntax

if TYPE_CHECKING:
    from warehouse.schemas import PromptRow

ChatTemplate = Literal["model", "conversation", "none"]
SPEAKERS = {"user": "User: ", "assistant": "Assistant: "}
TEMPLATES = Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False)
SAMPLE = {
    "documents": [{"title": "t", "text": "x"}],
    "query": "q",
    "results": "r",
    "searches_left": 1,
}


class Hit(Protocol):
    """A document that a search found."""

    document_id: str
    title: str
    text: str


class Retriever(Protocol):
    """A search index. One list of hits per query, best first."""

    def search(self, queries: list[str], k: int) -> list[list[Any]]:
        """At most `k` hits per query, best first."""
        ...


class Dialogue(BaseModel):
    """How a conversation continues.

    search: syntax of searches; None: no searches.
    final: name of the element that ends the conversation (`answer`: `</answer>`); None for a single
        reply.
    max_searches: number of searches answered in one conversation, by default one less than the
        turns; a prompt's own limit takes precedence.
    results, searched, searched_out, format_error, insist: Jinja texts. `results` gets documents
        (title, text) and query; `searched` and, when no search is left, `searched_out` get results
        and searches_left.
    insist_times: how often a conversation that would end without its final element is told to
        answer now.
    documents_per_query, result_tokens: number of documents that a query returns, and number of
        tokens to which they are cut in total.
    reasoning: earlier think blocks are removed before each turn.
    prompt_tokens: a conversation whose first prompt is longer does not begin.
    context_tokens: a conversation ends at this length, if the engine's context is longer.
    chat_template: "model": the tokenizer's own; "none", for base models: the concatenated messages,
        which the model continues; "conversation": with the names of the speakers, User and
        Assistant.
    template_arguments: passed on to the chat template. A template that states the date always gets
        the same one (`conversation.PROMPT_DATE`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    search: Syntax | None = None
    final: str | None = None
    max_turns: int = Field(default=1, ge=1)
    max_searches: int | None = Field(default=None, ge=0)
    results: str = ""
    searched: str = ""
    searched_out: str = ""
    format_error: str = ""
    insist: str = ""
    insist_times: int = Field(default=0, ge=0)
    documents_per_query: int = Field(default=3, ge=1)
    result_tokens: int = Field(default=500, ge=1)
    reasoning: bool = False
    prompt_tokens: int | None = Field(default=None, ge=1)
    context_tokens: int | None = Field(default=None, ge=1)
    chat_template: ChatTemplate = "model"
    template_arguments: Mapping[str, bool | str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _says_what_it_needs(self) -> Dialogue:
        if self.max_turns > 1 and self.final is None:
            raise ValueError(
                "a conversation of several turns needs the name of its final element: set final"
            )
        needed = ["format_error"] if self.max_turns > 1 else []
        needed += ["results", "searched", "searched_out"] if self.search else []
        needed += ["insist"] if self.insist_times else []
        empty = [name for name in needed if not getattr(self, name)]
        if empty:
            raise ValueError(f"templates missing: {', '.join(empty)}")
        for name in ("results", "searched", "searched_out", "format_error", "insist"):
            try:
                say(getattr(self, name), **SAMPLE)
            except TemplateError as error:
                raise ValueError(f"template {name}: {error}") from error
        return self

    def search_limit(self, prompt: PromptRow) -> int:
        """The number of searches that this prompt's conversation may make."""
        if (own := prompt.get("search_turns")) is not None:
            return own
        if self.max_searches is None:
            return self.max_turns - 1
        return self.max_searches


@lru_cache(maxsize=256)
def _template(text: str) -> Any:
    return TEMPLATES.from_string(text)


def say(text: str, **values: Any) -> str:
    """Render a message template. Raises jinja2.UndefinedError for a variable without a value."""
    return _template(text).render(**values)


class Results:
    """Turns hits into the text of a result message.

    Titles and texts are neutralised: they come from outside and must not look like tags or chat
    markup.
    """

    def __init__(self, dialogue: Dialogue, tokenizer: Any):
        self._dialogue = dialogue
        self._tokenizer = tokenizer
        self._special = special_tokens_of(tokenizer)
        self._clean = lru_cache(maxsize=20_000)(self._clean_text)
        self._ends = lru_cache(maxsize=20_000)(self._token_ends)

    def query(self, query: str) -> str:
        """A query, made safe to display and to search for."""
        return neutralise(query, self._special)

    def text(
        self, queries: Sequence[str], hits: Sequence[Sequence[Hit]]
    ) -> tuple[str, list[list[str]]]:
        """The result text, and the document ids shown for each query."""
        chosen = merge(hits, self._dialogue.documents_per_query)
        documents = self._cut(
            [(self._clean(hit.title or ""), self._clean(hit.text)) for _, hit in chosen]
        )
        chosen = chosen[: len(documents)]
        ids = [
            [hit.document_id for own_query, hit in chosen if own_query == query]
            for query in range(len(queries))
        ]
        query = " ; ".join(queries)
        return say(self._dialogue.results, documents=documents, query=query), ids

    def _cut(self, documents: list[tuple[str, str]]) -> list[dict[str, str]]:
        """Keep documents in order until `result_tokens` are used; cut the one that exceeds them."""
        left = self._dialogue.result_tokens
        kept = []
        for title, text in documents:
            left -= len(self._ends(title))
            if left <= 0:
                break
            ends = self._ends(text)
            kept.append(
                {"title": title, "text": text if len(ends) <= left else text[: ends[left - 1]]}
            )
            left -= len(ends)
        return kept

    def _clean_text(self, text: str) -> str:
        return neutralise(text, self._special)

    def _token_ends(self, text: str) -> tuple[int, ...]:
        """The character offset of the end of each token."""
        offsets = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)[
            "offset_mapping"
        ]
        return tuple(end for _, end in offsets)


def merge(hits: Sequence[Sequence[Hit]], limit: int) -> list[tuple[int, Hit]]:
    """The best hits, taking each query in turn, every document once: (index of the query, hit)."""
    merged: dict[str, tuple[int, Hit]] = {}
    for rank in range(max(map(len, hits), default=0)):
        for query, hits_of_query in enumerate(hits):
            if rank < len(hits_of_query):
                merged.setdefault(hits_of_query[rank].document_id, (query, hits_of_query[rank]))
    return list(merged.values())[:limit]
