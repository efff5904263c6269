"""The score on tasks that a run never learns from, and whether it comes from retrieval or from synthesis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from flows.evaluation import score_benchmarks
from flows.micro.tables import BENCHMARK_ENTITIES, encyclopaedia_rubrics, encyclopaedia_tasks
from flows.run import Player, Role
from flows.scope.steps import Scope, grade
from tasks.evaluate import evaluate
from tasks.prompt import Row
from tasks.readers.thoughts import spoken
from tasks.rubrics import criteria_of, grades
from warehouse.schemas import Answer, Criterion, Judgment, PromptRow, Rollout, Task
from warehouse.store import Place


def score_held_out(scope: Scope, iteration: Place, solver: Player) -> None:
    """Answer every benchmark task once; the Judge and the oracle grade it. Does nothing without a benchmark."""
    score_benchmarks(scope.run, iteration, solver, scope.documents)
    benchmark = scope.run.cfg.evaluation.benchmark
    if benchmark != "none":
        _score(scope, iteration.phase("evaluation"), scope.roles.examinee, solver, benchmark)


def replay(scope: Scope) -> None:
    """Table 4 of the paper: held-out answers of one checkpoint after the searches that another made. Stored with the
    answerer's iteration as benchmark `<name>, searches of <searcher>`."""
    run, cfg = scope.run, scope.run.cfg.evaluation
    for searcher, answerer in cfg.replay:
        searched, store = run.place.iteration(searcher).phase("evaluation"), run.place.store
        last_turn = {"max_turns": 1, "insist_times": 0, "prompt_tokens": None}
        dialogue = scope.roles.examinee.dialogue.model_copy(update=last_turn)
        about_searches = partial(after_searches, reasoning=dialogue.reasoning)
        role = replace(scope.roles.examinee, about=about_searches, values={}, dialogue=dialogue)
        about = {name: store.get(searched.address(name, "solver")) for name in ("prompts", "rollouts")}
        place, name = run.place.iteration(answerer).phase("replay").step(searcher), f"searches of {searcher}"
        _score(scope, place, role, run.player_after("solver", answerer), f"{cfg.benchmark}, {name}", **about)


def _score(scope: Scope, place: Place, role: Role, solver: Player, name: str, **about: Any) -> None:
    """Evaluate a solver on prompts made from the tables `about`, by default the tasks of the benchmark."""
    run, cfg, at = scope.run, scope.run.cfg.evaluation, scope.run.place.iteration(0).phase("benchmark")
    made = {"seed": cfg.seed, "num_tasks": cfg.num_tasks}
    benchmark: dict[str, Any] = {"tasks": encyclopaedia_tasks(at, **made), "rubrics": encyclopaedia_rubrics(at, **made)}
    world = Scope.over_world(run, at, cfg.seed, BENCHMARK_ENTITIES)
    answers = run.ask(place, role, solver.policy, index=world.documents, **(about or benchmark)).rows
    judgments = grade(world, place, answers=answers, **benchmark)
    tables = {**benchmark, "answers": answers, "judgments": judgments}
    evaluate(place, measure, policy=solver.policy.id, benchmark=name, **tables)


def measure(
    tasks: list[Task], answers: list[Answer], rubrics: list[Criterion], judgments: list[Judgment]
) -> Iterator[tuple[str, float]]:
    """`score` is the share of criteria met by the oracle, 0 if unanswered; `judged` is the same by the Judge."""
    answer_of = {row["task_id"]: row for row in answers}
    truth = {(j["rollout_id"], j["criterion_id"]): j["oracle"] for j in judgments}
    criteria, judged = criteria_of(rubrics), grades(answers, rubrics, judgments, min_coverage=0.5)
    for task in tasks:
        found = answer_of[task["task_id"]]
        met = [truth.get((found["rollout_id"], c["criterion_id"])) or 0 for c in criteria[task["task_id"]]]
        score = sum(met) / len(met)
        yield "score", score
        yield f"score_{(task['difficulty'] or 1) - 1}_hops", score
        yield "judged", judged[found["rollout_id"]].g or 0.0
        yield "answer_tokens", float(found["answer_tokens"] or 0)
        yield "searches", float(found["num_searches"] or 0)
        yield "unanswered", float(found["answer"] is None)


def after_searches(prompts: list[PromptRow], rollouts: list[Rollout], *, reasoning: bool) -> Iterator[Row]:
    """Each conversation up to its last turn, as the policy saw it: a reasoning model's thoughts are left out."""
    prompt_of = {prompt["prompt_id"]: prompt for prompt in prompts}
    for rollout in rollouts:
        prompt = prompt_of[rollout["prompt_id"]]
        messages: list[Row] = [dict(message) for message in prompt["messages"]]
        for turn in (rollout["turns"] or [])[:-1]:
            said = spoken(turn["text"]).strip() if reasoning else turn["text"]
            messages.append({"role": "assistant", "content": said})
            messages.append({"role": turn["message_role"], "content": turn["message"]})
        yield {"task_id": prompt["task_id"], "task_type": prompt["task_type"], "messages": messages}
