"""Questions with a reference answer: answered, compared by rule, and held out to measure what a run has learnt."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import duckdb

from flows.ahead import Slice, ahead
from flows.audit.audit import watch_gates
from flows.benchmarks.asking import read_line
from flows.evaluation import score_benchmarks
from flows.micro.tables import ledger_oracle, ledger_sound, ledger_tasks
from flows.profile import Comparing
from flows.run import Player, Replies, Role, Run
from tasks.audit import Sound
from tasks.equality import agree
from tasks.evaluate import evaluate
from tasks.match import match
from tasks.monitor import (
    JUDGE,
    LABELS,
    POOL,
    Truth,
    label_errors,
    mark_errors,
    marks_given,
    pay_gap,
    reference_errors,
    tasks_written,
    vote_gap,
)
from tasks.processes.comparisons import Compare
from tasks.prompt import Row
from tasks.read import UNANSWERED
from tasks.readers.boxed import last_box
from tasks.readers.lines import read_result
from tasks.readers.named import named_text
from tasks.score import scored
from tasks.stage import Rows, Tables, stage
from tasks.vote import vote
from warehouse.draft import hash_json
from warehouse.query import run_sql
from warehouse.schemas import TASKS, Answer, Match, Task
from warehouse.store import Place, Table

IN_ONE_PROCESS = Comparing()


def readers(prompts: str) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """The readers of a question and of an answer. With the prompts `lines`, each is the rest of a line, the answer what
    follows the last equals sign; otherwise the element `question` and the last box."""
    return (read_line, read_result) if prompts == "lines" else (partial(named_text, name="question"), last_box)


@dataclass(frozen=True)
class Answered:
    """Answers to questions, the rollouts they were read from, and their comparisons with the references."""

    answers: Table
    rollouts: Table
    matches: Table


def answer(
    run: Run[Any],
    at: Place,
    role: Role,
    player: Player,
    *,
    n: int,
    compare: Compare = agree,
    comparing: Comparing = IN_ONE_PROCESS,
    labels: Tables = (),
    label: str | None = None,
    **tables: Any,
) -> Answered:
    """`n` answers to every question of `tables["tasks"]`, each compared with its reference or, if `labels` are given,
    with its label."""
    said = run.ask(at, role, player.policy, n=n, label=label, **tables)
    how = {"compare": compare, "comparing": comparing, "labels": labels, "label": label}
    matches = compare_answers(at, said.rows, tables["tasks"], **how)
    return Answered(said.rows, said.rollouts, matches)


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
    """Run `match` in as many processes as the configuration allows; the slices of a step share theirs."""
    limits = {"time_limit_s": comparing.time_limit_s, "num_workers": comparing.processes}
    shared = at.whole.workers(compare, **limits) if isinstance(at, Slice) else None
    return match(at, answers, tasks, labels=labels, compare=compare, label=label, workers=shared, **limits)


def majority(run: Run[Any], at: Place, *, tasks: Tables, answers: Tables) -> Table:
    """The label of every question: its most frequent answer."""
    limits = {"time_limit_s": run.cfg.match.time_limit_s, "num_workers": run.cfg.match.processes}
    return vote(at, answers=answers, tasks=tasks, agree=agree, **limits)


@ahead
def answer_and_mark(
    run: Run[Any],
    at: Place,
    roles: tuple[Role, Role],
    player: Player,
    tasks: Table,
    *,
    n: int = 1,
    num_marks: int = 1,
    labels: tuple[str | None, str] = (None, "answers"),
) -> tuple[Replies, Replies]:
    """`n` answers to every question, and `num_marks` marks of each answer. `roles`: who answers, and who marks;
    `labels`: those of the tables of each."""
    said = run.ask(at, roles[0], player.policy, n=n, label=labels[0], tasks=tasks)
    marked = run.ask(at, roles[1], player.policy, n=num_marks, label=labels[1], answers=said.rows, tasks=tasks)
    return said, marked


def correctness(answers: list[Answer], matches: list[Match]) -> dict[str, bool | None]:
    """Whether each answer, by rollout id, is right. An unreadable reply is wrong. An engine failure or a failed
    comparison (timed out, crashed) is None and enters no mean."""
    matched = {row["rollout_id"]: row["matched"] for row in matches}
    return {
        row["rollout_id"]: matched[row["rollout_id"]]
        if row["answer"] is not None
        else (None if row["malformed"] == UNANSWERED["error"] else False)
        for row in answers
    }


def pay_answers(answers: list[Answer], matches: list[Match]) -> Iterator[Row]:
    """Scores: 1 for an answer equal to its reference, else 0. An answer whose comparison failed is unscorable."""
    correct, reason = correctness(answers, matches), {row["rollout_id"]: row["reason"] for row in matches}
    for given in answers:
        right, parts = correct[given["rollout_id"]], {"readable": float(given["answer"] is not None)}
        if right is None:
            yield scored(given, None, parts, unscorable=reason[given["rollout_id"]])
        else:
            yield scored(given, float(right), {**parts, "g": float(right)}, score=float(right))


@stage(TASKS)
def given_questions(*, file: str, identity: str, count: int, seed: int) -> Rows:
    """Yield `count` questions of a file's column `question`, drawn without replacement; no other column is read.
    `identity` stands for the file's content. Raises ValueError if the column is missing or has fewer questions."""
    try:
        found = run_sql("select distinct question from query_table($file) order by all", {}, {"file": file})
    except duckdb.Error as error:
        raise ValueError(f"{file} cannot be read as questions: {error}") from error
    texts = [row["question"] for row in found if row["question"] is not None]
    if len(texts) < count:
        raise ValueError(f"{file} has {len(texts)} different questions, but {count} are wanted")
    for text in random.Random(seed).sample(texts, count):
        yield {"task_id": hash_json([identity, text]), "text": text}


