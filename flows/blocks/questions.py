"""Questions with reference answers: answering them, comparing by rule, and held-out scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from flows.benchmarks.readers import read_line
from flows.blocks.audit.audit import watch_gates
from flows.blocks.erring import erring_verdicts
from flows.blocks.evaluation import score_benchmarks
from flows.run import Player, Role, Run
from flows.settings.profile import Comparing
from flows.worlds.world import World
from tasks.evaluate import evaluate
from tasks.match import match
from tasks.monitors.monitor import (
    JUDGE,
    LABELS,
    POOL,
    label_errors,
    reference_errors,
    reward_gap,
    same_labels,
    tasks_written,
    vote_gap,
)
from tasks.noise import VerdictErrors
from tasks.processes.comparisons import Compare
from tasks.prompt import Row
from tasks.read import sampled, why_not_sampled
from tasks.readers.boxed import last_box
from tasks.readers.lines import read_result
from tasks.readers.named import named_text
from tasks.score import scored
from tasks.scorers.equality import agree
from tasks.stage import Tables
from tasks.vote import vote
from warehouse.schemas import Answer, Match, Task
from warehouse.store import Place, Table

# yields metrics of a model-written question, computed by a built-in world
Describe = Callable[[Task], Iterator[tuple[str, float]]]
IN_ONE_PROCESS = Comparing()
NO_ERRORS = VerdictErrors()


def readers(in_lines: bool) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """The readers of a question and of an answer.

    `in_lines`: each is the rest of a line, and the answer is what follows the last equals sign.
    Otherwise they are the element `question` and the last box.
    """
    if in_lines:
        return read_line, read_result
    return partial(named_text, name="question"), last_box


@dataclass(frozen=True)
class ComparedAnswers:
    """Answers to questions, the rollouts that they were read from, and their comparisons with the
    references."""

    answers: Table
    rollouts: Table
    matches: Table


def answer(  # noqa: PLR0913 -- how to sample and how to compare are several settings each
    run: Run[Any],
    at: Place,
    role: Role,
    player: Player,
    *,
    tasks: Tables,
    group_size: int,
    compare: Compare = agree,
    comparing: Comparing = IN_ONE_PROCESS,
    labels: Tables = (),
    by_majority: bool = False,
    errors: VerdictErrors = NO_ERRORS,
    index: Table | None = None,
    label: str | None = None,
    **shown: Tables,
) -> ComparedAnswers:
    """`group_size` answers to every question of `tasks`, each compared with the reference.

    With `labels`, each answer is compared with its question's label instead. With `by_majority`,
    the label is the answer on which most of these answers agree, by `compare`. `errors`: deliberate
    errors in the verdicts, in a built-in world. `index`: the documents to search, if the role's
    dialogue searches. `shown`: the other tables that `role` reads, such as `contexts` or
    `documents`; the role checks them by name.
    """
    tables: dict[str, Any] = {"tasks": tasks, **shown}
    replies = run.ask(
        at, role, player.policy, group_size=group_size, label=label, index=index, **tables
    )
    if by_majority:
        labels = vote(
            at,
            answers=replies.rows,
            tasks=tasks,
            agree=compare,
            time_limit_s=comparing.time_limit_s,
            num_workers=comparing.processes,
            label=label,
        )
        watch_labels(run, at, player.policy.id, labels=labels, label=label)
    matches = compare_answers(
        at,
        replies.rows,
        tasks,
        compare=compare,
        comparing=comparing,
        labels=labels,
        label=label,
    )
    matches = erring_verdicts(
        run,
        at,
        player.policy.id,
        errors,
        matches=matches,
        answers=replies.rows,
        rollouts=replies.rollouts,
        tasks=tasks,
    )
    return ComparedAnswers(replies.rows, replies.rollouts, matches)


def compare_answers(
    at: Place,
    answers: Table,
    tasks: Tables,
    *,
    compare: Compare,
    comparing: Comparing,
    labels: Tables = (),
    label: str | None = None,
) -> Table:
    """Compare every answer with the reference of its task, or with its label if there are `labels`,
    in as many processes as `comparing` allows.

    `compare` takes a task's row and an answer's text. Returns a table of matches; see
    `tasks.match.match`, which also says what may go wrong.
    """
    return match(
        at,
        answers,
        tasks,
        labels=labels,
        compare=compare,
        time_limit_s=comparing.time_limit_s,
        num_workers=comparing.processes,
        label=label,
    )


def majority(run: Run[Any], at: Place, *, tasks: Tables, answers: Tables) -> Table:
    """A table of labels, one per task: the answer on which most of its answers agree
    (`tasks.vote.vote` says how ties are broken)."""
    return vote(
        at,
        answers=answers,
        tasks=tasks,
        agree=agree,
        time_limit_s=run.cfg.match.time_limit_s,
        num_workers=run.cfg.match.processes,
    )


def correctness(answers: list[Answer], matches: list[Match]) -> dict[str, bool | None]:
    """Whether each answer, by rollout id, is right.

    An unreadable reply is wrong. The value is None for a reply that was never sampled and for an
    answer whose comparison failed (timed out or crashed).
    """
    matched = {row["rollout_id"]: row["matched"] for row in matches}
    correct: dict[str, bool | None] = {}
    for row in answers:
        rollout_id = row["rollout_id"]
        if row["answer"] is not None:
            correct[rollout_id] = matched[rollout_id]
        elif why_not_sampled(row) is not None:
            correct[rollout_id] = None
        else:
            correct[rollout_id] = False
    return correct


def answer_rewards(answers: list[Answer], matches: list[Match]) -> Iterator[Row]:
    """Yield rows of `rewards`: 1 for an answer equal to its reference, else 0. An answer whose
    comparison failed is unscorable."""
    correct = correctness(answers, matches)
    reason = {row["rollout_id"]: row["reason"] for row in matches}
    for row in answers:
        is_right = correct[row["rollout_id"]]
        readable = float(row["answer"] is not None)
        if is_right is None:
            yield scored(row, None, {"readable": readable}, unscorable=reason[row["rollout_id"]])
        else:
            reward = float(is_right)
            yield scored(row, reward, {"readable": readable, "g": reward}, score=reward)


def watch_labels(
    run: Run[Any], at: Place, policy: str, *, labels: Table, label: str | None = None
) -> None:
    """Raise Alarm, before an update, if too many questions have the same label. `label` is that of
    the tables of answers."""
    run.watch(
        at,
        same_labels,
        policy=policy,
        benchmark=LABELS,
        label=f"same-labels-{label}" if label else "same-labels",
        way_out=(
            "The policy is rewarded for one answer, whatever is asked: start from a model that"
            " answers better, give answers, or change monitor.max_same_label if most of these"
            " questions do have one answer."
        ),
        labels=labels,
    )


def watch_questions(
    run: Run[Any], at: Place, policy: str, *, tasks: Tables, labels: Table | None = None
) -> None:
    """Raise Alarm, before an update, if too many questions are empty or copies, if too many
    `labels` are the same or, in a built-in world, if too many labels are wrong."""
    run.watch(at, tasks_written, policy=policy, benchmark=POOL, label="questions", tasks=tasks)
    if labels is None:
        return
    watch_labels(run, at, policy, labels=labels)
    world = held_out_world(run)
    if world is not None and world.oracle is not None:
        run.watch(
            at,
            partial(label_errors, oracle=world.oracle),
            policy=policy,
            benchmark=LABELS,
            label="labels",
            labels=labels,
            tasks=tasks,
        )


def watch_passed(
    run: Run[Any],
    at: Place,
    policy: str,
    *,
    tasks: Tables,
    chosen: Tables,
    labels: Tables = (),
) -> None:
    """Raise Alarm, before an update, if too many questions passed that should not have.

    `chosen` says which questions were kept, and `labels` replace references, as in `watch_gates`.
    """
    world = held_out_world(run)
    watch_gates(
        run,
        at,
        policy,
        tasks=tasks,
        chosen=chosen,
        labels=labels,
        sound=world.sound if world else None,
    )


def watch_questions_and_answers(  # noqa: PLR0913 -- every table that is watched is named
    run: Run[Any],
    at: Place,
    policy: str,
    world: World | None,
    *,
    tasks: Tables,
    answers: Tables,
    rewards: Tables,
    chosen: Tables,
    passed: tuple[str, ...] = (),
    shown: Mapping[str, Tables] | None = None,
    votes: Tables | None = None,
) -> None:
    """Raise Alarm before an update that would train on unsound questions, answers or votes.

    Questions may be empty or copies, or should not have passed; references may be wrong; wrong
    answers may be rewarded; votes may err. `world`: the built-in world that knows the truth about
    the questions, if there is one; it is not used for questions about other documents. `chosen`,
    `passed`, `shown`: as in `watch_gates`.
    """
    watch_questions(run, at, policy, tasks=tasks)
    is_built_in = set(run.cfg.learns_from) <= set(run.cfg.worlds)
    if not is_built_in:
        world = None
    watch_gates(
        run,
        at,
        policy,
        tasks=tasks,
        chosen=chosen,
        passed=passed,
        shown=shown,
        sound=world.sound if world else None,
    )
    if world is None or world.oracle is None:
        return
    oracle = world.oracle
    run.watch(
        at,
        partial(reference_errors, oracle=oracle),
        policy=policy,
        benchmark=JUDGE,
        label="references",
        tasks=tasks,
    )
    run.watch(
        at,
        partial(reward_gap, oracle=oracle),
        policy=policy,
        benchmark=JUDGE,
        label="rewards",
        rewards=rewards,
        answers=answers,
        tasks=tasks,
    )
    if votes is not None:
        run.watch(
            at,
            partial(vote_gap, oracle=oracle),
            policy=policy,
            benchmark=JUDGE,
            label="votes",
            votes=votes,
            answers=answers,
            tasks=tasks,
        )


def held_out_world(run: Run[Any]) -> World | None:
    """The built-in world whose held-out tasks score the run; None if there is none.

    The models of such a run know only that world's language, so the questions that they ask are
    about that world as well.
    """
    world = run.world
    if world is None or run.cfg.evaluation.benchmark != world.benchmark:
        return None
    return world


def no_held_out_tasks(run: Run[Any]) -> ValueError:
    """The error for a run whose configuration names held-out tasks that its world does not have."""
    return ValueError(
        f"evaluation.benchmark is {run.cfg.evaluation.benchmark!r}: the held-out questions of a"
        " built-in world, but the run lives in none that has some; set world, such as"
        ' world = "ledgers"'
    )


@dataclass(frozen=True)
class HeldOutTasks:
    """The held-out tasks by which a built-in world scores a run."""

    world: World
    tasks: Table


def open_held_out(run: Run[Any]) -> HeldOutTasks | None:
    """The held-out tasks that the configuration names; None if it names none.

    Raises ValueError if it names a world's tasks but the run's world has none.
    """
    cfg = run.cfg.evaluation
    if cfg.benchmark == "none":
        return None
    world = held_out_world(run)
    if world is None or world.tasks is None:
        raise no_held_out_tasks(run)
    place = run.place.iteration(0).phase("benchmark")
    return HeldOutTasks(world, world.tasks(place, seed=cfg.seed, num_tasks=cfg.num_tasks))


def as_evaluated(run: Run[Any], role: Role) -> Role:
    """A role that answers at the temperature of the run's evaluations."""
    sampling = role.sampling.model_copy(update={"temperature": run.cfg.evaluation.temperature})
    return replace(role, sampling=sampling)


