"""Comparisons: one prompt shows the evidence of several rollouts, and one reply marks them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from tasks.monitors.monitor import Measured
from tasks.readers.lines import first_line
from tasks.readers.malformed import Malformed
from tasks.readers.objects import last_object
from tasks.readers.quotes import longest_common
from tasks.readers.words import words_of
from tasks.stage import rows_by
from warehouse.schemas import Answer, Criterion, Mark, PromptRow, Rollout, Row, Task

LOWEST = 1
FORM = ("reason", "scores", "best_choice")
_SCORES = re.compile(r'"scores"\s*:\s*\[([^\[\]]*)\]')
_SCORE = re.compile(r"\d(?:\.0)?")


def read_scores(rollout: Rollout, prompt: PromptRow, *, highest: int) -> list[Row]:
    """A mark for each rollout shown, in the order shown, with 1..`highest` mapped to 0..1; and
    which of them is named as the best.

    Raises Malformed unless there is one score per rollout, each an integer in 1..`highest`. A
    choice that is not the position of a rollout is ignored.
    """
    compared = prompt["rollout_ids"] or []
    comparison = last_object(rollout["reply"] or "", FORM)
    scores = comparison.get("scores")
    if not isinstance(scores, list):
        raise Malformed("no list of scores")
    if len(scores) != len(compared):
        raise Malformed("another number of scores than of sets")
    best = _place(comparison.get("best_choice"), len(compared))
    rows = []
    for position, (rollout_id, score) in enumerate(zip(compared, scores, strict=True)):
        mark = (_integer(score, highest) - LOWEST) / (highest - LOWEST)
        is_best = None if best is None else position == best
        rows.append(
            {"rollout_id": rollout_id, "position": position, "mark": mark, "is_best": is_best}
        )
    return rows


def find_scores(text: str) -> list[re.Match[str]]:
    """The scores in a comparison's text, with their positions.

    >>> [score.span() for score in find_scores('Set 1. {"scores": [5, 2]}')]
    [(19, 20), (22, 23)]
    """
    score_lists = list(_SCORES.finditer(text))
    if not score_lists:
        return []
    return list(_SCORE.finditer(text, *score_lists[-1].span(1)))


def read_scores_in_line(rollout: Rollout, prompt: PromptRow, *, highest: int) -> list[Row]:
    """A mark for each rollout of a prompt, in their order, from a line of numbers: `2 5 1`.

    The best rollouts are those with the highest mark, unless all marks are equal. Raises Malformed
    as `read_scores` does.
    """
    rollout_ids = prompt["rollout_ids"] or []
    scores = first_line(rollout["reply"] or "").replace(",", " ").split()
    if not scores:
        raise Malformed("no list of scores")
    if len(scores) != len(rollout_ids):
        raise Malformed("another number of scores than of sets")
    marks = [(_integer(score, highest) - LOWEST) / (highest - LOWEST) for score in scores]
    return [
        {
            "rollout_id": rollout_id,
            "position": position,
            "mark": mark,
            "is_best": min(marks) < mark == max(marks),
        }
        for position, (rollout_id, mark) in enumerate(zip(rollout_ids, marks, strict=True))
    ]


def find_scores_in_line(text: str) -> list[re.Match[str]]:
    """The scores on the first nonblank line of a text, with their positions in the text.

    >>> [score.span() for score in find_scores_in_line(" 5 2\\nQuestion 3: who left?")]
    [(1, 2), (3, 4)]
    """
    start = len(text) - len(text.lstrip())
    return list(_SCORE.finditer(text, start, start + len(first_line(text))))


def _place(choice: object, num_shown: int) -> int | None:
    """The 0-based position that a reply names; None if it names none of those shown."""
    text = str(choice).strip()
    if isinstance(choice, bool) or not re.fullmatch(r"\d{1,3}(?:\.0)?", text):
        return None
    place = int(text.removesuffix(".0"))
    if place >= num_shown:
        return None
    return place


def _integer(score: object, highest: int) -> int:
    text = str(score).strip()
    if isinstance(score, bool) or not re.fullmatch(rf"[{LOWEST}-{highest}](?:\.0)?", text):
        raise Malformed(f"a score is no integer from {LOWEST} to {highest}")
    return int(text[0])


def marks_of(marks: Iterable[Mark]) -> dict[str, float]:
    """The last mark of every rollout that has one."""
    return {
        row["rollout_id"]: row["mark"]
        for row in marks
        if row["rollout_id"] and row["mark"] is not None
    }


# ---- measures ----


def not_compared(marks: list[Mark]) -> Measured:
    """Yield `not_compared` for every group: 1 if none of its comparison's replies can be read, else
    0."""
    for group in rows_by("prompt_id", marks).values():
        yield "not_compared", float(all(row["mark"] is None for row in group))


def true_marks(
    marks: list[Mark],
    answers: list[Answer],
    tasks: list[Task],
    *,
    oracle: Callable[[str, Sequence[str]], float | None],
) -> Measured:
    """Yield, for every mark that `oracle` can check, whether it is wrong, the mark minus the true
    mark, and the true mark."""
    text_of = {row["task_id"]: row["text"] for row in tasks}
    evidence_of = {row["rollout_id"]: row["evidence"] for row in answers}
    for row in marks:
        text = text_of[row["task_id"]]
        quotes = evidence_of.get(row["rollout_id"] or "")
        if text is None or not quotes or row["mark"] is None:
            continue
        truth = oracle(text, quotes)
        if truth is not None:
            yield "mark_error", float(abs(row["mark"] - truth) > 1e-9)
            yield "mark_minus_truth", row["mark"] - truth
            yield "true_mark", truth


def best_of_n(marks: list[Mark], answers: list[Answer], evidence: list[Criterion]) -> Measured:
    """Yield 1 for a group if the answer that the comparison names as the best has the highest
    ROUGE-L recall of the evidence, else 0.

    If it names none, yield the share with the highest recall among the answers with the highest
    mark. Groups whose answers all have equal recall are skipped.
    """
    mark_of = marks_of(marks)
    named_best = {row["rollout_id"] for row in marks if row["is_best"]}
    evidence_of = rows_by("task_id", evidence)
    marked = (row for row in answers if row["rollout_id"] in mark_of)
    for group in rows_by("prompt_id", marked).values():
        sentences = [row["criterion"] or "" for row in evidence_of[group[0]["task_id"]]]
        gold = words_of("\n".join(sentences))
        recall_of = {
            row["rollout_id"]: longest_common(gold, words_of("\n".join(row["evidence"] or ())))
            for row in group
        }
        best = max(recall_of.values())
        if min(recall_of.values()) == best:
            continue
        chosen = [name for name in recall_of if name in named_best]
        if not chosen:
            # a group of recalls 1, 0.5, 0 and marks 1, 1, 0.5 gives 1/2; chance gives 1/3
            highest = max(mark_of[name] for name in recall_of)
            chosen = [name for name in recall_of if mark_of[name] == highest]
        yield "best_of_n", sum(recall_of[name] == best for name in chosen) / len(chosen)
        yield "best_of_n_by_chance", list(recall_of.values()).count(best) / len(recall_of)
