"""Golden Goose, arXiv 2601.22975: a step of a text is masked, and the policy chooses it from among
distractors. Any text becomes tasks with known answers.

It reads as figure 1: an author masks a step and writes distractors, tasks that are too easy are
dropped, and the policy trains on the rest with a rule-based reward.

Departures
- We did not have the paper's text, only its abstract, data card and summaries by others. They do
  not say how many attempts the difficulty filter makes, nor at which share of right ones a task is
  too easy. Here it is too easy if all of 16 attempts are right.
- The author only copies the step; our code inserts the mask. A step that does not occur in the text
  exactly once, word for word, makes no task. How the paper checks replies is not known.
- Options are shuffled with a seed.
- The paper trains on its tasks together with ProRLv2's tasks in programming, logic and so on; we
  train on masked texts alone.
- The paper trains with ProRLv2. Clipping and the weight of the KL term are those of its
  configuration in NeMo RL, and the temperature is ProRL's (2505.24864). The learning rate and the
  numbers of tasks, answers and steps are ours, since we had neither paper.
- These parts of ProRLv2 are missing: advantages normalised over the batch (here, GRPO's z-score in
  each group), replacement draws for groups whose rewards are all equal (here, they have no
  gradient), truncated importance sampling, its KL estimator, reference resets, and length
  penalties.
- There may be several iterations; each measures difficulty again with its current policy.
- The author is `models.author` or else the base model, which no paper tried.
- The prompts are worded for this project. There is no separate prompt for programs.
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
    """Make tasks about new documents, and drop those that the policy always solves.

    `number` counts iterations from 0. No document is drawn again before all have been drawn.
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
    """One update on answers to the `number`-th draw of tasks. The reward is 1 for the masked step,
    else 0."""
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
