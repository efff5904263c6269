"""Score answers to the items of a benchmark, compute metrics from the scores, and compare two
policies on the same items."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tasks.evaluate import Protocol, mean_and_error
from tasks.processes.comparison_child import serve
from tasks.processes.comparisons import Workers
from tasks.read import NOT_SAMPLED
from tasks.scorers import SCORERS
from tasks.scorers.rubric import share_met
from tasks.stage import Rows, Tables, rows_by, rows_of, stage
from warehouse.schemas import (
    COMPARISONS,
    ITEM_SCORES,
    Answer,
    Item,
    ItemContext,
    ItemScore,
    Rollout,
    Row,
)
from warehouse.store import Table

SCORE = "score"
READABLE = "readable"
CONFIDENCE = 0.95
MOST_KINDS = 30
JUDGED = "judged"
UNREAD_VERDICT = "unread_verdict"
NO_VERDICT = "the judge gave no verdict"


@stage(ITEM_SCORES, tools=("num_workers",), code=(serve,))
def score_items(
    items: Table,
    answers: Table,
    rollouts: Table,
    judged: Tables = (),
    *,
    scorer: str,
    metric: Sequence[str],
    protocol: Protocol,
    time_limit_s: float = 10.0,
    num_workers: int = 1,
) -> Rows:
    """Yield one row per answer: the metrics of `scorer`, `readable`, `judged` if a judge voted, and
    `score`, the best of the metrics named in `metric`.

    An unreadable reply scores 0 on every metric. A verdict that cannot be read counts as NO, and
    `unread_verdict` is 1: long answers lead to long verdicts, so a mean without verdicts that were
    cut off would favour short answers. An answer is unscored if its own engine or the judge's
    failed, or if its comparison timed out or crashed: it is counted, but enters no mean. The recipe
    stores `protocol` for `compare`.
    """
    item_of = {row["task_id"]: row for row in items.rows()}
    sample_of = {row["rollout_id"]: row["sample"] for row in rollouts.rows(Rollout)}
    votes = verdicts(rows_of(judged), item_of, answers.rows(Answer)) if judged else None
    rows = answers.rows(Answer)
    metrics = SCORERS[scorer].metrics
    with Workers(SCORERS[scorer].score, time_limit_s, num_workers) as workers:

        def scored(answer: Answer) -> Row:
            scores, reason = _scores(answer, item_of[answer["task_id"]], metrics, workers, votes)
            return {
                "rollout_id": answer["rollout_id"],
                "task_id": answer["task_id"],
                "sample": sample_of[answer["rollout_id"]],
                "scores": {} if reason else {**scores, SCORE: max(scores[name] for name in metric)},
                "unscored": reason,
            }

        yield from workers.map(scored, rows)


def _scores(
    answer: Answer,
    item: Row,
    metrics: Sequence[str],
    workers: Workers,
    votes: dict[str, Verdict | None] | None,
) -> tuple[dict[str, float], str | None]:
    """The metrics of one answer, or why it has none."""
    if answer["answer"] is None:
        names = [*metrics, READABLE, *([JUDGED, UNREAD_VERDICT] if votes is not None else [])]
        failed = answer["malformed"] if answer["malformed"] in NOT_SAMPLED else None
        return dict.fromkeys(names, 0.0), failed
    outcome = workers.compare(item, answer["answer"])
    if outcome.matched is None:
        return {}, outcome.reason
    scores = {**outcome.matched, READABLE: 1.0}
    if votes is not None:
        verdict = votes.get(answer["rollout_id"])
        if verdict is None:
            return {}, NO_VERDICT
        scores[JUDGED] = verdict.score
        scores[UNREAD_VERDICT] = float(verdict.is_unread)
    return scores, None


@dataclass(frozen=True)
class Verdict:
    """A judge's score of an answer, 0..1, and whether part of the verdict could not be read."""

    score: float
    is_unread: bool


