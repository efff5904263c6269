"""R-Zero, arXiv 2508.05004: a Challenger asks questions without any data, a Solver answers them; the most
frequent answer is the label. It reads as sections 3.2 to 3.4.

Departures
- Answers are compared by Math-Verify alone; the released code asks a model in doubtful cases.
- The share of similar questions is taken over all questions of a step, as in the released code.
- A Solver step for which too few questions are left is skipped.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from flows.ahead import ahead
from flows.controls import permuted
from flows.method import method
from flows.questions import answer, majority, pay_answers, readers, score_held_out, watch_passed, watch_questions
from flows.run import Player, Replies, Role, Run, templates
from flows.rzero.config import Config
from flows.rzero.rewards import pay_challenger
from tasks.ask import kept_tasks, readable_tasks, repeatedly
from tasks.course import components_share
from tasks.keep import Query, keep, num_kept
from tasks.monitor import BATCH
from tasks.normalise import normalise
from tasks.novelty import novelty
from tasks.read import reads
from tasks.score import score
from warehouse.schemas import ANSWERS, TASKS
from warehouse.store import Place, Table

INFORMATIVE = Query.beside(__file__, "informative")


class Roles:
    def __init__(self, cfg: Config) -> None:
        template, sampling = templates(cfg, cfg.dialogues.prompts), cfg.dialogues.sampling
        ask, solve = (template("challenger"),), (template("solver"),)
        question, result = readers(cfg.dialogues.prompts)
        role = partial(Role, sampling=sampling, dialogue=cfg.dialogues.one_reply)
        self.challenger = role("challenger", ask, repeatedly, into=TASKS, read=reads("text", question))
        self.solver = role("solver", solve, readable_tasks, into=ANSWERS, read=reads("answer", result))


@method(Config)
def rzero_iteration(run: Run[Config]) -> tuple[Player, Player]:
    """Challenger and Solver start as one model and take turns to learn."""
    roles, challenger, solver = Roles(run.cfg), run.player("challenger"), run.player("solver")
    score_held_out(run, run.place.iteration(0), roles.solver, solver)
    for _, iteration in run.iterations():
        challenger = train_challenger(run, roles, iteration, challenger, solver)
        solver = train_solver(run, roles, iteration, challenger, solver)
        score_held_out(run, iteration, roles.solver, solver)
    return challenger, solver


def train_challenger(run: Run[Config], roles: Roles, iteration: Place, challenger: Player, solver: Player) -> Player:
    """Section 3.2: a question is worth most when half of the Solver's answers agree, and few others are similar."""
    cfg, m = run.cfg.challenger, run.cfg.solver.answers
    for b in range(cfg.steps):
        step = iteration.phase("challenger").step(b + 1)
        size = {"count": cfg.prompts_per_step, "n": cfg.group_size, "m": m}
        asked, answers = ask_and_answer(run, roles, step, challenger, solver, **size)
        about = {"tasks": asked.rows, "labels": majority(run, step, tasks=asked.rows, answers=answers)}
        alike = novelty(step, tasks=asked.rows, distance=cfg.bleu_distance)  # eq. 4
        scores = score(step, pay_challenger, novelties=alike, weight=cfg.repetition_weight, **about)  # eq. 5
        rewards = normalise(step, scores, scheme="zscore")
        watch_questions(run, step, challenger.policy.id, **about)
        parts = partial(components_share, parts={"uncertainty": 1.0, "alike": cfg.repetition_weight})
        run.watch(step, parts, policy=challenger.policy.id, benchmark=BATCH, label="parts", rewards=rewards)
        challenger = run.learn(step, challenger, rewards, asked.rollouts, cfg.update)
    return challenger


def train_solver(run: Run[Config], roles: Roles, iteration: Place, challenger: Player, solver: Player) -> Player:
    """Sections 3.3 and 3.4: N questions; train once, by its label, on each that is neither easy nor hard."""
    cfg, pool = run.cfg.solver, iteration.phase("pool")
    size = {"count": cfg.candidates, "n": 1, "m": cfg.answers}
    asked, answers = ask_and_answer(run, roles, pool, challenger, solver, **size)
    labels = majority(run, pool, tasks=asked.rows, answers=answers)
    kept = keep(pool, INFORMATIVE, tasks=asked.rows, labels=labels, delta=cfg.delta, seed=run.cfg.seed)
    watch_questions(run, pool, challenger.policy.id, tasks=asked.rows, labels=labels)
    run.watch_pool(iteration, challenger.policy.id, kept)
    watch_passed(run, pool, challenger.policy.id, tasks=asked.rows, chosen=kept, labels=labels)
    for b in range(min(cfg.steps, num_kept(kept) // cfg.prompts_per_step)):
        step = iteration.phase("solver").step(b + 1)
        batch = partial(kept_tasks, first=b * cfg.prompts_per_step, count=cfg.prompts_per_step)
        about = {"tasks": asked.rows, "selections": kept, "labels": labels, "comparing": run.cfg.match}
        said = answer(run, step, replace(roles.solver, about=batch), solver, n=cfg.group_size, **about)
        scores = permuted(run, step, cfg, score(step, pay_answers, answers=said.answers, matches=said.matches))
        solver = run.learn(step, solver, normalise(step, scores, scheme="zscore"), said.rollouts, cfg.update)
    return solver


@ahead
def ask_and_answer(
    run: Run[Config], roles: Roles, at: Place, challenger: Player, solver: Player, *, count: int, n: int, m: int
) -> tuple[Replies, Table]:
    """`n` questions to each of `count` prompts, and `m` answers to each question."""
    asked = run.ask(at, roles.challenger.given(count=count), challenger.policy, n=n)
    return asked, run.ask(at, roles.solver, solver.policy, n=m, tasks=asked.rows).rows
