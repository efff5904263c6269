"""Scores on questions that are never trained on, and the difficulty of those that are.

Held-out questions are answered as in appendix E.2: n answers each, pass@k, contexts truncated to
fit. Difficulty is measured on an iteration's own questions with a fixed responder (figure 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from flows.blocks.evaluation import score_benchmarks
from flows.blocks.long_context import QuestionSet, accepted_rollouts, measure
from flows.blocks.questions import answer
from flows.run import Player
from flows.spell.config import Baseline
from flows.spell.rules import covers
from flows.spell.steps import Round, Spell, judge_externally
from tasks.evaluate import evaluate
from tasks.read import sampled
from tasks.stage import rows_by
from warehouse.schemas import Answer, Match, Task, Vote
from warehouse.store import Place

QUESTIONS = "questions of the iteration"


def score_held_out(spell: Spell, iteration: Place, player: Player) -> None:
    """Evaluate on every benchmark at every input limit.

    Before the first iteration, also evaluate with the baselines' prompts.
    """
    cfg = spell.run.cfg.evaluation
    score_benchmarks(spell.run, iteration, player)
    prompts: tuple[Baseline | None, ...] = (None,)  # the responder's own
    if iteration.at.iteration == 0:
        prompts = (None, *cfg.baselines)
    for name in cfg.held_out_sets:
        questions = QuestionSet.of_run(spell.run, name, spell.run.cfg.held_out_types)
        is_first = name == cfg.benchmark
        for limit in cfg.input_tokens:
            for baseline in prompts:
                score_questions(
                    spell, iteration, player, questions, limit, baseline, is_first=is_first
                )


def score_questions(
    spell: Spell,
    iteration: Place,
    player: Player,
    questions: QuestionSet,
    limit: int,
    baseline: Baseline | None,
    *,
    is_first: bool,
) -> None:
    """Answer every question n times, with prompts of at most `limit` tokens.

    An answer is right if the rule accepts it or, if a judge is configured, if the judge does. Table
    labels name the questions, except for the run's first benchmark.
    """
    run = spell.run
    cfg = run.cfg.evaluation
    place = iteration.phase("evaluation")
    label = f"{limit}-tokens"
    benchmark = questions.name
    if not is_first:
        label = f"{questions.name}-{label}"
    if len(cfg.input_tokens) > 1:
        benchmark += f", {limit} tokens"
    if baseline is not None:
        label += f"-{baseline.prompts}"
        benchmark += f", {baseline.prompts}"
        # a baseline prompts the base model, even if the run started from another policy
        player = replace(player, policy=run.model("base"))
    compare = covers
    world = run.world
    if world is not None and world.compare is not None and questions.name == world.benchmark:
        compare = world.compare  # which knows the truth
    responses = answer(
        run,
        place,
        spell.roles.held_out_responder(run.cfg, limit, baseline),
        player,
        group_size=cfg.samples,
        compare=compare,
        label=label,
        tasks=questions.tasks,
        contexts=questions.contexts,
    )
    judged = judge_externally(
        spell,
        place,
        spell.roles.examiner,
        responses.answers,
        questions.tasks,
        label=f"judge-{label}",
    )
    evaluate(
        place,
        measure,
        policy=player.policy.id,
        benchmark=benchmark,
        tasks=questions.tasks,
        answers=responses.answers,
        matches=responses.matches,
        judged=judged,
        passes=cfg.passes,
        label=label,
    )


def probe_questions(spell: Spell, iteration: Place, rounds: tuple[Round, ...]) -> None:
    """Measure how hard the well-formed questions of a step are for the fixed responder.

    The fixed responder sees the same documents as the trained one. Questions without answers are
    not measured.
    """
    num_answers = spell.run.cfg.evaluation.probe_answers
    if not num_answers or spell.has_no_answers:
        return
    place = iteration.phase("probe")
    prober = Player("prober", spell.run.model("prober"))
    tasks = [r.questions.tasks for r in rounds]
    responses = answer(
        spell.run,
        place,
        replace(spell.roles.responder, on_judge_engine="prober" in spell.run.models),
        prober,
        group_size=num_answers,
        compare=spell.rule,
        label="responder",
        tasks=tasks,
        documents=[r.questions.documents for r in rounds],
        memberships=spell.corpus.clusters,
    )
    judged = judge_externally(
        spell, place, spell.roles.examiner, responses.answers, tasks, label="examiner"
    )
    evaluate(
        place,
        difficulty,
        policy=prober.policy.id,
        benchmark=QUESTIONS,
        tasks=tasks,
        answers=responses.answers,
        matches=responses.matches,
        judged=judged,
    )


def difficulty(
    tasks: list[Task], answers: list[Answer], matches: list[Match], judged: list[Vote]
) -> Iterator[tuple[str, float]]:
    """Yield `difficulty` of every answered question, 1 - pass@1 by the rule or the judge, and the
    same value again as `difficulty_<type>`. Replies that were never sampled do not count."""
    right_answers = accepted_rollouts(matches, judged)
    answers_of = rows_by("task_id", sampled(answers))
    for task in tasks:
        answer_ids = [row["rollout_id"] for row in answers_of[task["task_id"]]]
        if not answer_ids:
            continue
        right = right_answers(task)
        value = 1 - sum(answer_id in right for answer_id in answer_ids) / len(answer_ids)
        yield "difficulty", value
        yield f"difficulty_{task['task_type']}", value
