"""Pools of tasks, or of answers to them, that persist across iterations: which entries enter, leave
and are drawn."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tasks.stage import Rows, Tables, as_tables, rows_of, stage
from warehouse.draft import hash_json
from warehouse.schemas import DRAWS, POOLS, Row
from warehouse.store import Table

ROUNDING = 1e-9  # rounding may move a mean of marks this far from a bound that it equals
FROM_TASK = (
    "text",
    "reference",
    "answer_type",
    "options",
    "task_type",
    "difficulty",
    "document_id",
    "evidence",
)


class PoolRules(BaseModel):
    """Which entries a pool keeps."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_size: int | None = Field(
        default=None, ge=1, description="maximum number of entries; null: all are kept"
    )
    leaves: Literal["oldest", "most_used", "lowest_score", "highest_score", "random"] = Field(
        default="oldest",
        description=(
            "which entries make room; ties go to the oldest, and entries that were never scored"
            " leave last"
        ),
    )
    per: tuple[str, ...] = Field(
        default=(),
        description="columns for each of whose values max_size and unique apply separately",
    )
    unique: tuple[str, ...] = Field(
        default=("text",),
        description="columns in which no two entries may be equal; a new duplicate does not enter",
    )
    enters_from: float | None = Field(
        default=None, description="minimum score of a new entry; entries without a score stay out"
    )
    lowest_score: float | None = Field(default=None, description="entries with a lower score leave")
    highest_score: float | None = Field(
        default=None, description="entries with a higher score leave"
    )


@stage(POOLS)
def pool(
    *,
    previous: Table | None = None,
    tasks: Tables = (),
    answers: Tables = (),
    chosen: Tables = (),
    rewards: Tables = (),
    draws: Tables = (),
    component: str | None = None,
    rules: PoolRules = PoolRules(),  # noqa: B008  (frozen)
    seed: int = 0,
) -> Rows:
    """Yield the entries of the pool `previous`, then new ones; an entry that leaves, or may not
    enter, has the reason.

    New entries are the readable `tasks` or, if `answers` are given, the readable answers to them.
    With `chosen` tables (selections), only tasks kept there, or answers to them, may enter. `draws`
    from `previous` count as uses.

    `rewards` update an entry's score. The score is the `component` (None: the reward) of the
    rollout that wrote the entry. If that rollout has none and the entry has no answer, the score is
    the mean of the component over the rows about the task.

    Raises ValueError for a column that pools do not have.
    """
    old = [row for row in previous.rows() if row["kept"]] if previous else []
    known = {row["entry_id"] for row in old}
    kept = {row["task_id"] for row in rows_of(chosen) if row["kept"]}
    written = _answers(as_tables(answers), rows_of(tasks)) if answers else _tasks(as_tables(tasks))
    new = {row["entry_id"]: row for row in written if not chosen or row["task_id"] in kept}
    entries = old + [row for entry_id, row in new.items() if entry_id not in known]
    if unknown := {*rules.per, *rules.unique} - set(POOLS.arrow.names):
        raise ValueError(
            f"a pool has no column {', '.join(sorted(unknown))}: {', '.join(POOLS.arrow.names)}"
        )
    _count_uses(entries, as_tables(draws))
    _update_scores(entries, rows_of(rewards), component)
    for row, reason in zip(entries, leaving(entries, len(old), rules, seed), strict=True):
        yield {**row, "kept": reason is None, "reason": reason}


def _tasks(tables: Sequence[Table]) -> Iterator[Row]:
    for table in tables:
        for task in table.rows():
            if task["text"] is not None:
                yield _entry(
                    task,
                    table,
                    entry_id=task["task_id"],
                    rollout_id=task["rollout_id"],
                    answer=None,
                )


def _answers(tables: Sequence[Table], tasks: list[Row]) -> Iterator[Row]:
    task_of = {task["task_id"]: task for task in tasks}
    for table in tables:
        for row in table.rows():
            if row["answer"] is not None:
                ids = {"entry_id": row["rollout_id"], "rollout_id": row["rollout_id"]}
                yield _entry(task_of[row["task_id"]], table, **ids, answer=row["answer"])


def _entry(task: Row, origin: Table, **values: Any) -> Row:
    columns = {"task_id": task["task_id"], **{name: task[name] for name in FROM_TASK}, **values}
    return {**columns, "score": None, "num_uses": 0, "last_used": None, "origin": origin.address}


def _count_uses(entries: list[Row], draws: Sequence[Table]) -> None:
    uses = Counter[str]()
    last = dict[str, str]()
    for table in draws:
        ids = [row["entry_id"] for row in table.rows()]
        uses.update(ids)
        last.update(dict.fromkeys(ids, table.address))
    for row in entries:
        row["num_uses"] += uses[row["entry_id"]]
        row["last_used"] = last.get(row["entry_id"], row["last_used"])


def _update_scores(entries: list[Row], rewards: list[Row], component: str | None) -> None:
    own = dict[str, float]()
    of_task = defaultdict[str, list[float]](list)
    for row in rewards:
        value = row["reward"] if component is None else row["components"].get(component)
        if value is not None:
            own[row["rollout_id"]] = value
            of_task[row["task_id"]].append(value)
    for row in entries:
        if row["rollout_id"] in own:
            row["score"] = own[row["rollout_id"]]
        elif row["answer"] is None and (values := of_task.get(row["task_id"])):
            row["score"] = math.fsum(values) / len(values)


