"""Figure 4 of the paper: how hard an iteration's questions are for one fixed responder, by task type."""

from __future__ import annotations

from collections.abc import Iterator

from flows.spell.steps import Player, Round, Spell, answer
from tasks.evaluate import evaluate
from tasks.prompt import Row
from warehouse.store import Place

BENCHMARK = "questions of the iteration"


def probe_questions(spell: Spell, iteration: Place, played: tuple[Round, ...]) -> None:
    """Let the fixed responder answer the well-formed questions of a step, over the same documents."""
    num_answers = spell.cfg.evaluation.probe_answers
    if not num_answers:
        return
    policy = spell.bench.policies.get("prober", spell.bench.policies["base"])
    place, tasks = iteration.phase("probe"), [r.tasks for r in played]
    shown = tasks, [r.documents for r in played], spell.corpus.clusters
    answers, matches, _ = answer(
        spell,
        place,
        Player(policy),
        spell.roles.responder,
        *shown,
        tasks=tasks,
        num_answers=num_answers,
        label="responder",
    )
    evaluate(place, difficulty, tasks, answers, matches, policy=policy.id, benchmark=BENCHMARK)


def difficulty(tasks: list[Row], answers: list[Row], matches: list[Row]) -> Iterator[tuple[str, float]]:
    """1 - pass@1 of every question, by the rule."""
    matched = {row["rollout_id"]: bool(row["matched"]) for row in matches}
    right: dict[str, list[bool]] = {}
    for given in answers:
        right.setdefault(given["task_id"], []).append(matched[given["rollout_id"]])
    for task in tasks:
        if task["task_id"] in right:
            value = 1 - sum(right[task["task_id"]]) / len(right[task["task_id"]])
            yield "difficulty", value
            yield f"difficulty_{task['task_type']}", value
