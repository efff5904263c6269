"""MAE, Multi-Agent Evolve: one model proposes questions, solves them, and judges both. No true answer is known.

It reads as Algorithm 1. D is the pool of questions, P that of questions with their answers.

Departures
- Exactly the share `questions.referenced` of a batch shows a question of D; the paper tosses a coin for each prompt.
- A question that is already in D, word for word, does not enter again.
- Questions without a readable mark earn nothing, instead of 0.5 (`judge.unread`).
- No entropy bonus (the paper's coefficient is 0.001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from flows.ahead import ahead
from flows.fine_tuning import fine_tune
from flows.mae.config import Config
from flows.mae.rewards import pay_judge, pay_proposer, pay_solver, tags_kept
from flows.method import method
from flows.questions import answer_and_mark, given_questions, score_held_out, watch_marks, watch_passed
from flows.run import Player, Replies, Role, Run, templates
from tasks.ask import answered_tasks, readable_tasks
from tasks.corpus.documents import corpus_identity
from tasks.normalise import normalise
from tasks.pool import PoolRules, draw_entries, pool
from tasks.prompt import Row
from tasks.read import Reader, reads
from tasks.readers.marks import mark_out_of_ten
from tasks.readers.tags import last_element
from tasks.score import score
from warehouse.schemas import ANSWERS, MARKS, TASKS, Draw
from warehouse.store import Place, Table

Turn = tuple[Table, Table]  # a role's rollouts in a step, and their scores


class Roles:
    def __init__(self, cfg: Config) -> None:
        template, sampling = templates(cfg, cfg.dialogues.prompts), cfg.dialogues.sampling
        ask, solve = (template("propose"), template("propose_harder")), (template("solve"),)
        self.proposer = Role("proposer", ask, questions, sampling, TASKS, tagged("question", "text"))
        self.solver = Role("solver", solve, readable_tasks, sampling, ANSWERS, tagged("answer", "answer"))
        mark = sampling, MARKS, tagged("score", "mark", mark_out_of_ten)
        self.question_judge = Role("judge", (template("judge_question"),), readable_tasks, *mark)
        self.answer_judge = Role("judge", (template("judge_answer"),), answered_tasks, *mark)
        self.examined = self.solver, self.answer_judge


def tagged(name: str, column: str, read: Callable[..., Any] = last_element) -> Reader:
    """The reader of the last `<name>` element; the format reward is measured even without one."""
    return reads(column, partial(read, name=name), measure=partial(tags_kept, name=name))


def questions(draws: list[Draw], *, count: int) -> Iterator[Row]:
    """`count` prompts for a question; the first of them each show a question of D that the new one should surpass."""
    for draw in draws:
        yield {"template": "propose_harder", "task_id": draw["task_id"], "reference": draw["text"]}
    yield from ({"template": "propose"} for _ in range(count - len(draws)))


@method(Config)
def mae_iteration(run: Run[Config]) -> Player:
    """Proposer, Solver and Judge are one model; every step updates it once for all three."""
    roles, model = Roles(run.cfg), run.player("model")  # line 1
    if run.cfg.fine_tuning:
        return fine_tune(run, roles.solver, model)
    D, P = first_questions(run, roles, model), None  # line 2
    score_held_out(run, run.place.iteration(0), roles.solver, model)
    for _, iteration in run.iterations():
        for t in range(run.cfg.steps):  # line 3
            step = iteration.phase("evolve").step(t + 1)
            D, proposed = propose(run, roles, step, model, D)  # lines 4-15
            P, solved = solve(run, roles, step, model, D, P)  # lines 16-19
            judged = judge(run, roles, step, model, P)  # lines 20-22
            model = learn(run, step, model, {"proposer": proposed, "solver": solved, "judge": judged})  # line 23
        run.watch_pool(iteration, model.policy.id, D)
        score_held_out(run, iteration, roles.solver, model)
    return model


def first_questions(run: Run[Config], roles: Roles, model: Player) -> Table:
    """D_0: questions of a file, of which no answer is read, or questions that the base model asks."""
    cfg, place = run.cfg.questions, run.place.iteration(0).phase("questions")
    if cfg.file:
        given = {"file": cfg.file, "identity": corpus_identity(cfg.file)}
        return pool(place, tasks=given_questions(place, **given, count=cfg.count, seed=run.cfg.seed))
    return pool(place, tasks=run.ask(place, roles.proposer.given(count=cfg.count), model.policy, draws=()).rows)


def propose(run: Run[Config], roles: Roles, step: Place, model: Player, D: Table) -> tuple[Table, Turn]:
    cfg, policy = run.cfg, model.policy.id
    shown = draw(run, step, D, round(cfg.questions.referenced * cfg.batch_size), label="references")  # line 5
    asked, quality, tried, solved = ask_questions(run, roles, step, model, shown)  # lines 6-10
    about = {"tasks": asked.rows, "quality": quality.rows, "solved": solved.rows}
    watch_marks(run, step, policy, answers=tried.rows, **about)
    pay = {"pays_format": cfg.pays_format, "unread": cfg.judge.unread, "difficulty_from": cfg.proposer.difficulty_from}
    scores = score(step, pay_proposer, tried=tried.rows, **about, **pay, label="proposer")  # lines 11, 15
    rules, by = PoolRules(enters_from=cfg.proposer.lowest_quality), {"scores": scores, "component": "quality"}
    D = pool(step, previous=D, tasks=asked.rows, draws=shown, rules=rules, **by, label="questions")  # lines 12-14
    watch_passed(run, step, policy, tasks=asked.rows, chosen=D)
    return D, (asked.rollouts, scores)


@ahead
def ask_questions(run: Run[Config], roles: Roles, step: Place, model: Player, shown: Table) -> tuple[Replies, ...]:
    cfg, n = run.cfg, run.cfg.judge.judgments
    asked = run.ask(step, roles.proposer.given(count=cfg.batch_size), model.policy, draws=shown)  # lines 6-9
    quality = run.ask(step, roles.question_judge, model.policy, n=n, label="quality", tasks=asked.rows)
    how: Any = {"n": cfg.proposer.answers, "num_marks": n, "labels": ("trial", "difficulty")}
    return asked, quality, *answer_and_mark(run, step, roles.examined, model, asked.rows, **how)  # line 10


def solve(run: Run[Config], roles: Roles, step: Place, model: Player, D: Table, P: Table | None) -> tuple[Table, Turn]:
    drawn = draw(run, step, D, run.cfg.batch_size, label="questions")  # line 16
    said, marks = answer_and_mark(run, step, roles.examined, model, drawn, num_marks=run.cfg.judge.judgments)  # line 17
    P = pool(step, previous=P, tasks=drawn, answers=said.rows, rules=PoolRules(unique=()), label="pairs")  # line 18
    pay = {"pays_format": run.cfg.pays_format, "unread": run.cfg.judge.unread}
    scores = score(step, pay_solver, answers=said.rows, marks=marks.rows, **pay, label="solver")  # line 19
    return P, (said.rollouts, scores)


def judge(run: Run[Config], roles: Roles, step: Place, model: Player, P: Table) -> Turn:
    drawn = draw(run, step, P, run.cfg.batch_size, label="pairs", fewest=run.cfg.batch_size)  # line 20
    said = run.ask(step, roles.answer_judge, model.policy, label="judge", answers=drawn, tasks=drawn)  # line 21
    scores = score(step, pay_judge, marks=said.rows, pays_format=run.cfg.pays_format, label="judge")  # line 22
    return said.rollouts, scores


def learn(run: Run[Config], step: Place, model: Player, turns: dict[str, Turn]) -> Player:
    """Section 3: one update for all roles, with a baseline for each."""
    paid = {role: turns[role] for role in run.cfg.trained}
    rewards = [normalise(step, scores, scheme="zscore", within=(), label=role) for role, (_, scores) in paid.items()]
    return run.learn(step, model, rewards, [said for said, _ in paid.values()], run.cfg.update)


def draw(run: Run[Config], step: Place, pool: Table, count: int, label: str, fewest: int = 1) -> Table:
    """Draws of this step; none from a pool of fewer entries."""
    given = {"seed": run.cfg.seed, "epoch": f"{step.at.iteration}-{step.at.step}", "fewest": fewest}
    return draw_entries(step, pool=pool, num_draws=count, **given, label=label)
