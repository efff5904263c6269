"""The score on questions that are never trained on, the recall of gold evidence, how well the reward model chooses
(section 5.2), other ways of answering (section 2.2), and needles in haystacks (appendix B)."""

from __future__ import annotations

from typing import Any

from flows.eapo.config import TASK_TYPES, Config
from flows.eapo.roles import Roles
from flows.evaluation import score_benchmarks
from flows.evidence import Outcome, measure_answers
from flows.evidence_tree import TreeExam
from flows.long_context import QuestionSet
from flows.micro.tables import open_haystacks
from flows.needles import Haystacks
from flows.run import Player, Run
from tasks.compare import best_of_n
from tasks.evaluate import evaluate
from warehouse.store import Place, Table

CHOICES = "reward model"


def score_held_out(
    run: Run[Config], iteration: Place, roles: Roles, policy: Player, reward_model: Player, first: Table | None = None
) -> Table | None:
    """Answer every question n times, and let the reward model choose best-of-N among the `first` evaluation's answers,
    the same at every iteration. Returns these."""
    cfg, place, outcome = run.cfg.evaluation, iteration.phase("evaluation"), Outcome(run, roles.judge)
    score_benchmarks(run, iteration, policy)
    if cfg.benchmark == "none":
        return None
    benchmark = QuestionSet.of_run(run, cfg.benchmark, TASK_TYPES, open_haystacks)
    tasks, known = benchmark.tasks, {"evidence": benchmark.evidence}
    shown: dict[str, Any] = {"tasks": tasks, "contexts": benchmark.contexts}
    said = run.ask(place, roles.examinee, policy.policy, n=cfg.samples, **shown).rows
    given = {"tasks": tasks, "answers": said, **outcome(place, said, tasks), **known}
    evaluate(place, measure_answers, policy=policy.policy.id, benchmark=benchmark.name, **given)
    first = said if first is None else first
    if cfg.best_of_n and benchmark.evidence and run.cfg.rewards.evidence:
        marks = run.ask(place, roles.reward_model, reward_model.policy, answers=first, tasks=tasks).rows
        about = {"policy": reward_model.policy.id, "benchmark": CHOICES, "label": "choices"}
        evaluate(place, best_of_n, marks=marks, answers=first, **known, **about)
    exam = TreeExam(run, cfg.trees, benchmark, roles.examinee, roles.reward_model, outcome)
    exam.take(place, said, policy.policy, reward_model.policy)
    if cfg.needles:
        filler = None if cfg.benchmark == "micro" else benchmark.contexts
        Haystacks.open(run, cfg.needles, filler, cfg.seed).search(run, place, roles.examinee, policy.policy, outcome)
    return first
