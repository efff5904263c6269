"""The parts of an MAE step: questions are proposed, pairs are made, and the Judge is trained.

As in the paper, D is the pool of questions and P the pool of questions with answers.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from corpus_prep.read.rows import read_rows
from flows.blocks.joint_update import RoleRollouts, learn_jointly
from flows.blocks.questions import held_out_world, watch_passed, watch_questions
from flows.mae.config import Config
from flows.mae.rewards import judge_rewards, proposer_rewards, solver_rewards
from flows.mae.roles import Roles
from flows.run import Player, Replies, Role, Run
from tasks.benchmarks.items import items_of
from tasks.benchmarks.own_file import columns_of
from tasks.corpus.documents import corpus_identity
from tasks.monitors.monitor import JUDGE, mark_errors, marks_given
from tasks.pool import PoolRules, draw_entries, pool
from tasks.readers.letters import lettered
from tasks.score import score
from tasks.stage import Rows, stage
from warehouse.draft import hash_json
from warehouse.schemas import TASKS
from warehouse.store import Place, Table


@dataclass(frozen=True)
class Trials:
    """Answers to questions, and the Judge's marks of the answers."""

    answers: Replies
    marks: Replies


# ---- line 2: the first questions ----


def first_questions(run: Run[Config], roles: Roles, model: Player) -> Table:
    """D_0: questions from a file, or questions that the base model asks. No answer is read."""
    cfg = run.cfg.questions
    place = run.place.iteration(0).phase("questions")
    if cfg.file:
        tasks = seed_questions(
            place,
            file=cfg.file,
            identity=corpus_identity(cfg.file),
            count=cfg.count,
            seed=run.cfg.seed,
        )
    else:
        proposer = roles.proposer.given(count=cfg.count)
        tasks = run.ask(place, proposer, model.policy, draws=()).rows
    return pool(place, tasks=tasks)


@stage(TASKS)
def seed_questions(*, file: str, identity: str, count: int, seed: int) -> Rows:
    """Yield `count` questions of a file, drawn without replacement, with their passages and
    options.

    No answer is read. `identity` stands for the file's content. Raises ValueError if no column name
    denotes a question, or if there are fewer than `count` different questions.
    """
    columns = columns_of(Path(file)).model_copy(update={"answers": (), "id": None})
    items = items_of(read_rows(Path(file)), "seeds", columns)
    texts = sorted({whole_question(item) for item in items})
    if len(texts) < count:
        raise ValueError(f"{file} has {len(texts)} different questions, but {count} are wanted")
    for text in random.Random(seed).sample(texts, count):
        yield {"task_id": hash_json([identity, text]), "text": text}


def whole_question(item: Mapping[str, Any]) -> str:
    """A question with its passage before it and its options after it, as in the released code.

    >>> whole_question({"text": "Who?", "context": "Ada did.", "options": ["Ada", "Bo"]})
    'Ada did.\\n\\nWho?\\nA) Ada\\nB) Bo'
    """
    options = [f"{option['letter']}) {option['text']}" for option in lettered(item["options"])]
    question = "\n".join([item["text"], *options])
    if item["context"]:
        return f"{item['context']}\n\n{question}"
    return question


# ---- lines 4-15: the Proposer ----


def propose(
    run: Run[Config], roles: Roles, step: Place, model: Player, D: Table
) -> tuple[Table, RoleRollouts]:
    """Lines 4-15: new questions; the good ones are added to D. Returns D and the rewards."""
    cfg = run.cfg
    policy = model.policy
    # line 5: questions to surpass
    num_references = round(cfg.questions.referenced * cfg.batch_size)
    references = draw(run, step, D, num_references, label="references")
    # lines 6-9: new questions, and the Judge's marks of their quality
    proposer = roles.proposer.given(count=cfg.batch_size)
    questions = run.ask(step, proposer, policy, draws=references)
    tasks = questions.rows
    quality = run.ask(
        step,
        roles.question_judge,
        policy,
        group_size=cfg.judge.judgments,
        label="quality",
        tasks=tasks,
    ).rows
    # line 10: the Solver tries each question several times
    trials = answer_and_mark(
        run,
        step,
        roles,
        roles.trial,
        model,
        tasks,
        group_size=cfg.proposer.answers,
        answers_label="trial",
        marks_label="difficulty",
    )
    answers = trials.answers.rows
    marks = trials.marks.rows
    watch_marks(run, step, policy.id, tasks=tasks, quality=quality, answers=answers, marks=marks)
    # lines 11, 15
    rewards = score(
        step,
        proposer_rewards,
        tasks=tasks,
        quality=quality,
        answers=answers,
        marks=marks,
        pays_format=cfg.pays_format,
        unread=cfg.judge.unread,
        difficulty_from=cfg.proposer.difficulty_from,
        label="proposer",
    )
    # lines 12-14
    D = pool(
        step,
        previous=D,
        tasks=tasks,
        draws=references,
        rewards=rewards,
        component="quality",
        # without the filter, a question of unknown quality is added as well
        rules=PoolRules(enters_from=cfg.proposer.lowest_quality or None),
        label="questions",
    )
    watch_passed(run, step, policy.id, tasks=tasks, chosen=D)
    return D, RoleRollouts(questions.rollouts, rewards)


