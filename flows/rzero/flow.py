"""R-Zero, arXiv 2508.05004: a Challenger asks questions without any data, a Solver answers them,
and the most frequent answer is the label.

It reads as sections 3.2 to 3.4.

Departures
- Prompts are worded for this project. The set `paper` makes the same requests as the released
  code's prompts (fewer than 30 % of advanced students should solve a problem), in one message
  without a system message.
- Answers are compared by Math-Verify in training, voting and evaluation. The released code uses
  mathruler, and for benchmarks also a model that decides doubtful cases.
- The share of similar questions is taken over all questions of a step, as in the released code.
- The paper's batch of 128 is one optimizer step on 128 prompts. The released code, like the paper
  profiles here, samples 512 prompts per step and takes 32 (Challenger) or 4 (Solver) optimizer
  steps on them (`mini_batch`). Questions left over from an incomplete batch wait for the next
  epoch's order. If fewer questions are kept than a step needs, every step uses all of them; in the
  released code this is an error.
- The KL term is relative to the base model, the optimizer state persists through all iterations,
  and the clip range is symmetric (0.2). In the released code, every iteration trains each player
  with a new optimizer and its starting policy as the reference, and the upper clip is 0.3.
- The Challenger's reward is eq. 5. In the released code, a reply without a question or without a
  boxed answer earns -1, min(p, 1 - p) replaces 1 - 2|p - 1/2|, and the filter keeps shares of 0.3
  to 0.8 of nine answers. The Solver's reward there is 0.9 for the answer and 0.1 for the format. As
  there, a majority's share is taken over the readable answers.
- For A < 0 the objective is at least 3 A (dual clip), as in the released code. Advantages are
  divided by the population standard deviation.
- All replies are sampled with the settings of `dialogues`. The released code samples the questions
  of the pool with top-p 0.95, and votes with top-p 1 and top-k 40.
- Benchmarks: an AIME or AMC question is answered once, since the released code's 32 answers are
  greedy. A multiple-choice answer without a readable letter is wrong, while the released code draws
  a letter at random.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from flows.blocks.controls import permuted
from flows.blocks.questions import (
    answer,
    answer_rewards,
    majority,
    readers,
    score_held_out,
    watch_passed,
    watch_questions,
)
from flows.method import method
from flows.run import Player, Role, Run, templates
from flows.rzero.config import Config, rows_per_step
from flows.rzero.novelty import novelty
from flows.rzero.rewards import challenger_rewards
from tasks.ask import readable_tasks, repeatedly
from tasks.keep import Query, keep, num_kept
from tasks.monitors.drift import components_share
from tasks.monitors.monitor import BATCH
from tasks.normalise import normalise
from tasks.read import reads
from tasks.score import score
from warehouse.schemas import ANSWERS, TASKS, Row, Selection, Task
from warehouse.store import Place, Table

log = logging.getLogger("selfplay")
INFORMATIVE = Query.beside(__file__, "informative")


class Roles:
    """Who asks and who answers."""

    def __init__(self, cfg: Config) -> None:
        template = templates(cfg, cfg.dialogues.prompts)
        question, result = readers(cfg.reads_lines)
        self.challenger = Role(
            "challenger",
            templates=(template("challenger"),),
            variables=repeatedly,
            sampling=cfg.dialogues.sampling,
            into=TASKS,
            read=reads("text", question),
            dialogue=cfg.dialogues.one_reply,
        )
        self.solver = Role(
            "solver",
            templates=(template("solver"),),
            variables=readable_tasks,
            sampling=cfg.dialogues.sampling,
            into=ANSWERS,
            read=reads("answer", result),
            dialogue=cfg.dialogues.one_reply,
        )


@dataclass(frozen=True)
class Questions:
    """The Challenger's questions with their rollouts, and the Solver's answers to them."""

    tasks: Table
    rollouts: Table
    answers: Table


@method(Config)
def rzero_iteration(run: Run[Config]) -> tuple[Player, Player]:
    """Challenger and Solver start as one model and take turns to learn."""
    roles = Roles(run.cfg)
    challenger = run.player("challenger")
    solver = run.player("solver")
    score_held_out(run, run.place.iteration(0), roles.solver, solver)
    for _, iteration in run.iterations():
        challenger = train_challenger(run, roles, iteration, challenger, solver)
        solver = train_solver(run, roles, iteration, challenger, solver)
        score_held_out(run, iteration, roles.solver, solver)
    return challenger, solver


def train_challenger(
    run: Run[Config], roles: Roles, iteration: Place, challenger: Player, solver: Player
) -> Player:
    """Section 3.2: a question earns most if half of the Solver's answers agree and few other
    questions are similar."""
    cfg = run.cfg.challenger
    for b in range(cfg.steps):
        step = iteration.phase("challenger").step(b + 1)
        questions = ask_and_answer(
            run,
            roles,
            step,
            challenger,
            solver,
            num_prompts=cfg.prompts_per_step,
            group_size=cfg.group_size,
            num_answers=run.cfg.solver.answers,
        )
        labels = majority(run, step, tasks=questions.tasks, answers=questions.answers)
        novelties = novelty(step, tasks=questions.tasks, distance=cfg.bleu_distance)  # eq. 4
        rewards = score(  # eq. 5
            step,
            challenger_rewards,
            tasks=questions.tasks,
            labels=labels,
            novelties=novelties,
            weight=cfg.repetition_weight,
        )
        advantages = normalise(step, rewards, scheme="zscore")
        watch_questions(run, step, challenger.policy.id, tasks=questions.tasks, labels=labels)
        run.watch(
            step,
            partial(components_share, parts={"uncertainty": 1.0, "alike": cfg.repetition_weight}),
            policy=challenger.policy.id,
            benchmark=BATCH,
            label="parts",
            advantages=advantages,
        )
        challenger = run.learn(
            step,
            challenger,
            advantages,
            questions.rollouts,
            cfg.update,
            rows_per_step=rows_per_step(cfg),
        )
    return challenger


def train_solver(
    run: Run[Config], roles: Roles, iteration: Place, challenger: Player, solver: Player
) -> Player:
    """Sections 3.3 and 3.4: label N questions by majority and train on those that are neither easy
    nor hard, for as many epochs as the steps take."""
    cfg = run.cfg.solver
    pool = iteration.phase("pool")
    questions = ask_and_answer(
        run,
        roles,
        pool,
        challenger,
        solver,
        num_prompts=cfg.candidates,
        group_size=1,
        num_answers=cfg.answers,
    )
    tasks = questions.tasks
    labels = majority(run, pool, tasks=tasks, answers=questions.answers)
    kept = keep(pool, INFORMATIVE, tasks=tasks, labels=labels, delta=cfg.delta, seed=run.cfg.seed)
    watch_questions(run, pool, challenger.policy.id, tasks=tasks, labels=labels)
    run.watch_pool(iteration, challenger.policy.id, kept)
    watch_passed(run, pool, challenger.policy.id, tasks=tasks, chosen=kept, labels=labels)
    num_questions = num_kept(kept)
    size = questions_per_step(pool, num_questions, cfg.prompts_per_step)
    for b in range(cfg.steps if num_questions else 0):
        step = iteration.phase("solver").step(b + 1)
        epoch, number = divmod(b, num_questions // size)
        batch = partial(batch_of_epoch, epoch=epoch, batch=number, size=size, seed=run.cfg.seed)
        solutions = answer(
            run,
            step,
            replace(roles.solver, variables=batch),
            solver,
            group_size=cfg.group_size,
            tasks=tasks,
            selections=kept,
            labels=labels,
            comparing=run.cfg.match,
            errors=run.cfg.errors,
        )
        rewards = score(step, answer_rewards, answers=solutions.answers, matches=solutions.matches)
        advantages = normalise(step, permuted(run, step, cfg, rewards), scheme="zscore")
        solver = run.learn(
            step,
            solver,
            advantages,
            solutions.rollouts,
            cfg.update,
            rows_per_step=rows_per_step(cfg),
        )
    return solver


def questions_per_step(pool: Place, num_questions: int, wanted: int) -> int:
    """The number of questions in a step: `wanted` or, with a warning, all kept ones if fewer."""
    if num_questions < wanted:
        log.warning(
            "%s: only %d questions are kept, and a step should have %d: each step uses all of them",
            pool.path,
            num_questions,
            wanted,
        )
    return min(num_questions, wanted)


def batch_of_epoch(
    selections: list[Selection], tasks: list[Task], *, epoch: int, batch: int, size: int, seed: int
) -> Iterator[Row]:
    """Yield the `batch`-th batch of `size` kept tasks: in selection order, or, in later epochs, in
    the epoch's own random order."""
    task_of = {task["task_id"]: task for task in tasks}
    kept = [task_of[row["task_id"]] for row in selections if row["kept"]]
    if epoch:
        random.Random(f"{seed}-{epoch}").shuffle(kept)
    return readable_tasks(kept[batch * size : (batch + 1) * size])


def ask_and_answer(
    run: Run[Config],
    roles: Roles,
    at: Place,
    challenger: Player,
    solver: Player,
    *,
    num_prompts: int,
    group_size: int,
    num_answers: int,
) -> Questions:
    """Ask `group_size` questions for each of `num_prompts` prompts, and `num_answers` answers to
    each question."""
    asking = roles.challenger.given(count=num_prompts)
    questions = run.ask(at, asking, challenger.policy, group_size=group_size)
    answers = run.ask(at, roles.solver, solver.policy, group_size=num_answers, tasks=questions.rows)
    return Questions(questions.rows, questions.rollouts, answers.rows)