def score_held_out(run: Run[Any], iteration: Place, role: Role, player: Player) -> None:
    """Evaluate on the real benchmarks that the configuration names, and on the held-out questions
    of the built-in world if it names them.

    The world's questions are answered once and compared with the true answers. Raises ValueError if
    the configuration names a world's held-out questions but the run's world has none.
    """
    score_benchmarks(run, iteration, player)
    held_out = open_held_out(run)
    if held_out is None:
        return
    place = iteration.phase("evaluation")
    compared = answer(
        run,
        place,
        as_evaluated(run, role),
        player,
        tasks=held_out.tasks,
        group_size=1,
        comparing=run.cfg.match,
    )
    evaluate(
        place,
        measure,
        policy=player.policy.id,
        benchmark=run.cfg.evaluation.benchmark,
        tasks=held_out.tasks,
        answers=compared.answers,
        matches=compared.matches,
    )


def measure(
    tasks: list[Task], answers: list[Answer], matches: list[Match]
) -> Iterator[tuple[str, float]]:
    """Yield metrics of the last answer to every task.

    The mean of `score` is the share of right answers, also given by answer type and by difficulty;
    `unanswered` counts replies without an answer. A failed comparison counts as wrong, and is
    counted in `not_compared`. A reply that was never sampled is left out of every score; if there
    are any, `not_sampled` is their share.
    """
    correct = correctness(answers, matches)
    answer_of = {row["task_id"]: row for row in answers}
    lacks_some = len(sampled(answers)) < len(answers)
    for task in tasks:
        answered = answer_of[task["task_id"]]
        if lacks_some:
            yield "not_sampled", float(why_not_sampled(answered) is not None)
        if why_not_sampled(answered) is not None:
            continue
        is_right = correct[answered["rollout_id"]]
        has_answer = answered["answer"] is not None
        score = float(is_right or 0)
        yield "score", score
        yield f"score_{task['answer_type']}", score
        if task["difficulty"]:
            yield f"score_{task['difficulty']}_items", score
        yield "unanswered", float(not has_answer)
        yield "not_compared", float(has_answer and is_right is None)
