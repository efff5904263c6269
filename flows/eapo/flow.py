"""EAPO, Evidence-Augmented Policy Optimization: a policy quotes before it answers, a reward model compares what is
quoted, and learns from the comparisons that agree with the outcomes. It reads as section 3.

Departures
- Marks of a group that are all equal pay (v - 1) / 4, and a comparison that cannot be read twice pays nothing.
- A comparison is learnt whole, or not at all: one row is one group's comparison in the reward model's own words.
- Identical evidence is shown as often as it was given.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows.eapo.config import TASK_TYPES, Config
from flows.eapo.held_out import score_held_out
from flows.eapo.measures import true_marks, watched
from flows.eapo.outcome import judge
from flows.eapo.rewards import pay_policy
from flows.eapo.roles import Roles
from flows.long_context import Benchmark
from flows.method import method
from flows.micro.tables import haystack_contexts, haystack_mark, haystack_tasks
from flows.run import Player, Run
from tasks.given import draw_tasks
from tasks.keep import Query, choose
from tasks.monitor import JUDGE
from tasks.normalise import normalise
from tasks.score import score
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
        steps = []
        for b in range(cfg.steps):
            step, number = iteration.phase("policy").step(b + 1), (t - 1) * cfg.steps + b
            given = {"number": number, "size": cfg.batch_size, "seed": cfg.seed}
            tasks = draw_tasks(step, data.tasks, **given)
            policy, taken = improve(run, roles, step, policy, reward_model, tasks, data.contexts)
            steps.append(taken)
        if cfg.reward_model.trained and cfg.rewards.evidence:
            reward_model = refine(run, iteration.phase("reward_model"), reward_model, steps)
        score_held_out(run, iteration, roles, policy, reward_model, first)
    return policy, reward_model


@dataclass(frozen=True)
class Taken:
    """What a step leaves to the reward model: its comparisons, the marks in them, and what the answers were paid."""

    comparisons: tuple[Table, ...]
    marks: tuple[Table, ...]
    scores: Table


def improve(
    run: Run[Config], roles: Roles, step: Place, policy: Player, reward_model: Player, tasks: Table, contexts: Table
) -> tuple[Player, Taken]:
    """Section 3.2: G answers to each question, one comparison of their evidence, one update."""
    cfg = run.cfg
    said = run.ask(step, roles.policy, policy.policy, n=cfg.group_size, tasks=tasks, contexts=contexts)
    outcome = judge(run, roles, step, said.rows, tasks)  # R_a
    comparisons, marks = (), ()
    if cfg.rewards.evidence:  # R_e
        compared = run.ask(step, roles.reward_model, reward_model.policy, answers=said.rows, tasks=tasks)
        comparisons, marks = (compared.rollouts,), (compared.rows,)
    watch(run, step, policy.policy.id, answers=said.rows, marks=marks, tasks=tasks)
    scores = score(step, pay_policy, answers=said.rows, marks=marks, **outcome, weights=cfg.rewards)  # eq. 2
    rewards = normalise(step, scores, scheme="zscore")
    return run.learn(step, policy, rewards, said.rollouts, cfg.update), Taken(comparisons, marks, scores)  # eq. 1


def refine(run: Run[Config], at: Place, reward_model: Player, steps: list[Taken]) -> Player:
    """Section 3.3, eq. 3: rejection fine-tuning on the iteration's comparisons that agree with the outcomes."""
    cfg = run.cfg.reward_model
    bounds = {"high": (cfg.high - 1) / 4, "low": (cfg.low - 1) / 4}
    marks, scores = [m for taken in steps for m in taken.marks], [taken.scores for taken in steps]
    chosen = choose(at, CONSISTENT, marks=marks, scores=scores, **bounds)
    rollouts = [rollouts for taken in steps for rollouts in taken.comparisons]
    return run.imitate(at, reward_model, chosen, rollouts, cfg.update, batch_size=cfg.batch_size)


def open_questions(run: Run[Config]) -> Benchmark:
    """What is trained on: the built-in world's questions, or those of a file."""
    cfg, place = run.cfg, run.place.iteration(0).phase("questions")
    if cfg.questions == "micro":
        made = {"seed": cfg.world_seed, "num_tasks": cfg.in_world}
        return Benchmark("micro", haystack_tasks(place, **made), haystack_contexts(place, **made))
    return Benchmark.open(place, cfg.questions, TASK_TYPES)


def watch(run: Run[Config], step: Place, policy: str, *, marks: tuple[Table, ...], **about: Table) -> None:
    """Stop before an update where too little is quoted from the context, or comparisons cannot be read."""
    run.watch(step, watched, policy=policy, benchmark=QUOTES, label="quotes", answers=about["answers"], marks=marks)
    if run.cfg.questions == "micro" and marks:
        given = {"marks": marks, "oracle": haystack_mark, **about}
        run.watch(step, true_marks, policy=policy, benchmark=JUDGE, label="truth", **given)
