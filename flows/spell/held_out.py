"""The score on questions that are never trained on, as in appendix E.2 (n answers each, pass@k, contexts cut to fit),
and how hard an iteration's own questions are for a fixed responder (figure 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from flows.evaluation import score_benchmarks
from flows.long_context import QuestionSet, held_right, measure
from flows.micro.tables import open_cluster_tasks
from flows.questions import answer
from flows.run import Player, Role
from flows.spell.config import TASK_TYPES
from flows.spell.rules import covers, truly_covers
from flows.spell.steps import Round, Spell, judge_externally
from tasks.evaluate import evaluate
from tasks.stage import rows_by
from warehouse.schemas import Match, Task, Vote
from warehouse.store import Place

QUESTIONS = "questions of the iteration"


def score_held_out(spell: Spell, iteration: Place, player: Player) -> None:
    """Answer every task n times at every input limit; before the first iteration also with the baselines' prompts."""
    cfg = spell.run.cfg.evaluation
    score_benchmarks(spell.run, iteration, player)
    if cfg.benchmark == "none":
        return
    for name in (cfg.benchmark, *cfg.also):
        benchmark = QuestionSet.of_run(spell.run, name, TASK_TYPES, open_cluster_tasks)
        first = "" if name == cfg.benchmark else f"{benchmark.name}-"
        for limit in cfg.input_tokens:
            shown = benchmark.name + ("" if len(cfg.input_tokens) == 1 else f", {limit} tokens")
            role = spell.roles.examinee(spell.run.cfg, limit)
            examine(spell, iteration, role, player, benchmark, f"{first}{limit}-tokens", shown)
            for baseline in cfg.baselines if iteration.at.iteration == 0 else ():
                role = spell.roles.examinee(spell.run.cfg, limit, baseline)
                label, also = f"{first}{limit}-tokens-{baseline.prompts}", f"{shown}, {baseline.prompts}"
                examine(spell, iteration, role, player, benchmark, label, also)


def examine(
    spell: Spell, iteration: Place, role: Role, player: Player, benchmark: QuestionSet, label: str, name: str
) -> None:
    """Evaluate under `name`. An answer is right by the rule or, if one is configured, by the judge."""
    run, cfg, place = spell.run, spell.run.cfg.evaluation, iteration.phase("evaluation")
    tasks, compare = benchmark.tasks, truly_covers if benchmark.name in run.cfg.worlds else covers
    how = {"n": cfg.samples, "compare": compare, "label": label}
    given = answer(run, place, role, player, tasks=tasks, contexts=benchmark.contexts, **how)
    judged = judge_externally(spell, place, spell.roles.examiner, given.answers, tasks, label=f"judge-{label}")
    how = {"policy": player.policy.id, "benchmark": name, "label": label, "passes": cfg.passes}
    about = {"tasks": tasks, "answers": given.answers, "matches": given.matches, "judged": judged}
    evaluate(place, measure, **about, **how)


def probe_questions(spell: Spell, iteration: Place, played: tuple[Round, ...]) -> None:
    """Let the fixed responder answer the well-formed questions of a step, over the same documents."""
    num_answers, place = spell.run.cfg.evaluation.probe_answers, iteration.phase("probe")
    if not num_answers:
        return
    prober, tasks = Player("prober", spell.run.model("prober")), [r.posed.tasks for r in played]
    role = replace(spell.roles.responder, judge="prober" in spell.run.models)
    shown: dict[str, Any] = {"documents": [r.posed.documents for r in played], "memberships": spell.corpus.clusters}
    how = {"n": num_answers, "compare": spell.rule, "label": "responder"}
    given = answer(spell.run, place, role, prober, tasks=tasks, **shown, **how)
    judged = judge_externally(spell, place, spell.roles.examiner, given.answers, tasks, label="examiner")
    about = {"tasks": tasks, "matches": given.matches, "judged": judged}
    evaluate(place, difficulty, policy=prober.policy.id, benchmark=QUESTIONS, **about)


def difficulty(tasks: list[Task], matches: list[Match], judged: list[Vote]) -> Iterator[tuple[str, float]]:
    """1 - pass@1 of every answered question, by the rule or the judge."""
    right_of, matches_of = held_right(matches, judged), rows_by("task_id", matches)
    for task in tasks:
        if given := matches_of[task["task_id"]]:
            value = 1 - sum(row["rollout_id"] in right_of(task) for row in given) / len(given)
            yield "difficulty", value
            yield f"difficulty_{task['task_type']}", value
