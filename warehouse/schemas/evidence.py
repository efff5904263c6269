"""Tables of how a policy finds evidence: trees of quotes and steps, and needles in haystacks."""

from __future__ import annotations

from typing import Annotated, TypedDict

from warehouse.schemas.columns import define


class Node(TypedDict):
    """A row of `nodes`: a node of the tree from which a task is answered."""

    node_id: Annotated[str, "the rollout that says it"]
    task_id: Annotated[str, "the task: the root of the tree"]
    parent: Annotated[str | None, "the node that it continues", "the question itself"]
    depth: Annotated[int, "1 for quotes, 2 for the reasoning that follows from them"]
    position: Annotated[int, "0-based place among its siblings"]
    text: Annotated[str, "what it says: quotes, one a line, or reasoning"]
    score: Annotated[
        float | None,
        "how useful it is held to be, 0..1",
        "not judged, or the judge's reply is malformed",
    ]
    best: Annotated[bool, "whether the answer's path goes through it"]


NODES = define("nodes", Node, grain="a node of the tree that a task is answered by", key="node_id")


class Needle(TypedDict):
    """A row of `needles`: an answer about a sentence hidden in a long text."""

    rollout_id: Annotated[str, "the answer"]
    task_id: Annotated[str, "the task that asks for the needle"]
    length_tokens: Annotated[int, "length of the haystack, in tokens of the policy"]
    depth: Annotated[float, "where the needle is, 0 at the beginning and 1 at the end"]
    quoted: Annotated[
        bool | None, "whether the whole sentence is among the quotes", "the reply could not be read"
    ]
    correct: Annotated[bool | None, "whether the answer is right", "nobody can tell"]


NEEDLES = define(
    "needles", Needle, grain="an answer about a sentence hidden in a long text", key="rollout_id"
)
