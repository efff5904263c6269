"""The reward model's training data: the marks of its comparisons that agree with the outcomes.

Eq. 3 is over trajectories: an answer's evidence o and its mark y. One reply of the reward model
marks the evidence of a whole group, so its tokens are chosen mark by mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from tasks.batch import datum_rows, rollouts_with
from tasks.models.engine import Policy
from tasks.rollouts.tokens import text_of, token_at
from tasks.stage import Rows, Tables, rows_by, rows_of, stage
from warehouse.schemas import BATCHES, Group, Mark, Row

FindScores = Callable[[str], list[re.Match[str]]]  # the scores of a reply, with their positions
DISAGREE = ("a high mark for a wrong answer", "a low mark for a right answer")


@stage(BATCHES)
def agreeing_marks(
    rollouts: Tables,
    marks: Tables,
    chosen: Tables,
    *,
    model: Policy,
    find_scores: FindScores,
) -> Rows:
    """Yield a datum for every comparison that has a kept mark, with equal weight on all tokens that
    are learnt.

    `chosen`: for each answer, whether its mark is kept, from `consistent.sql`. `model`: whose
    tokenizer decodes the tokens. A comparison yields nothing if the numbers of scores in its text
    and of its marks differ.
    """
    # A worked example: of the marks 5, 2 and 3 for answers that are right, right and wrong, the
    # first is kept, the second disagrees, and the third is neutral. Only the tokens of "5" are
    # learnt, because the words that argue for the marks also argue for the 2. If the second answer
    # had been wrong, the whole reply would be learnt except the "3".
    group_of = {row["group_id"]: row for row in rows_of(chosen, Group)}
    readable = (mark for mark in rows_of(marks, Mark) if mark["mark"] is not None)
    marks_of = rows_by("judge_rollout_id", readable)
    kept = {name for name, group in group_of.items() if group["kept"]}
    with_kept = [
        judge_rollout
        for judge_rollout, some in marks_of.items()
        if any(mark["rollout_id"] in kept for mark in some)
    ]
    for rollout in rollouts_with("rollout_id", with_kept, rollouts):
        ordered = sorted(marks_of[rollout["rollout_id"]], key=lambda mark: mark["position"] or 0)
        names = [mark["rollout_id"] or "" for mark in ordered]
        disagrees = any(group_of[name]["reason"] in DISAGREE for name in names if name in group_of)
        for row in datum_rows(rollout, 1.0, max_tokens=None):
            yield from _learnt(
                row,
                [name in kept for name in names],
                with_words=not disagrees,
                find_scores=find_scores,
                model=model.weights,
            )


def _learnt(
    row: Row, keeps: Sequence[bool], *, with_words: bool, find_scores: FindScores, model: str
) -> Iterator[Row]:
    """Yield the row with a loss on the kept scores alone or, `with_words`, on everything except the
    other scores. Yields nothing if the number of scores in the text differs."""
    ids = row["completion_token_ids"]
    scores = find_scores(text_of(ids, model))
    if len(scores) != len(keeps):
        return
    mask = list(row["loss_mask"]) if with_words else [0] * len(ids)
    for score, keep in zip(scores, keeps, strict=True):
        first = token_at(score.start(), ids, model)
        last = token_at(score.end() - 1, ids, model)
        for place in range(first, last + 1):
            mask[place] = row["loss_mask"][place] if keep else 0
    logprobs = [p if learns else 0.0 for p, learns in zip(row["logprobs"], mask, strict=True)]
    yield {**row, "loss_mask": mask, "logprobs": logprobs}
