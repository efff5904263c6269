"""Trees of evidence: score the quotes of several replies, continue the best quotes with reasoning
steps, and score those steps.

    quotes = sprout(place, answers, breadth=3, label="quotes")
    rated = rate(place, quotes, marks, label="rated")  # or rate_by_similarity, without a judge
    steps = extend(place, rated, answers, rollouts, element="reasoning", label="steps")

Breadth first (Guan et al., "Evidence-Augmented Policy Optimization", section 2.2): the best node of
each level is continued.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from corpus_prep.search.settings import EmbeddingConfig
from flows.eapo.compare import marks_of
from flows.eapo.reranker import Reranker, RerankerConfig
from tasks.readers.malformed import Malformed
from tasks.readers.tags import last_element
from tasks.readers.words import overlap
from tasks.stage import Rows, Tables, rows_by, rows_of, stage
from warehouse.schemas import NODES, Answer, Mark, Node, Rollout, Task
from warehouse.store import Table

Mode = Literal["direct", "ssa", "llm-e", "llm-r", "oracle"]


class Trees(BaseModel):
    """The ways of answering that a held-out evaluation compares."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    modes: tuple[Mode, ...] = Field(
        default=(), description="modes to evaluate, each a separate benchmark in `evaluations`"
    )
    breadth: int = Field(
        default=3, ge=1, description="k: number of sets of quotes, and of reasoning steps"
    )
    highest_step: int = Field(
        default=4, ge=2, le=9, description="LLM-R marks a step from 1 to this"
    )
    embedding: EmbeddingConfig | None = Field(
        default=None,
        description="SSA's embedding model, without a reranker; null: words are compared",
    )
    reranker: RerankerConfig | None = Field(
        default=None, description="SSA's reranker, as in the paper; null: the embedding is used"
    )


@stage(NODES)
def sprout(answers: Table, *, breadth: int) -> Rows:
    """Yield the first `breadth` different sets of quotes among the answers to each task.

    A task whose answers quote nothing has no node.
    """
    # answers a, b and c that quote x, x and y become the nodes a (x) and c (y)
    for task_id, group in rows_by("task_id", answers.rows(Answer)).items():
        first: dict[str, str] = {}
        for row in group:
            if row["evidence"]:
                first.setdefault("\n".join(row["evidence"]), row["rollout_id"])
        for position, (text, rollout_id) in enumerate(list(first.items())[:breadth]):
            yield {
                "node_id": rollout_id,
                "task_id": task_id,
                "depth": 1,
                "position": position,
                "text": text,
                "best": False,
            }


@stage(NODES)
def extend(nodes: Table, answers: Table, rollouts: Table, *, element: str) -> Rows:
    """Yield the `element` of every readable reply that continues its task's best node.

    Until the nodes are rated, the first counts as the best.
    """
    parent_of = {row["task_id"]: row["node_id"] for row in nodes.rows(Node) if row["best"]}
    reply_of = {row["rollout_id"]: row["reply"] or "" for row in rollouts.rows(Rollout)}
    for task_id, group in rows_by("task_id", answers.rows(Answer)).items():
        readable = [row for row in group if row["answer"] is not None]
        for position, row in enumerate(readable):
            yield {
                "node_id": row["rollout_id"],
                "task_id": task_id,
                "parent": parent_of[task_id],
                "depth": 2,
                "position": position,
                "text": _element(reply_of[row["rollout_id"]], element),
                "best": position == 0,
            }


def _element(reply: str, name: str) -> str:
    try:
        return last_element(reply, name)
    except Malformed:
        return ""


@stage(NODES)
def rate(nodes: Table, marks: Tables) -> Rows:
    """Yield the nodes, each with its last mark from a judge."""
    yield from _rated(nodes.rows(Node), marks_of(rows_of(marks, Mark)))


@stage(NODES)
def rate_by_similarity(
    nodes: Table,
    tasks: Tables,
    *,
    embedding: EmbeddingConfig | None = None,
    reranker: RerankerConfig | None = None,
) -> Rows:
    """Yield the nodes with their similarity to the question, 0..1.

    Similarity is the reranker's score; or else the cosine of an embedding model's vectors, mapped
    from -1..1; or, without either model, the F1 of the words.
    """
    text_of = {row["task_id"]: row["text"] or "" for row in rows_of(tasks, Task)}
    rows = nodes.rows(Node)
    pairs = [(text_of[row["task_id"]], row["text"]) for row in rows]
    if reranker is not None:
        similarities = _reranked(pairs, reranker)
    elif embedding is not None:
        similarities = _cosines(pairs, embedding)
    else:
        similarities = [overlap(question, text) for question, text in pairs]
    names = [row["node_id"] for row in rows]
    yield from _rated(rows, dict(zip(names, similarities, strict=True)))


def _reranked(pairs: list[tuple[str, str]], config: RerankerConfig) -> list[float]:
    from corpus_prep.search.encoder import free_gpu_memory

    scores = Reranker(config).scores(pairs)
    free_gpu_memory()
    return scores


def _cosines(pairs: list[tuple[str, str]], embedding: EmbeddingConfig) -> list[float]:
    from corpus_prep.search.encoder import Encoder, free_gpu_memory

    encoder = Encoder(embedding)
    questions = encoder.queries([q for q, _ in pairs])
    texts = encoder.documents([(None, text) for _, text in pairs])
    del encoder
    free_gpu_memory()
    return [(1 + float(cosine)) / 2 for cosine in (questions * texts).sum(axis=1)]


def _rated(
    rows: list[Node], score_of: Mapping[str, float | None]
) -> Iterator[Mapping[str, object]]:
    """Mark each task's best node: the one with the highest score.

    On a tie, or without any score, the first is best.
    """
    for group in rows_by("task_id", rows).values():
        scores = [score_of.get(row["node_id"]) for row in group]
        # a node without a score comes after all others
        ranks = [-1.0 if score is None else score for score in scores]
        best = ranks.index(max(ranks))
        for position, (row, score) in enumerate(zip(group, scores, strict=True)):
            yield {**row, "score": score, "best": position == best}
