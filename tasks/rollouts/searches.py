"""The searches of one call's conversations: those requested at the same time run together."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

from tasks.rollouts.dialogue import Retriever

if TYPE_CHECKING:
    from warehouse.schemas import Turn

Hits = list[list[Any]]  # the hits of each query of a turn


class Searches:
    """Runs the searches of one call.

    `behind` is the executor of searches that run while the engine works on other conversations.
    Their results are awaited at the call's next replies, so a call that is alone has batches that
    do not depend on how long a search takes.
    """

    def __init__(
        self,
        retriever: Retriever | None = None,
        documents_per_query: int = 1,
        behind: Executor | None = None,
    ) -> None:
        self._retriever = retriever
        self._documents = documents_per_query
        self.behind = behind
        self._begun: Future[list[Any]] | None = None
        self._turns: Sequence[Turn] = ()

    def of(self, turns: Sequence[Turn]) -> list[Hits]:
        """Search now; return the hits of each turn's queries."""
        if turns:
            return _by_turn(turns, self._search(_queries(turns)))
        return []

    def begin(self, turns: Sequence[Turn]) -> None:
        """Start these turns' searches on `behind`; earlier results must have been collected."""
        assert self.behind is not None and self._begun is None
        if turns:
            self._turns = turns
            self._begun = self.behind.submit(self._search, _queries(turns))

    def begun(self) -> list[Hits]:
        """Wait for the searches of `begin` and return their hits."""
        if self._begun is None:
            return []
        hits = self._begun.result()
        self._begun = None
        return _by_turn(self._turns, hits)

    def are_back(self) -> bool:
        """Whether `begun` would not wait."""
        return self._begun is None or self._begun.done()

    def _search(self, queries: list[str]) -> list[Any]:
        assert self._retriever is not None
        return self._retriever.search(queries, self._documents)


def _queries(turns: Sequence[Turn]) -> list[str]:
    return [query for turn in turns for query in turn["queries"]]


def _by_turn(turns: Sequence[Turn], hits: list[Any]) -> list[Hits]:
    left = iter(hits)
    return [[next(left) for _ in turn["queries"]] for turn in turns]