def leaving(
    entries: Sequence[Row], num_old: int, rules: PoolRules, seed: int = 0
) -> list[str | None]:
    """Why each entry leaves the pool or does not enter it; None for an entry that stays or enters.

    The first `num_old` entries are already in the pool, oldest first; the others are new, in the
    order given.

    >>> leaving(
    ...     [{"text": "a"}, {"text": "b"}, {"text": "b"}, {"text": "c"}], 1, PoolRules(max_size=2)
    ... )
    ['no room: oldest', None, 'same text as another', None]
    """
    reasons = [_out_of_range(row, rules, is_new=i >= num_old) for i, row in enumerate(entries)]
    taken = set[tuple[Any, ...]]()
    groups = defaultdict[tuple[Any, ...], list[int]](list)
    for i, row in enumerate(entries):
        if reasons[i] is not None:
            continue
        group = tuple(row[column] for column in rules.per)
        values = {
            column: (group, column, str(row[column]))
            for column in rules.unique
            if row[column] is not None
        }
        same = next((column for column, value in values.items() if value in taken), None)
        if same and i >= num_old:
            reasons[i] = f"same {same} as another"
            continue
        taken.update(values.values())
        groups[group].append(i)
    for members in groups.values():
        excess = len(members) - (rules.max_size or len(members))
        for i in sorted(members, key=lambda i: _leaves_before(entries[i], rules, seed))[
            : max(0, excess)
        ]:
            reasons[i] = f"no room: {rules.leaves.replace('_', ' ')}"
    return reasons


def _out_of_range(row: Row, rules: PoolRules, is_new: bool) -> str | None:
    score = row.get("score")
    if (
        is_new
        and rules.enters_from is not None
        and (score is None or score < rules.enters_from - ROUNDING)
    ):
        if score is None:
            return "no score"
        return "score too low to enter"
    if (
        score is not None
        and rules.lowest_score is not None
        and score < rules.lowest_score - ROUNDING
    ):
        return "score too low"
    if (
        score is not None
        and rules.highest_score is not None
        and score > rules.highest_score + ROUNDING
    ):
        return "score too high"
    return None


def _leaves_before(row: Row, rules: PoolRules, seed: int) -> tuple[Any, ...]:
    """A sort key: the entry with the lowest key leaves first. Sorting is stable, so of two entries
    with equal keys the older leaves first."""
    if rules.leaves == "oldest":
        return ()
    if rules.leaves == "random":
        return (hash_json([seed, row["entry_id"]]),)
    if rules.leaves == "most_used":
        return (-row["num_uses"],)
    sign = 1 if rules.leaves == "lowest_score" else -1
    return (row["score"] is None, sign * (row["score"] or 0.0))


@stage(DRAWS)
def draw_entries(
    *,
    pool: Tables,
    num_draws: int,
    seed: int,
    epoch: str = "",
    least_used: bool = False,
    weigh: Callable[[Row], float] | None = None,
    repeat: bool = True,
    fewest: int = 0,
    first: Tables = (),
) -> Rows:
    """Yield `num_draws` entries of a pool, or of several together, in a seeded order. Once all have
    been drawn, they are drawn again in a new order.

    The same pool, seed and `epoch` (which identifies the step) give the same draws. `least_used`
    draws the least used entries first, so that even across steps no entry is drawn twice before
    all have been drawn once. At each draw, the probability of an entry is proportional to its
    weight, `weigh(entry)`; entries of weight 0 are never drawn. Without `repeat` no entry is drawn
    twice, and there may be fewer draws. A pool of fewer than `fewest` entries yields nothing.
    Entries that are tasks of `first`, such as those of this step, are drawn before all others; with
    `repeat` they are drawn again among the others. Raises ValueError if there is nothing to draw,
    except without `repeat`.
    """
    entries = [row for row in rows_of(pool) if row["kept"]]
    if len(entries) < fewest:
        return
    weights = [1.0 if weigh is None else weigh(row) for row in entries]
    drawable = [(row, weight) for row, weight in zip(entries, weights, strict=True) if weight > 0]
    if not drawable and num_draws and repeat:
        among = ", ".join(table.address for table in as_tables(pool))
        raise ValueError(
            f"{among} has nothing to draw: of its {len(entries)} entries none weighs above 0"
        )
    laps = itertools.count() if repeat and drawable else range(1)
    ahead = {task["task_id"] for task in rows_of(first)}
    new = [(row, weight) for row, weight in drawable if row["task_id"] in ahead]
    if not repeat:
        drawable = [(row, weight) for row, weight in drawable if row["task_id"] not in ahead]
    order = (row for lap in laps for row in _in_order(drawable, [seed, epoch, lap], least_used))
    if ahead:
        order = itertools.chain(_in_order(new, [seed, epoch, "first"], least_used), order)
    for i, row in enumerate(itertools.islice(order, num_draws)):
        content = {name: row[name] for name in DRAWS.arrow.names if name != "draw_id"}
        yield {"draw_id": hash_json([seed, epoch, i, row["entry_id"]]), **content}


def _in_order(
    weighted: list[tuple[Row, float]], identity: list[Any], least_used: bool
) -> list[Row]:
    lots = [_lot([*identity, row["entry_id"]]) / weight for row, weight in weighted]
    uses = [row["num_uses"] if least_used else 0 for row, _ in weighted]
    return [weighted[k][0] for k in sorted(range(len(weighted)), key=lambda k: (uses[k], lots[k]))]


def _lot(identity: list[Any]) -> float:
    """A draw from the exponential distribution of rate 1. If each entry's draw is divided by its
    weight, the probability that an entry has the smallest quotient is its share of the total weight
    (Efraimidis and Spirakis, 2006)."""
    return -math.log(1.0 - random.Random(hash_json(identity)).random())
