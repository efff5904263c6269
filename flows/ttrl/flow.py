"""TTRL, arXiv 2504.16084: reinforcement learning on questions without answers. The policy answers
each question several times; an answer is right if it agrees with the majority.

This is the worked example of a method: `selfplay new NAME` copies this folder.

Departures
- The paper samples 64 answers for the vote and trains on 32 of them; here all answers do both.
- The learning rate is constant; the released script warms it up for 3 % of the steps and then
  decays it along a cosine.
- Answers are compared by Math-Verify and as text, as everywhere in this project.
"""

from __future__ import annotations

from flows.blocks.questions import (
    answer_rewards,
    compare_answers,
    majority,
    readers,
    score_held_out,
    watch_labels,
)
from flows.method import method
from flows.run import Player, Role, Run, templates
from flows.ttrl.config import Config
from tasks.ask import readable_tasks
from tasks.benchmarks.items import Columns
from tasks.given import GivenTasks, given_tasks
from tasks.normalise import normalise
from tasks.read import reads
from tasks.score import score
from tasks.scorers.equality import agree
from warehouse.schemas import ANSWERS
from warehouse.store import Place, Table


@method(Config)
def ttrl_iteration(run: Run[Config]) -> Player:
    """Answer, vote, reward agreement with the majority, update."""
    cfg = run.cfg
    solver = solver_role(cfg)
    player = run.player("policy")
    score_held_out(run, run.place.iteration(0), solver, player)
    for t, iteration in run.iterations():
        for s in range(cfg.steps):
            step = iteration.phase("training").step(s + 1)
            tasks = draw_questions(run, step, number=(t - 1) * cfg.steps + s)
            solutions = run.ask(step, solver, player.policy, group_size=cfg.group_size, tasks=tasks)
            labels = majority(run, step, tasks=tasks, answers=solutions.rows)
            watch_labels(run, step, player.policy.id, labels=labels)
            matches = compare_answers(
                step, solutions.rows, tasks, labels=labels, compare=agree, comparing=cfg.match
            )
            rewards = score(step, answer_rewards, answers=solutions.rows, matches=matches)
            advantages = normalise(step, rewards, scheme="zscore")
            player = run.learn(step, player, advantages, solutions.rollouts, cfg.update)
        score_held_out(run, iteration, solver, player)
    return player


def solver_role(cfg: Config) -> Role:
    """What the policy is asked, and what is read from its replies."""
    template = templates(cfg, cfg.dialogues.prompts)
    _, result = readers(cfg.reads_lines)
    return Role(
        "solver",
        (template("solver"),),
        # yields the template's values for each prompt from the tables named by its parameters
        variables=readable_tasks,
        sampling=cfg.dialogues.sampling,
        # the table that replies are read into, and the reader of one of its columns, which raises
        # Malformed with a reason
        into=ANSWERS,
        read=reads("answer", result),
        dialogue=cfg.dialogues.one_reply,
    )


def draw_questions(run: Run[Config], step: Place, number: int) -> Table:
    """The questions of one step. No question of a file repeats until all have been drawn.

    Raises ValueError if there is neither a file nor a built-in world with questions.
    """
    cfg = run.cfg
    if cfg.questions is None:
        if run.world is None or run.world.tasks is None:
            raise ValueError(
                "there is nothing to ask: give questions=FILE, or a built-in world of questions,"
                " such as world=ledgers"
            )
        # the held-out questions have seeds below 1,000
        return run.world.tasks(step, seed=1000 + number, num_tasks=cfg.questions_per_step)
    source = GivenTasks(file=cfg.questions, columns=Columns(question=("question",)))
    items = source.items(run.place.iteration(0).phase("questions"), cfg.seed)
    return given_tasks(step, items, number=number, count=cfg.questions_per_step, seed=cfg.seed)