def verdicts(
    judged: list[Row], item_of: dict[str, Row], answers: list[Answer]
) -> dict[str, Verdict | None]:
    """The judge's verdict on each answer, by rollout id; None if it is missing or was not sampled.

    Its score is the judge's vote, the share of criteria met if it judged by criterion, or the mean
    of its marks. A vote that cannot be read counts as NO, and an unreadable mark as 0.
    """
    given_to: dict[str, list[Row]] = defaultdict(list)
    for row in judged:
        given_to[row["rollout_id"]].append(row)
    return {
        answer["rollout_id"]: _verdict(given_to[answer["rollout_id"]], item_of[answer["task_id"]])
        for answer in answers
    }


def _verdict(rows: list[Row], item: Row) -> Verdict | None:
    """The verdict in a judge's rows about one answer."""
    if any("mark" in row for row in rows):
        return _verdict_of_marks(rows, json.loads(item["given"]))
    # if a prompt was sampled again, its last reply counts
    last = {row.get("criterion_id", ""): row for row in rows}
    criteria = json.loads(item["given"]).get("criteria") or [{"weight": 1.0}]
    keys = [""] if "" in last else [str(position) for position in range(len(criteria))]
    if not last or any(key not in last or _is_not_sampled(last[key]) for key in keys):
        return None
    votes = [last[key].get("vote", last[key].get("verdict")) for key in keys]
    weights = [criterion["weight"] for criterion in criteria]
    if keys == [""]:  # one vote on the whole answer, whatever the item's rubric
        weights = [1.0]
    return Verdict(score=share_met(votes, weights), is_unread=None in votes)


def _verdict_of_marks(rows: list[Row], given: Row) -> Verdict | None:
    """The mean of all marks in the last reply to each prompt. There is one prompt, or two if the
    answer is compared with a baseline's in both orders. A reply that cannot be read counts as one
    mark of 0."""
    replies: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        replies[row["prompt_id"]][row["judge_rollout_id"]].append(row)
    last = [list(replies_to_prompt.values())[-1] for replies_to_prompt in replies.values()]
    marks = [row for reply in last for row in reply]
    num_prompts = 2 if "against" in given else 1
    if len(last) < num_prompts or any(_is_not_sampled(row) for row in marks):
        return None
    values = [row["mark"] for row in marks]
    score = math.fsum(value or 0.0 for value in values) / len(values)
    return Verdict(score=score, is_unread=None in values)


def _is_not_sampled(row: Row) -> bool:
    return row["malformed"] in NOT_SAMPLED


def measure_items(
    items: list[Item],
    scores: list[ItemScore],
    contexts: Sequence[ItemContext] = (),
    *,
    passes: Sequence[int] = (),
) -> Iterator[tuple[str, float]]:
    """Yield for every item the mean of each metric over its scored answers and `pass_at_k`.

    With several answers, `score` is avg@k; an answer with score 1 passes. Also yields `unscored`,
    the share of unscored answers, for every item. With contexts, also yields `left_out`, whether
    the item was left out, which is all that such an item yields, and `cut_context`, whether its
    context was cut to fit. `score_<kind>` is added if there are at most 30 kinds.
    """
    of_item = rows_by("task_id", scores)
    kinds = {item["kind"] for item in items}
    context_of = {row["task_id"]: row for row in contexts}
    for item in items:
        context = context_of.get(item["task_id"])
        if context is not None:
            yield "left_out", float(context["left_out"] is not None)
            if context["left_out"] is not None:
                continue
            yield "cut_context", float(context["kept_tokens"] < context["num_tokens"])
        rows = of_item.get(item["task_id"], [])
        scored = [row["scores"] for row in rows if row["unscored"] is None]
        yield "unscored", 1 - len(scored) / len(rows) if rows else 1.0
        for name in scored[0] if scored else ():
            yield name, math.fsum(row[name] for row in scored) / len(scored)
        right = sum(row[SCORE] == 1 for row in scored)
        for k in passes:
            if k <= len(scored):
                yield f"pass_at_{k}", pass_at(k, len(scored), right)
        if scored and item["kind"] and len(kinds) <= MOST_KINDS:
            yield (
                f"{SCORE}_{item['kind']}",
                math.fsum(row[SCORE] for row in scored) / len(scored),
            )


