"""The score on tasks that a run never learns from, and whether it comes from retrieval or from
synthesis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from flows.blocks.evaluation import BenchmarkEvaluation, open_evaluation, score_benchmarks
from flows.blocks.questions import held_out_world, no_held_out_tasks
from flows.run import Player, Role, Run
from flows.scope.config import Config
from flows.scope.rubrics import criteria_of, grades
from flows.scope.steps import Scope, grade, player_of
from tasks.evaluate import evaluate
from tasks.prompt import Row
from tasks.read import sampled, why_not_sampled
from tasks.readers.thoughts import spoken
from warehouse.schemas import Answer, Criterion, Judgment, PromptRow, Rollout, Task
from warehouse.store import Place, Table


def score_held_out(scope: Scope, iteration: Place, solver: Player) -> None:
    """Answer every benchmark task once; the Judge and the oracle grade it. Does nothing without
    a benchmark."""
    score_benchmarks(scope.run, iteration, solver, scope.documents)
    benchmark = scope.run.cfg.evaluation.benchmark
    if benchmark != "none":
        _score(scope, iteration.phase("evaluation"), scope.roles.evaluated, solver, benchmark)


def replay(scope: Scope) -> None:
    """Table 4 of the paper: held-out answers by one checkpoint after another checkpoint's searches.

    Stored with the answerer's iteration as the benchmark `<name>, searches of <searcher>`.
    """
    run = scope.run
    cfg = scope.run.cfg.evaluation
    for searcher, answerer in cfg.replay:
        for name in cfg.benchmarks:
            replay_benchmark(run, scope.documents, name, searcher, answerer)
        if cfg.benchmark == "none":
            continue
        searched = run.place.iteration(searcher).phase("evaluation")
        store = run.place.store
        _score(
            scope,
            run.place.iteration(answerer).phase("replay").step(searcher),
            last_turn_of(scope.roles.evaluated),
            player_of(run, "solver", answerer),
            f"{cfg.benchmark}, searches of {searcher}",
            prompts=store.get(searched.address("prompts", "solver")),
            rollouts=store.get(searched.address("rollouts", "solver")),
        )


def replay_benchmark(
    run: Run[Config], documents: Table, name: str, searcher: int, answerer: int
) -> None:
    """The same for a benchmark whose protocol searches; does nothing for other benchmarks."""
    evaluation = open_evaluation(run, name, documents)
    if not isinstance(evaluation, BenchmarkEvaluation) or not evaluation.protocol.searches:
        return
    store = run.place.store
    searched = run.place.iteration(searcher).phase("evaluation")
    evaluation.evaluate_after(
        run.place.iteration(answerer).phase("replay").step(searcher),
        player_of(run, "solver", answerer).policy,
        last_turn_of(evaluation.answering_role),
        prompts=store.get(searched.address("prompts", evaluation.label)),
        rollouts=store.get(searched.address("rollouts", evaluation.label)),
        name=f"{evaluation.label}, searches of {searcher}",
    )


def last_turn_of(role: Role) -> Role:
    """The role, limited to its answer, after searches that another policy made. If it searches
    again, it is told to answer, as often as `role` would be."""
    dialogue = role.dialogue.model_copy(update={"max_turns": 1, "prompt_tokens": None})
    return replace(
        role,
        variables=partial(after_searches, reasoning=dialogue.reasoning),
        values={},
        dialogue=dialogue,
        system="",  # the messages that are continued already hold it
    )


def _score(
    scope: Scope, place: Place, role: Role, solver: Player, name: str, **asked_about: Table
) -> None:
    """Evaluate a solver on prompts made from the tables in `asked_about`, by default the tasks of
    the benchmark.

    Raises ValueError if the run's world has no held-out tasks with rubrics.
    """
    run = scope.run
    cfg = scope.run.cfg.evaluation
    at = scope.run.place.iteration(0).phase("benchmark")
    world = held_out_world(run)
    if world is None or world.tasks is None or world.rubrics is None:
        raise no_held_out_tasks(run)
    tasks = world.tasks(at, seed=cfg.seed, num_tasks=cfg.num_tasks)
    rubrics = world.rubrics(at, seed=cfg.seed, num_tasks=cfg.num_tasks)
    assert world.num_held_out_documents is not None, "a world of tasks with rubrics"
    held_out = Scope.over_world(run, world, at, cfg.seed, world.num_held_out_documents)
    tables: dict[str, Any] = dict(asked_about) or {"tasks": tasks, "rubrics": rubrics}
    answers = run.ask(place, role, solver.policy, index=held_out.documents, **tables).rows
    judgments = grade(held_out, place, answers=answers, rubrics=rubrics, tasks=tasks)
    evaluate(
        place,
        measure,
        policy=solver.policy.id,
        benchmark=name,
        tasks=tasks,
        rubrics=rubrics,
        answers=answers,
        judgments=judgments,
        min_coverage=scope.run.cfg.judge.min_coverage,
    )


def measure(
    tasks: list[Task],
    answers: list[Answer],
    rubrics: list[Criterion],
    judgments: list[Judgment],
    *,
    min_coverage: float,
) -> Iterator[tuple[str, float]]:
    """Yield metrics of the answers.

    `score` is the share of criteria that are met according to the oracle, 0 if unanswered; `judged`
    is the same according to the Judge, for answers that it could grade. A reply that was never
    sampled is left out of every score; if there are any, `not_sampled` is their share.
    """
    answer_of = {row["task_id"]: row for row in answers}
    truth = {(j["rollout_id"], j["criterion_id"]): j["oracle"] for j in judgments}
    criteria = criteria_of(rubrics)
    judged = grades(answers, rubrics, judgments, min_coverage=min_coverage)
    lacks_some = len(sampled(answers)) < len(answers)
    for task in tasks:
        answer = answer_of[task["task_id"]]
        if lacks_some:
            yield "not_sampled", float(why_not_sampled(answer) is not None)
        if why_not_sampled(answer) is not None:
            continue
        met = [
            truth.get((answer["rollout_id"], c["criterion_id"])) or 0
            for c in criteria[task["task_id"]]
        ]
        score = sum(met) / len(met)
        yield "score", score
        yield f"score_{(task['difficulty'] or 1) - 1}_hops", score
        grade_by_judge = judged[answer["rollout_id"]].g
        if grade_by_judge is not None:
            yield "judged", grade_by_judge
        yield "answer_tokens", float(answer["answer_tokens"] or 0)
        yield "searches", float(answer["num_searches"] or 0)
        yield "unanswered", float(answer["answer"] is None)


def after_searches(
    prompts: list[PromptRow], rollouts: list[Rollout], *, reasoning: bool
) -> Iterator[Row]:
    """Yield each conversation without its last turn, as the policy saw it: without the thoughts of
    a reasoning model."""
    prompt_of = {prompt["prompt_id"]: prompt for prompt in prompts}
    for rollout in rollouts:
        prompt = prompt_of[rollout["prompt_id"]]
        messages: list[Row] = [dict(message) for message in prompt["messages"]]
        for turn in (rollout["turns"] or [])[:-1]:
            content = spoken(turn["text"]).strip() if reasoning else turn["text"]
            messages.append({"role": "assistant", "content": content})
            messages.append({"role": turn["message_role"], "content": turn["message"]})
        yield {"task_id": prompt["task_id"], "task_type": prompt["task_type"], "messages": messages}
