"""Pairs of replies to one prompt, a better and a worse one, and the rows of an update on them.

found = pairs(place, rollouts, prompts, annotations=labels, verdicts=[judgments, votes], ...)
rows = preference_batch(place, rollouts, found, held_out=False)
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import pyarrow as pa
import pyarrow.compute as pc

from tasks.batch import datum_rows, rollouts_with
from tasks.rollouts.rollout import datums
from tasks.stage import Rows, Tables, as_tables, rows_of, stage
from warehouse.draft import unit_draw
from warehouse.schemas import BATCHES, PAIRS, Annotation, Datum, Pair, ReferenceRow, Rollout, Row
from warehouse.store import Table

GOOD = "good"
NOT_SURE = "unsure"
# the column of each table of verdicts that holds the verdict
VERDICTS = {"judgments": "verdict", "votes": "vote", "gates": "passed"}
ONE_OPINION = "only one reply has an opinion"
ALL_EQUAL = "all opinions are equal"
SAME_WORDS = "both replies say the same"
REPEATED = "another pair of the prompt says the same"
NOT_ONE_ROW = "a reply is no single row of training"


@dataclass(frozen=True)
class Opinion:
    """An opinion on a reply: the higher its `worth`, the better; `why` says who thinks so."""

    worth: float
    why: str


@stage(PAIRS)
def pairs(
    rollouts: Tables,
    prompts: Tables,
    *,
    annotations: Tables = (),
    verdicts: Tables = (),
    rewards: Tables = (),
    pairs_per_prompt: int,
    held_out: float,
    seed: int,
    max_tokens: int | None = None,
) -> Rows:
    """Yield the pairs of every prompt that has an opinion on one of its replies: a person's label
    or a reward.

    A prompt's best reply is paired with its worst, the second best with the second worst, and so
    on, as long as their worth differs, up to `pairs_per_prompt`. So no reply is in two pairs.
    A label on a verdict tells which verdict is right, and so judges all verdicts on the same
    prompt. `held_out` is the share of tasks, drawn with `seed`, that are only measured. A pair is
    not kept, with the reason, if both replies are the same, if it repeats another pair of the
    prompt, if a reply and its prompt exceed `max_tokens`, or if a conversation is not a single
    training row.
    """
    opinion_of = _of_rewards(rewards)
    opinion_of |= _of_labels(annotations)
    opinion_of |= _of_labelled_verdicts(annotations, verdicts, rollouts)
    task_of = {row["prompt_id"]: row["task_id"] for row in rows_of(prompts)}
    groups: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts_with("rollout_id", opinion_of, rollouts):
        groups[rollout["prompt_id"]].append(rollout)
    for prompt_id, group in sorted(groups.items()):
        task_id = task_of.get(prompt_id)
        is_held_out = unit_draw(seed, task_id or prompt_id) < held_out
        for number, found in enumerate(_pairs_of(group, opinion_of, pairs_per_prompt, max_tokens)):
            yield {
                "pair_id": f"{prompt_id}-{number}",
                "prompt_id": prompt_id,
                "task_id": task_id,
                "held_out": is_held_out,
                **found,
            }


def _pairs_of(
    group: Sequence[Rollout],
    opinion_of: Mapping[str, Opinion],
    most: int,
    max_tokens: int | None,
) -> Iterator[Row]:
    """Yield the pairs of one prompt, or one row that says why it has none."""
    by_worth = sorted(
        group, key=lambda rollout: (-opinion_of[rollout["rollout_id"]].worth, rollout["sample"])
    )
    said: set[str] = set()
    for number in range(min(most, len(by_worth) // 2)):
        chosen = by_worth[number]
        rejected = by_worth[-1 - number]
        better = opinion_of[chosen["rollout_id"]]
        worse = opinion_of[rejected["rollout_id"]]
        if better.worth == worse.worth:
            break
        words = json.dumps([_words(chosen), _words(rejected)])
        reason = _why_not(chosen, rejected, max_tokens)
        if reason is None and words in said:
            reason = REPEATED
        said.add(words)
        yield {
            "chosen": chosen["rollout_id"],
            "rejected": rejected["rollout_id"],
            "chosen_worth": better.worth,
            "rejected_worth": worse.worth,
            "why": f"chosen: {better.why}; rejected: {worse.why}",
            "kept": reason is None,
            "reason": reason,
        }
    if said:
        return
    yield {
        "chosen": None,
        "rejected": None,
        "chosen_worth": None,
        "rejected_worth": None,
        "why": "; ".join(sorted({opinion_of[row["rollout_id"]].why for row in group})),
        "kept": False,
        "reason": ONE_OPINION if len(group) == 1 else ALL_EQUAL,
    }


def _words(rollout: Rollout) -> list[list[int]]:
    return [turn["sampled_token_ids"] for turn in rollout["turns"] or []]


def _why_not(chosen: Rollout, rejected: Rollout, max_tokens: int | None) -> str | None:
    """Why two replies cannot be trained on as a pair; None if they can."""
    if _words(chosen) == _words(rejected):
        return SAME_WORDS
    for rollout in (chosen, rejected):
        rows = list(datums(rollout))
        if len(rows) != 1:
            return NOT_ONE_ROW
        num_tokens = len(rows[0]["prompt_token_ids"]) + len(rows[0]["completion_token_ids"])
        if max_tokens is not None and num_tokens > max_tokens:
            return f"a reply with its prompt has more than {max_tokens} tokens"
    return None


# ---- opinions, by rollout id ----


def _of_rewards(rewards: Tables) -> dict[str, Opinion]:
    """Opinions from rewards, for the replies that have one."""
    return {
        row["rollout_id"]: Opinion(row["reward"], f"reward {row['reward']:g}")
        for row in rows_of(rewards)
        if row["reward"] is not None
    }


def _of_labels(annotations: Tables) -> dict[str, Opinion]:
    """Opinions from people's labels of replies and of tasks; a task's label is one of the reply
    that wrote it. Any label other than good counts against a reply; `unsure` and notes are no
    opinions."""
    labels: dict[str, list[Annotation]] = defaultdict(list)
    for row in rows_of(annotations, Annotation):
        if row["kind"] != "verdict" and row["opinion"] not in (None, NOT_SURE):
            labels[row["subject"]].append(row)
    return {
        subject: Opinion(
            worth=fmean(row["opinion"] == GOOD for row in rows),
            why=", ".join(f"{row['opinion']} ({row['labeller']})" for row in rows),
        )
        for subject, rows in labels.items()
    }


def _of_labelled_verdicts(
    annotations: Tables, verdicts: Tables, rollouts: Tables
) -> dict[str, Opinion]:
    """Opinions on all readable verdicts of prompts with a labelled verdict: 1 if right, else 0.

    A verdict labelled good is right; one labelled bad is wrong, so the opposite verdict is right.
    The majority of a prompt's labels decides; if they are tied, its verdicts get no opinion.
    """
    verdict_of: dict[str, int] = {}
    for table in as_tables(verdicts):
        verdict = VERDICTS[table.at.table or ""]
        for row in table.rows():
            if row["judge_rollout_id"] is not None and row[verdict] is not None:
                verdict_of[row["judge_rollout_id"]] = int(row[verdict])
    prompt_of: dict[str, str] = {}
    wanted = pc.field("rollout_id").isin(pa.array(list(verdict_of), pa.string()))
    for table in as_tables(rollouts):
        ids = table.arrow.select(["rollout_id", "prompt_id"]).filter(wanted)
        prompt_of |= dict(
            zip(ids["rollout_id"].to_pylist(), ids["prompt_id"].to_pylist(), strict=True)
        )
    right_of: dict[str, Counter[int]] = defaultdict(Counter)
    labellers: dict[str, set[str]] = defaultdict(set)
    for row in rows_of(annotations, Annotation):
        if row["kind"] != "verdict" or row["opinion"] in (None, NOT_SURE):
            continue
        subject = row["subject"]
        if subject in verdict_of and subject in prompt_of:
            verdict = verdict_of[subject]
            right = verdict if row["opinion"] == GOOD else 1 - verdict
            right_of[prompt_of[subject]][right] += 1
            labellers[prompt_of[subject]].add(row["labeller"])
    opinions = {}
    for rollout_id, verdict in verdict_of.items():
        prompt_id = prompt_of.get(rollout_id, "")
        votes = right_of[prompt_id]
        if votes[0] == votes[1]:
            continue
        is_right = votes[verdict] > votes[1 - verdict]
        people = ", ".join(sorted(labellers[prompt_id]))
        opinions[rollout_id] = Opinion(
            worth=float(is_right),
            why=f"verdict {verdict} is {'right' if is_right else 'wrong'} ({people})",
        )
    return opinions


# ---- rows to train on, and to measure ----


@stage(BATCHES)
def preference_batch(rollouts: Tables, pairs: Table, *, held_out: bool) -> Rows:
    """Yield two consecutive datums for every kept pair: the chosen reply with advantage 1, the
    rejected with -1. `held_out`: yield the pairs to measure, not those to train on."""
    kept = [row for row in pairs.rows(Pair) if row["kept"] and row["held_out"] == held_out]
    ids = [rollout_id for row in kept for rollout_id in (row["chosen"], row["rejected"])]
    wanted = [rollout_id for rollout_id in ids if rollout_id is not None]
    rollout_of = {row["rollout_id"]: row for row in rollouts_with("rollout_id", wanted, rollouts)}
    for position, rollout_id in enumerate(wanted):
        yield from datum_rows(rollout_of[rollout_id], 1.0 - 2.0 * (position % 2), None)


def preference_measure(
    batch: list[Datum], logprobs: list[ReferenceRow], before: list[ReferenceRow]
) -> Iterable[tuple[str, float]]:
    """Metrics of each pair of a batch, given the policy's log-probabilities of its replies now and
    before training.

    `prefers_chosen`: whether the chosen reply is likelier than the rejected; `log_odds`: by how
    much, in nats; `margin`: by how much `log_odds` rose in training, in nats.
    """
    sums = [_sum_of(row, datum) for row, datum in zip(logprobs, batch, strict=True)]
    sums_before = [_sum_of(row, datum) for row, datum in zip(before, batch, strict=True)]
    for i in range(0, len(batch), 2):
        log_odds = sums[i] - sums[i + 1]
        yield "prefers_chosen", float(log_odds > 0)
        yield "log_odds", log_odds
        yield "margin", log_odds - (sums_before[i] - sums_before[i + 1])


def _sum_of(row: ReferenceRow, datum: Datum) -> float:
    """The log-probability of a reply's sampled tokens."""
    assert row["rollout_id"] == datum["rollout_id"], "the rows are those of the batch"
    return sum(
        logprob
        for logprob, counts in zip(row["logprobs"], datum["loss_mask"], strict=True)
        if counts
    )
