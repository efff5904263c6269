"""EAPO, Evidence-Augmented Policy Optimization: a policy quotes before it answers, a reward model compares what is
quoted, and learns from the comparisons that agree with the outcomes. It reads as section 3.

Departures
- If all marks of a group are equal, they pay (v - 1) / 4; a comparison that is unreadable twice pays nothing.
- A comparison is learnt whole, or not at all: one row is one group's comparison in the reward model's own words.
- Identical evidence is shown as often as it was given.
"""

from __future__ import annotations

from flows.ahead import ahead
from flows.eapo.config import TASK_TYPES, Config
from flows.eapo.held_out import score_held_out
from flows.eapo.rewards import pay_policy
from flows.eapo.roles import Roles
from flows.evidence import Outcome, quoted
from flows.long_context import QuestionSet
from flows.method import method
from flows.micro.tables import haystack_mark, open_haystacks
from flows.run import Player, Replies, Run
from tasks.compare import true_marks
from tasks.given import draw_tasks
from tasks.keep import Query, choose
from tasks.monitor import JUDGE
from tasks.normalise import normalise
from tasks.score import score
from tasks.stage import Tables
from warehouse.store import Place, Table

QUOTES = "quote monitor"  # a benchmark in `evaluations`
CONSISTENT = Query.beside(__file__, "consistent")


@method(Config)
def eapo_iteration(run: Run[Config]) -> tuple[Player, Player]:
    """A policy and a reward model that co-evolve."""
    cfg, roles, data = run.cfg, Roles(run.cfg), open_questions(run)
    policy, reward_model = run.player("policy"), Player("reward_model", run.model("reward_model"))
    first = score_held_out(run, run.place.iteration(0), roles, policy, reward_model)
    for t, iteration in run.iterations():
        compared, paid = list[Replies](), list[Table]()
        for b in range(cfg.steps):
            step, number = iteration.phase("policy").step(b + 1), (t - 1) * cfg.steps + b
            tasks = draw_tasks(step, data.tasks, number=number, size=cfg.batch_size, seed=cfg.seed)
            policy, comparisons, scores = improve(run, roles, step, policy, reward_model, tasks, data.contexts)
            compared += comparisons
            paid.append(scores)
        if cfg.reward_model.trained and compared:
            reward_model = refine(run, iteration.phase("reward_model"), reward_model, compared, paid)
        score_held_out(run, iteration, roles, policy, reward_model, first)
    return policy, reward_model


def improve(
    run: Run[Config], roles: Roles, step: Place, policy: Player, reward_model: Player, tasks: Table, contexts: Table
) -> tuple[Player, list[Replies], Table]:
    """Section 3.2: G answers to each question, one comparison of their evidence, one update. Also returns the
    comparisons and the scores of the answers."""
    cfg = run.cfg
    said, outcome, compared = answer_and_compare(run, roles, step, policy, reward_model, tasks, contexts)
    marks = [comparison.rows for comparison in compared]
    watch(run, step, policy.policy.id, answers=said.rows, marks=marks, tasks=tasks)
    scores = score(step, pay_policy, answers=said.rows, marks=marks, **outcome, weights=cfg.rewards)  # eq. 2
    rewards = normalise(step, scores, scheme="zscore")
    return run.learn(step, policy, rewards, said.rollouts, cfg.update), compared, scores  # eq. 1


@ahead
def answer_and_compare(
    run: Run[Config], roles: Roles, step: Place, policy: Player, reward_model: Player, tasks: Table, contexts: Table
) -> tuple[Replies, dict[str, Tables], list[Replies]]:
    """Answers, their outcomes, and the comparison of the evidence of each group."""
    cfg, compared = run.cfg, list[Replies]()
    said = run.ask(step, roles.policy, policy.policy, n=cfg.group_size, tasks=tasks, contexts=contexts)
    outcome = Outcome(run, roles.judge)(step, said.rows, tasks)  # R_a
    if cfg.rewards.evidence:  # R_e
        compared.append(run.ask(step, roles.reward_model, reward_model.policy, answers=said.rows, tasks=tasks))
    return said, outcome, compared


def refine(run: Run[Config], at: Place, reward_model: Player, compared: list[Replies], scores: list[Table]) -> Player:
    """Section 3.3, eq. 3: rejection fine-tuning on the iteration's comparisons that agree with the outcomes."""
    cfg = run.cfg.reward_model
    bounds = {"high": (cfg.high - 1) / 4, "low": (cfg.low - 1) / 4}
    chosen = choose(at, CONSISTENT, marks=[comparison.rows for comparison in compared], scores=scores, **bounds)
    rollouts = [comparison.rollouts for comparison in compared]
    return run.imitate(at, reward_model, chosen, rollouts, cfg.update, batch_size=cfg.batch_size)


def open_questions(run: Run[Config]) -> QuestionSet:
    """The training questions: the built-in world's, or those of a file."""
    cfg, place = run.cfg, run.place.iteration(0).phase("questions")
    if cfg.questions == "micro":
        return open_haystacks(place, seed=cfg.world_seed, num_tasks=cfg.in_world, with_evidence=False)
    return QuestionSet.open(place, cfg.questions, TASK_TYPES)


def watch(run: Run[Config], step: Place, policy: str, *, answers: Table, marks: list[Table], tasks: Table) -> None:
    """Stop before an update if too little is quoted from the context, or if comparisons cannot be read."""
    about = {"answers": answers, "marks": marks}
    run.watch(step, quoted, policy=policy, benchmark=QUOTES, label="quotes", **about)
    if run.cfg.questions == "micro" and marks:
        truth = {"tasks": tasks, "oracle": haystack_mark}
        run.watch(step, true_marks, policy=policy, benchmark=JUDGE, label="truth", **about, **truth)