def pass_at(k: int, n: int, right: int) -> float:
    """1 - C(n - right, k) / C(n, k): the probability that k of n answers, drawn without
    replacement, include a right one; an unbiased estimate (Chen et al., arXiv 2107.03374, eq. 1).

    >>> pass_at(1, 4, 1), pass_at(2, 4, 1), pass_at(4, 4, 1)
    (0.25, 0.5, 1.0)
    """
    return 1 - math.comb(n - right, k) / math.comb(n, k)


@stage(COMPARISONS)
def compare(
    scores: Table,
    base_scores: Table,
    *,
    policy: str,
    base: str,
    benchmark: str,
    besides: Collection[str] = (),
) -> Rows:
    """Yield one row per metric: the mean difference between two policies over the items on which
    both have a score.

    Each item is one observation: the difference of its two means over samples. So differences in
    difficulty between items do not count as noise, and samples of one item do not count as
    independent. The interval is Student's t interval of these differences, as in
    scipy.stats.ttest_rel. Raises ValueError if the protocols of the scores differ in anything
    except `besides`.
    """
    differs = differences(
        _without(protocol_of(base_scores), besides), _without(protocol_of(scores), besides)
    )
    if differs:
        raise ValueError(
            f"{policy} and {base} cannot be compared on {benchmark}: {'; '.join(differs)}"
        )
    ours, theirs = (rows_by("task_id", table.rows(ItemScore)) for table in (scores, base_scores))
    for name in dict.fromkeys(
        name for rows in ours.values() for row in rows for name in row["scores"]
    ):
        pairs = [(_mean(ours[task], name), _mean(theirs.get(task, []), name)) for task in ours]
        both = [(one, other) for one, other in pairs if one is not None and other is not None]
        if both:
            low, high = interval([one - other for one, other in both])
            mean, base_mean = (math.fsum(side) / len(both) for side in zip(*both, strict=True))
            yield {
                "policy": policy,
                "base": base,
                "benchmark": benchmark,
                "metric": name,
                "n": len(both),
                "num_left_out": len(pairs) - len(both),
                "score": mean,
                "base_score": base_mean,
                "difference": mean - base_mean,
                "low": low,
                "high": high,
            }


def interval(
    values: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float | None, float | None]:
    """Student's t interval of a mean; (None, None) for fewer than two values.

    >>> [round(end, 4) for end in interval([1.0, 0.0, 1.0, 1.0, -1.0])]
    [-0.7106, 1.5106]
    """
    from scipy.stats import t

    mean, error = mean_and_error(values)
    if error is None:
        return None, None
    reach = float(t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return mean - reach, mean + reach


def protocol_of(scores: Table) -> Protocol:
    """The protocol that `score_items` stored in the recipe of a table of item scores."""
    return scores.recipe["params"]["protocol"]


def _without(protocol: Protocol, keys: Collection[str]) -> Protocol:
    return {key: value for key, value in protocol.items() if key not in keys}


def differences(base: Protocol, ours: Protocol) -> list[str]:
    """The differences between two protocols.

    >>> differences({"judge": None, "samples": 1}, {"judge": "J", "samples": 1})
    ['judge is J, was None']
    """
    return [
        f"{key} is {ours.get(key)}, was {base.get(key)}"
        for key in base | ours
        if base.get(key) != ours.get(key)
    ]


def _mean(rows: list[ItemScore], metric: str) -> float | None:
    """The mean over the answers of an item that have the metric."""
    values = [row["scores"][metric] for row in rows if metric in row["scores"]]
    if values:
        return math.fsum(values) / len(values)
    return None
