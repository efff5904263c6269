"""Tables of benchmarks: items, scores of answers, and the metrics and comparisons made of these."""

from __future__ import annotations

from typing import Annotated, TypedDict

from warehouse.schemas.columns import Long, define


class Item(TypedDict):
    """A row of `items`: an item of a benchmark."""

    task_id: Annotated[
        str, "identity: the benchmark and the item's own id, or its place in the file"
    ]
    kind: Annotated[
        str | None, "the subject or type that the benchmark sorts it under", "it does not"
    ]
    text: Annotated[str, "the question"]
    context: Annotated[str | None, "what is given with the question", "nothing is"]
    options: Annotated[list[str] | None, "choices offered, in order", "it offers none"]
    references: Annotated[list[str], "the accepted answers; of a choice its letter"]
    given: Annotated[str, "JSON: what else its scorer needs"]


ITEMS = define("items", Item, grain="an item of a benchmark", key="task_id")


class ItemContext(TypedDict):
    """A row of `item_contexts`: the context of a benchmark's item, cut to the room in a prompt."""

    task_id: Annotated[str, "the item"]
    num_tokens: Annotated[Long, "of its context, in tokens of the policy"]
    kept_tokens: Annotated[Long, "of these, in the prompt: the middle of a longer one is cut out"]
    left_out: Annotated[str | None, "why the item is not asked", "it is asked"]


ITEM_CONTEXTS = define(
    "item_contexts",
    ItemContext,
    grain="the context of an item of a benchmark, as far as a prompt has room",
    key="task_id",
)


class ItemScore(TypedDict):
    """A row of `item_scores`: the answer to one item in one sample."""

    rollout_id: Annotated[str, "the answer"]
    task_id: Annotated[str, "the item"]
    sample: Annotated[int, "0-based, among the answers to the item"]
    scores: Annotated[
        dict[str, float],
        "metric to value, each 0..1: `score` is the one that stands for the benchmark",
    ]
    unscored: Annotated[
        str | None, "why it has no score: the engine, a comparison or the judge failed", "it has"
    ]


ITEM_SCORES = define(
    "item_scores", ItemScore, grain="an answer to an item: one item and sample", key="rollout_id"
)


class Evaluation(TypedDict):
    """A row of `evaluations`: a metric of a policy on a benchmark."""

    policy: Annotated[str, "the policy"]
    benchmark: Annotated[str, "which tasks"]
    metric: Annotated[str, "what was measured"]
    n: Annotated[Long, "number of tasks"]
    score: Annotated[float | None, "mean over tasks", "n is 0"]
    standard_error: Annotated[float | None, "of that mean, over tasks", "n is below 2"]
    protocol: Annotated[
        str | None,
        "JSON of what scores share that may be compared",
        "a built-in world, or a monitor",
    ]


EVALUATIONS = define(
    "evaluations",
    Evaluation,
    grain="a metric of a policy on a benchmark",
    key="policy benchmark metric",
)


class Comparison(TypedDict):
    """A row of `comparisons`: two policies on the same items, by one metric."""

    policy: Annotated[str, "the policy"]
    base: Annotated[str, "the policy that it is compared with"]
    benchmark: Annotated[str, "which items"]
    metric: Annotated[str, "what was measured"]
    n: Annotated[Long, "number of items that both have a score on"]
    num_left_out: Annotated[Long, "items that only one of them, or neither, has a score on"]
    score: Annotated[float, "mean over these items"]
    base_score: Annotated[float, "the same of the other policy"]
    difference: Annotated[float, "score - base_score"]
    low: Annotated[
        float | None, "lower end of the 95% interval of the difference, in pairs", "n is below 2"
    ]
    high: Annotated[float | None, "upper end", "n is below 2"]


COMPARISONS = define(
    "comparisons",
    Comparison,
    grain="two policies on the same items, by one metric",
    key="policy base benchmark metric",
)
