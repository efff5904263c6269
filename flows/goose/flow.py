"""Golden Goose, arXiv 2601.22975: a step of a text is masked, and the policy chooses it among
distractors. Any text becomes tasks with a known answer.

It reads as figure 1: an author masks a step and writes distractors, tasks that are too easy are
dropped, and the policy trains on the others with a rule's reward.

Departures
- The paper's text was not at hand, only its abstract, data card and summaries by others. These do
  not say how many attempts the difficulty filter makes, nor from which share of right ones a task
  is too easy: here, if all of 16 are.
- The author copies the step. The mask is put in here, and a step that does not stand in the text
  once, word for word, makes no task. How the paper checks replies is not known.
- Options are shuffled by a seed.
- The paper trains on its tasks together with the tasks that ProRLv2 had, in programming, logic and
  so on; here on masked texts alone.
- The paper trains by ProRLv2. Clipping and the weight of the KL term are those of its configuration
  in NeMo RL, the temperature is ProRL's (2505.24864). The learning rate and the numbers of tasks,
  answers and steps are ours, as neither paper was at hand.
- Of ProRLv2 these are missing: advantages normalised over the batch (here GRPO's z-score in each
  group), new draws in place of groups whose rewards are all equal (which have no gradient here),
  truncated importance sampling, its KL estimator, resets of the reference, penalties for length.
- There may be several iterations, which measure difficulty again with the policy as it is then.
- The author is `models.author`, or else the base model, which no paper tried.
- The prompts are worded for this project. Programs have no prompt of their own.
- Benchmarks: three of the paper's fifteen.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from flows.blocks.controls import permuted
from flows.blocks.corpora import open_corpus
from flows.blocks.questions import (
    answer,
    answer_rewards,
    score_held_out,
    watch_passed,
    watch_questions,
)
from flows.goose.config import Config
from flows.goose.roles import Roles
from flows.method import method
from flows.run import Player, Run
from tasks.given import draw_tasks
from tasks.keep import Query, keep, num_kept
from tasks.normalise import normalise
from tasks.sample import sample
from tasks.score import score
from warehouse.store import Place, Table

log = logging.getLogger("selfplay")
NOT_EASY = Query.beside(__file__, "not_easy")


@dataclass(frozen=True)
class Made:
    """The tasks of an iteration, and which of them passed the filter."""

    tasks: Table
    kept: Table


@method(Config)
def goose_iteration(run: Run[Config]) -> Player:
    """Make tasks from texts, drop the easy ones, train on the others."""
    cfg = run.cfg
    roles = Roles(cfg)
    player = run.player("policy")
    documents = open_corpus(run, cfg.corpus, seed=cfg.world_seed, size=cfg.corpus_documents)
    score_held_out(run, run.place.iteration(0), roles.solver, player)
    for t, iteration in run.iterations():
        made = make_tasks(run, roles, iteration, player, documents, number=t - 1)
        if num_kept(made.kept):
            for s in range(cfg.steps):
                step = iteration.phase("training").step(s + 1)
                player = train(run, roles, step, player, made, number=s)
        else:
            log.warning("%s: no task is left, so nothing is trained", iteration.path)
        score_held_out(run, iteration, roles.solver, player)
    return player


def make_tasks(
    run: Run[Config],
    roles: Roles,
    iteration: Place,
    player: Player,
    documents: Table,
    number: int,
) -> Made:
    """Tasks about new documents, and the filter: those that the policy always solves are dropped.

    `number` counts iterations from 0; no document is drawn again before all were drawn.
    """
    cfg = run.cfg
    making = iteration.phase("making")
    author = run.model("author")
    samples = sample(
        making,
        documents,
        num_samples=cfg.documents,
        seed=cfg.seed,
        skip=number * cfg.documents,
    )
    tasks = run.ask(
        making,
        roles.author,
        author,
        group_size=cfg.author.group_size,
        samples=samples,
        documents=documents,
    ).rows
    watch_questions(run, making, author.id, tasks=tasks)
    attempts = answer(
        run,
        making,
        roles.solver,
        player,
        tasks=tasks,
        group_size=cfg.difficulty.attempts,
        comparing=cfg.match,
    )
    solved = score(making, answer_rewards, answers=attempts.answers, matches=attempts.matches)
    kept = keep(
        making,
        NOT_EASY,
        tasks=tasks,
        rewards=solved,
        too_easy=cfg.difficulty.too_easy,
        enabled=cfg.difficulty.enabled,
        seed=cfg.seed,
    )
    run.watch_pool(iteration, author.id, kept)
    watch_passed(run, making, author.id, tasks=tasks, chosen=kept)
    return Made(tasks, kept)


def train(
    run: Run[Config], roles: Roles, step: Place, player: Player, made: Made, number: int
) -> Player:
    """One update on answers to the `number`-th draw of tasks: 1 for the masked step, else 0."""
    cfg = run.cfg
    tasks = draw_tasks(
        step,
        made.tasks,
        chosen=made.kept,
        number=number,
        size=min(cfg.tasks_per_step, num_kept(made.kept)),  # none twice in an update
        seed=cfg.seed,
    )
    answers = answer(
        run,
        step,
        roles.solver,
        player,
        tasks=tasks,
        group_size=cfg.answers,
        comparing=cfg.match,
    )
    rewards = score(step, answer_rewards, answers=answers.answers, matches=answers.matches)
    advantages = normalise(step, permuted(run, step, cfg, rewards), scheme="zscore")
    return run.learn(
        step,
        player,
        advantages,
        answers.rollouts,
        cfg.update,
        rows_per_step=cfg.rows_per_step,
    )
