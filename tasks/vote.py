"""Label tasks by the majority of their answers, when the right answer is unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tasks.processes.comparison_child import serve
from tasks.processes.comparisons import Compare, Workers
from tasks.read import NOT_SAMPLED
from tasks.scorers.accepted import with_reference
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import LABELS, Row

Same = Callable[[str, str], bool | None]


@stage(LABELS, tools=("num_workers",), code=(serve,))
def vote(
    *,
    answers: Tables,
    tasks: Tables = (),
    agree: Compare | None = None,
    time_limit_s: float = 10.0,
    num_workers: int = 1,
) -> Rows:
    """Yield one row per task: the answer that most of its readable answers agree on, or the reason
    why there is none.

    `agree(task, answer)` is a module-level function, as in `match`. Its task is a row of `tasks`
    (without `tasks`, only the id) in which another answer stands as the only right one. Two answers
    are equal if `agree` says so in either order; without `agree`, if their texts are equal. A
    comparison that raises ValueError, takes more than `time_limit_s` or crashes makes the answers
    unequal and is counted as failed. Any other exception is a bug in `agree` and raises
    RuntimeError.

    Answers are in sampling order. If several classes are largest, the one whose first member was
    sampled first wins (`tied` marks such a task). The text of the winner's first member is the
    label. Unreadable answers and engine failures do not vote. A task without a readable answer has
    no label, but every task in `tasks` gets a row.
    """
    tasks_given = {row["task_id"]: row for row in rows_of(tasks)}
    answers_of: dict[str, list[Row]] = {task_id: [] for task_id in tasks_given}
    for row in rows_of(answers):
        answers_of.setdefault(row["task_id"], []).append(row)
    if agree is None:
        for task_id, rows in answers_of.items():
            yield {"task_id": task_id, **majority(rows, str.__eq__)}
        return
    with Workers(agree, time_limit_s, min(num_workers, len(answers_of))) as workers:

        def label(task_id: str) -> Row:
            same = partial(_same, workers, tasks_given.get(task_id, {"task_id": task_id}))
            return {"task_id": task_id, **majority(answers_of[task_id], same)}

        yield from workers.map(label, answers_of)


def _same(workers: Workers, task: Row, first: str, second: str) -> bool | None:
    """Whether two answers are equal in either order; None if a comparison failed and no order
    says yes."""
    orders = [(first, second)] if first == second else [(first, second), (second, first)]
    matches = []
    for reference, answer in orders:
        matches.append(workers.compare(with_reference(task, reference), answer).matched)
        if matches[-1]:
            return True
    if None in matches:
        return None
    return False


def majority(answers: Sequence[Row], same: Same) -> Row:
    """The majority label of one task, and the counts behind it.

    >>> answers = [{"rollout_id": i, "answer": a, "malformed": None} for i, a in enumerate("7887")]
    >>> found = majority(answers, str.__eq__)
    >>> found["answer"], found["share"], found["tied"]
    ('7', 0.5, True)
    """
    sampled = [row for row in answers if row["malformed"] not in NOT_SAMPLED]
    readable = [row for row in sampled if row["answer"] is not None]
    grouped = classes([row["answer"] for row in readable], same)
    winner = max(grouped.members, key=len, default=[])  # the first of equally large classes
    reason = _why_no_label(len(answers), len(sampled), len(readable))
    return {
        "answer": None if reason else readable[winner[0]]["answer"],
        "rollout_id": None if reason else readable[winner[0]]["rollout_id"],
        "share": len(winner) / len(readable) if readable else None,
        "num_agreeing": len(winner),
        "num_readable": len(readable),
        "num_answers": len(sampled),
        "num_classes": len(grouped.members),
        "num_failed_comparisons": grouped.num_failed,
        "tied": sum(len(members) == len(winner) for members in grouped.members) > 1,
        "reason": reason,
    }


def _why_no_label(num_answers: int, num_sampled: int, num_readable: int) -> str | None:
    if not num_answers:
        return "no answers"
    if not num_sampled:
        return "no answer could be sampled"
    if not num_readable:
        return "no readable answer"
    return None


@dataclass(frozen=True)
class Classes:
    """Positions of the members of each class, and how many comparisons failed."""

    members: list[list[int]]
    num_failed: int


def classes(answer_N: Sequence[str], same: Same) -> Classes:
    """Equality classes, greedily: an answer joins the first class whose first member it equals.

    Equal texts are one answer and are not compared. `same` returns None if the comparison fails:
    then they differ.

    >>> classes(["1/2", "3", "0.5", "3"], lambda a, b: eval(a) == eval(b)).members
    [[0, 2], [1, 3]]
    """
    positions: dict[str, list[int]] = defaultdict(list)
    for position, text in enumerate(answer_N):
        positions[text].append(position)
    compare = _Sparing(same)
    members = dict[str, list[int]]()
    for text, at in positions.items():
        first = next((other for other in members if compare(other, text)), text)
        members.setdefault(first, []).extend(at)
    return Classes([sorted(at) for at in members.values()], compare.num_failed)


class _Sparing:
    """Like `same`, but skips a text that cannot even be compared with itself: each attempt may take
    the whole time limit."""

    def __init__(self, same: Same) -> None:
        self._same = same
        self._fails_alone: dict[str, bool] = {}
        self.num_failed = 0

    def __call__(self, first: str, second: str) -> bool:
        if self._fails_alone.get(first) or self._fails_alone.get(second):
            return False
        same = self._same(first, second)
        if same is None:
            self.num_failed += 1
            for text in {first, second} - self._fails_alone.keys():
                self._fails_alone[text] = self._same(text, text) is None
        return bool(same)
