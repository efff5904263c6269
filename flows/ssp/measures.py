"""Measurements outside training: held-out questions of a built-in world, and the questions
asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flows.blocks.evaluation import score_benchmarks
from flows.blocks.questions import (
    Describe,
    answer,
    as_evaluated,
    correctness,
    no_held_out_tasks,
    open_held_out,
)
from flows.run import Player, Run
from flows.ssp.config import Config
from flows.ssp.roles import Roles
from tasks.evaluate import evaluate
from tasks.read import why_not_sampled
from tasks.scorers.accepted import equal
from warehouse.schemas import Answer, Match, Reward, Selection, Task
from warehouse.store import Place, Table

QUESTIONS = "questions asked"


def score_held_out(
    run: Run[Config], roles: Roles, iteration: Place, player: Player, documents: Table
) -> None:
    """Evaluate on the benchmarks that the configuration names, and on the held-out questions of the
    built-in world if it names them. These are answered once, with searches in the world's own
    documents.

    Raises ValueError if the configuration names held-out questions that the run's world lacks.
    """
    cfg = run.cfg.evaluation
    score_benchmarks(run, iteration, player, documents)
    held_out = open_held_out(run)
    if held_out is None:
        return
    world = held_out.world
    if world.num_held_out_documents is None:
        raise no_held_out_tasks(run)
    assert world.documents is not None, "a world whose held-out tasks are about documents"
    index = world.documents(
        run.place.iteration(0).phase("benchmark"),
        seed=cfg.seed,
        size=world.num_held_out_documents,
    )
    compared = answer(
        run,
        iteration.phase("evaluation"),
        as_evaluated(run, roles.solver),
        player,
        tasks=held_out.tasks,
        group_size=1,
        index=index,
        compare=equal,
        comparing=run.cfg.match,
    )
    evaluate(
        iteration.phase("evaluation"),
        measure_answers,
        policy=player.policy.id,
        benchmark=cfg.benchmark,
        tasks=held_out.tasks,
        answers=compared.answers,
        matches=compared.matches,
    )


def measure_answers(
    tasks: list[Task], answers: list[Answer], matches: list[Match]
) -> Iterator[tuple[str, float]]:
    """Yield metrics of the answer to every task whose answer was sampled. The mean of `score` is
    the share of right answers, also given by number of hops; `unanswered` counts replies without an
    answer. A failed comparison counts as wrong."""
    correct = correctness(answers, matches)
    answer_of = {row["task_id"]: row for row in answers}
    for task in tasks:
        answered = answer_of[task["task_id"]]
        if why_not_sampled(answered) is not None:
            continue
        score = float(correct[answered["rollout_id"]] or 0)
        yield "score", score
        yield f"score_{task['difficulty']}_hops", score
        yield "searches", float(answered["num_searches"] or 0)
        yield "unanswered", float(answered["answer"] is None)


def describe_questions(
    run: Run[Config],
    iteration: Place,
    player: Player,
    *,
    tasks: Sequence[Table],
    selections: Sequence[Table],
    rewards: Sequence[Table],
) -> None:
    """Store metrics of the Proposer's questions in an iteration, from the tables of its steps. Does
    nothing outside built-in worlds."""
    world = run.world
    if world is None or world.describe is None:
        return
    evaluate(
        iteration.phase("questions"),
        measure_questions,
        policy=player.policy.id,
        benchmark=QUESTIONS,
        tasks=list(tasks),
        selections=list(selections),
        rewards=list(rewards),
        describe=world.describe,
    )


def measure_questions(
    tasks: list[Task], selections: list[Selection], rewards: list[Reward], *, describe: Describe
) -> Iterator[tuple[str, float]]:
    """Yield metrics of questions: `valid` for every question that was asked for; the metrics of
    `describe` for every readable one, and again with the prefix `valid_` for every valid one; and
    `success`, the Solver's, for every valid one."""
    kept = {row["task_id"] for row in selections if row["kept"]}
    success_of = {row["task_id"]: row["score"] for row in rewards}
    for task in tasks:
        is_valid = task["task_id"] in kept
        yield "valid", float(is_valid)
        for metric, value in describe(task):
            yield metric, value
            if is_valid:
                yield f"valid_{metric}", value
        success = success_of.get(task["task_id"])
        if is_valid and success is not None:
            yield "success", success