def watch_marks(
    run: Run[Config],
    step: Place,
    policy: str,
    *,
    tasks: Table,
    quality: Table,
    answers: Table,
    marks: Table,
) -> None:
    """Stop before an update that the Judge would mislead.

    Raises Alarm if questions are empty or copies, if the Judge gives all questions and answers the
    best mark or, where the truth is known, if it marks answers wrongly. `quality` holds the marks
    of the questions, `marks` those of the answers.
    """
    watch_questions(run, step, policy, tasks=tasks)
    run.watch(
        step, marks_given, policy=policy, benchmark=JUDGE, label="marks", marks=[quality, marks]
    )
    world = held_out_world(run)
    if world is not None and world.oracle is not None:
        run.watch(
            step,
            partial(mark_errors, oracle=world.oracle),
            policy=policy,
            benchmark=JUDGE,
            label="truth",
            marks=marks,
            tasks=tasks,
            answers=answers,
        )


# ---- lines 16-19: the Solver ----


def solve(
    run: Run[Config], roles: Roles, step: Place, model: Player, D: Table, P: Table | None
) -> tuple[Table, RoleRollouts]:
    """Lines 16-19: answers to questions of D, added to P as pairs. Returns P and the rewards."""
    cfg = run.cfg
    tasks = draw(run, step, D, cfg.batch_size, label="questions")  # line 16
    trials = answer_and_mark(run, step, roles, roles.solver, model, tasks)  # line 17
    answers = trials.answers.rows
    # line 18: P may hold equal pairs, since a question may get the same answer twice
    P = pool(
        step,
        previous=P,
        tasks=tasks,
        answers=answers,
        rules=PoolRules(unique=()),
        label="pairs",
    )
    # line 19
    rewards = score(
        step,
        solver_rewards,
        answers=answers,
        marks=trials.marks.rows,
        pays_format=cfg.pays_format,
        unread=cfg.judge.unread,
        label="solver",
    )
    return P, RoleRollouts(trials.answers.rollouts, rewards)


def answer_and_mark(
    run: Run[Config],
    step: Place,
    roles: Roles,
    solver: Role,
    model: Player,
    tasks: Table,
    *,
    group_size: int = 1,
    answers_label: str | None = None,
    marks_label: str = "answers",
) -> Trials:
    """`group_size` answers by the Solver to every question, and the Judge's marks of each answer.

    The labels are those of the tables; with None, the table of answers has no label.
    """
    answers = run.ask(
        step, solver, model.policy, group_size=group_size, label=answers_label, tasks=tasks
    )
    marks = run.ask(
        step,
        roles.answer_judge,
        model.policy,
        group_size=run.cfg.judge.judgments,
        label=marks_label,
        answers=answers.rows,
        tasks=tasks,
    )
    return Trials(answers, marks)


# ---- lines 20-22: the Judge ----


def judge(run: Run[Config], roles: Roles, step: Place, model: Player, P: Table) -> RoleRollouts:
    """Lines 20-22: marks of pairs from P, and their rewards.

    If P has fewer pairs than a batch, nothing is drawn.
    """
    cfg = run.cfg
    # line 20: a draw has the columns of a task and of an answer, and serves as both
    pairs = draw(run, step, P, cfg.batch_size, label="pairs", fewest=cfg.batch_size)
    # line 21
    marks = run.ask(
        step, roles.answer_judge, model.policy, label="judge", answers=pairs, tasks=pairs
    )
    # line 22
    rewards = score(
        step, judge_rewards, marks=marks.rows, pays_format=cfg.pays_format, label="judge"
    )
    return RoleRollouts(marks.rollouts, rewards)


# ---- line 23: the update ----


def learn(
    run: Run[Config], step: Place, model: Player, played: Mapping[str, RoleRollouts]
) -> Player:
    """Line 23, section 3: one update for all trained roles, with a separate baseline for each.

    A mini-batch has rollouts of all these roles (section 4.4: "for all three roles
    simultaneously"): an optimizer step on a single role's rows would be dominated by that role's
    advantages or their noise.
    """
    cfg = run.cfg
    return learn_jointly(
        run,
        step,
        model,
        {name: played[name] for name in cfg.trained},
        cfg.update,
        rows_per_role=cfg.batch_size,
        mini_batch=cfg.mini_batch,
    )


def draw(
    run: Run[Config], step: Place, entries: Table, num_draws: int, *, label: str, fewest: int = 1
) -> Table:
    """This step's draws from a pool; none from a pool of fewer than `fewest` entries."""
    return draw_entries(
        step,
        pool=entries,
        num_draws=num_draws,
        seed=run.cfg.seed,
        # references and questions are independent draws (lines 5 and 16)
        epoch=f"{label}-{step.at.iteration}-{step.at.step}",
        fewest=fewest,
        label=label,
    )