def watch_questions(run: Run[Any], at: Place, policy: str, *, tasks: Tables, labels: Table | None = None) -> None:
    """Stop before an update if questions are empty or copies or, where the truth is known, `labels` are wrong."""
    run.watch(at, tasks_written, policy=policy, benchmark=POOL, label="questions", tasks=tasks)
    if labels is not None and run.cfg.evaluation.benchmark == "micro":
        wrong = partial(label_errors, oracle=ledger_oracle)
        run.watch(at, wrong, policy=policy, benchmark=LABELS, label="labels", labels=labels, tasks=tasks)


def watch_passed(run: Run[Any], at: Place, policy: str, *, tasks: Tables, chosen: Tables, **knows: Any) -> None:
    """Stop before an update if too many questions passed that should not have."""
    sound = ledger_sound if run.cfg.evaluation.benchmark == "micro" else None
    watch_gates(run, at, policy, tasks=tasks, chosen=chosen, sound=sound, **knows)


def watch_marks(run: Run[Any], at: Place, policy: str, *, quality: Table, solved: Table, **about: Table) -> None:
    """Stop before an update if questions are empty or copies, if a judge gives all questions and answers the best mark
    or, where the truth is known, if it marks answers wrongly. `about`: the tasks and the answers."""
    watch_questions(run, at, policy, tasks=about["tasks"])
    run.watch(at, marks_given, policy=policy, benchmark=JUDGE, label="marks", marks=[quality, solved])
    if run.cfg.evaluation.benchmark == "micro":
        wrong = partial(mark_errors, oracle=ledger_oracle)
        run.watch(at, wrong, policy=policy, benchmark=JUDGE, label="truth", marks=solved, **about)


def watch_asked(
    run: Run[Any],
    at: Place,
    policy: str,
    sound: Sound | None,
    oracle: Truth | None,
    *,
    tasks: Tables,
    answers: Tables,
    scores: Tables,
    votes: Tables | None = None,
    **gates: Any,
) -> None:
    """Stop before an update if questions are empty or copies, if they should not have passed, if their references are
    wrong, if wrong answers are paid or if `votes` err. `sound` and `oracle` know the truth in a built-in world."""
    watch_questions(run, at, policy, tasks=tasks)
    built_in = set(run.cfg.learns_from) <= set(run.cfg.worlds)
    watch_gates(run, at, policy, tasks=tasks, sound=sound if built_in else None, **gates)
    if not built_in or oracle is None:
        return
    about: dict[str, Any] = {"policy": policy, "benchmark": JUDGE, "tasks": tasks}
    run.watch(at, partial(reference_errors, oracle=oracle), label="references", **about)
    about["answers"] = answers
    run.watch(at, partial(pay_gap, oracle=oracle), label="pay", scores=scores, **about)
    if votes is not None:
        run.watch(at, partial(vote_gap, oracle=oracle), label="votes", votes=votes, **about)


def score_held_out(run: Run[Any], iteration: Place, role: Role, player: Player) -> None:
    """Evaluate on the real benchmarks that the configuration names; if it also names the built-in world, answer that
    world's questions once and compare with the true answers."""
    cfg = run.cfg.evaluation
    score_benchmarks(run, iteration, player)
    if cfg.benchmark == "none":
        return
    place, benchmark = iteration.phase("evaluation"), run.place.iteration(0).phase("benchmark")
    tasks = ledger_tasks(benchmark, seed=cfg.seed, num_tasks=cfg.num_tasks)
    role = replace(role, sampling=role.sampling.model_copy(update={"temperature": cfg.temperature}))
    given = answer(run, place, role, player, n=1, comparing=run.cfg.match, tasks=tasks)
    about = {"tasks": tasks, "answers": given.answers, "matches": given.matches}
    evaluate(place, measure, policy=player.policy.id, benchmark=cfg.benchmark, **about)


def measure(tasks: list[Task], answers: list[Answer], matches: list[Match]) -> Iterator[tuple[str, float]]:
    """`score` is the share of true answers. A failed comparison counts as wrong and has a metric of its own."""
    correct, answer_of = correctness(answers, matches), {row["task_id"]: row for row in answers}
    for task in tasks:
        given = answer_of[task["task_id"]]
        score = float(correct[given["rollout_id"]] or 0)
        yield "score", score
        yield f"score_{task['answer_type']}", score
        if task["difficulty"]:
            yield f"score_{task['difficulty']}_items", score
        yield "unanswered", float(given["answer"] is None)
        yield "not_compared", float(given["answer"] is not None and correct[given["rollout_id"]] is None)
