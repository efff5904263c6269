"""Retrieval or synthesis? The paper's table 4: searches of one checkpoint, the final answer of another."""

from __future__ import annotations

from collections.abc import Iterator

from flows.scope.held_out import HeldOut, measure
from flows.scope.steps import Player, grade, roll_out
from flows.scope.talks import replay_talk
from tasks.ask import ask
from tasks.evaluate import evaluate
from tasks.prompt import Prompt, Row
from tasks.read import read_answers
from warehouse.store import Place


def replay(held_out: HeldOut, run: Place, searcher: int, answerer: int, solver: Player) -> None:
    """Score the held-out answers that `solver`, of iteration `answerer`, gives after the searches made by iteration
    `searcher`. Stored with the answerer's iteration as benchmark `<name>, searches of <searcher>`."""
    scope, tasks, rubrics = held_out.scope, held_out.tasks, held_out.rubrics
    if scope is None or tasks is None or rubrics is None:
        return
    place = run.iteration(answerer).phase("replay").step(searcher)
    searched = run.iteration(searcher).phase("evaluation")
    store, name = run.store, f"{scope.cfg.evaluation.benchmark}, searches of {searcher}"
    prompts, rollouts = (store.get(searched.address(table, "solver")) for table in ("prompts", "rollouts"))
    prompt = Prompt("solver", scope.roles.solver.templates, after_searches)
    asked = ask(place, prompt, prompts, rollouts, label="solver")
    answered = roll_out(scope, place, asked, solver.policy, replay_talk(scope.talks.evaluate), label="solver")
    answers = read_answers(place, answered, asked, reader=scope.roles.read_answer)
    judgments = grade(scope, place, answers, rubrics, tasks)
    evaluate(place, measure, tasks, answers, rubrics, judgments, policy=solver.policy.id, benchmark=name)


def after_searches(prompts: list[Row], rollouts: list[Row]) -> Iterator[Row]:
    """Each conversation up to where its last turn began."""
    prompt_of = {prompt["prompt_id"]: prompt for prompt in prompts}
    for rollout in rollouts:
        prompt = prompt_of[rollout["prompt_id"]]
        messages = list(prompt["messages"])
        for turn in (rollout["turns"] or [])[:-1]:
            messages.append({"role": "assistant", "content": turn["text"]})
            messages.append({"role": turn["message_role"], "content": turn["message"]})
        yield {"task_id": prompt["task_id"], "task_type": prompt["task_type"], "messages": messages}
