"""Scores on questions that are never trained on.

They are the share of right answers, the recall of gold evidence, how well the reward model chooses
(section 5.2), other ways of answering (section 2.2), and needles in haystacks (appendix B).
"""

from __future__ import annotations

from flows.blocks.evaluation import score_benchmarks
from flows.blocks.long_context import QuestionSet
from flows.blocks.questions import held_out_world
from flows.eapo.compare import best_of_n
from flows.eapo.config import TASK_TYPES, Config
from flows.eapo.evidence import AnswerChecker, measure_answers
from flows.eapo.evidence_tree import TreeEvaluation
from flows.eapo.needles import Haystacks
from flows.eapo.roles import Roles
from flows.run import Player, Run
from tasks.evaluate import evaluate
from warehouse.store import Place, Table

CHOICES = "reward model"


def score_held_out(
    run: Run[Config],
    iteration: Place,
    roles: Roles,
    policy: Player,
    reward_model: Player,
    first_answers: Table | None = None,
) -> Table | None:
    """Answer every question `evaluation.samples` times, and let the reward model choose the best.

    At every iteration the reward model chooses among `first_answers`, those of the first
    evaluation. Returns them; None without held-out questions.
    """
    cfg = run.cfg.evaluation
    place = iteration.phase("evaluation")
    score_benchmarks(run, iteration, policy)
    if cfg.benchmark == "none":
        return None
    benchmark = QuestionSet.of_run(run, cfg.benchmark, TASK_TYPES)
    if "oracle" in cfg.trees.modes and not benchmark.has_evidence:
        raise ValueError(
            "evaluation.trees.modes has oracle, which answers from known evidence, but"
            f" {cfg.benchmark} has no column evidence"
        )
    answers = run.ask(
        place,
        roles.evaluated_policy,
        policy.policy,
        group_size=cfg.samples,
        tasks=benchmark.tasks,
        contexts=benchmark.contexts,
    ).rows
    checker = AnswerChecker(run, roles.judge)
    checks = checker.check(place, answers, benchmark.tasks)
    evaluate(
        place,
        measure_answers,
        policy=policy.policy.id,
        benchmark=benchmark.name,
        tasks=benchmark.tasks,
        answers=answers,
        matches=checks.matches,
        votes=checks.votes,
        evidence=benchmark.evidence,
    )
    if first_answers is None:
        first_answers = answers
    if cfg.best_of_n and benchmark.has_evidence and run.cfg.compares:
        score_choices(run, place, roles, reward_model, benchmark, first_answers)
    trees = TreeEvaluation(
        run, cfg.trees, benchmark, roles.evaluated_policy, roles.reward_model, checker
    )
    trees.score_modes(place, answers, policy.policy, reward_model.policy)
    if cfg.needles:
        filler = None
        if held_out_world(run) is None:
            filler = benchmark.contexts
        haystacks = Haystacks.open(run, cfg.needles, filler, cfg.seed)
        haystacks.search(run, place, roles.evaluated_policy, policy.policy, checker)
    return first_answers


def score_choices(
    run: Run[Config],
    place: Place,
    roles: Roles,
    reward_model: Player,
    benchmark: QuestionSet,
    answers: Table,
) -> None:
    """Let the reward model mark `answers`, and score its choice of the best (`best_of_n`)."""
    marks = run.ask(
        place, roles.reward_model, reward_model.policy, answers=answers, tasks=benchmark.tasks
    ).rows
    evaluate(
        place,
        best_of_n,
        policy=reward_model.policy.id,
        benchmark=CHOICES,
        label="choices",
        marks=marks,
        answers=answers,
        evidence=benchmark.evidence,
    )
