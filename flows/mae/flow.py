"""MAE, Multi-Agent Evolve: one model proposes questions, solves them, and judges both. No true answer is known.

It reads as Algorithm 1. D is the pool of questions, P that of questions with their answers.

Departures
- Exactly the share `questions.referenced` of a batch shows a question of D, where the paper tosses a coin for each.
- A question that D has word for word does not enter again.
- Questions whose every mark is unreadable earn nothing, instead of 0.5 (`judge.unread`).
- No entropy bonus (the paper's coefficient is 0.001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from flows.fine_tuning import fine_tune
from flows.mae.config import Config
from flows.mae.rewards import pay_judge, pay_proposer, pay_solver, tags_kept
from flows.method import method
from flows.questions import given_questions, score_held_out, watch_marks, watch_passed
from flows.run import Player, Role, Run, templates
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

Turn = tuple[Table, Table]  # what a role has said in a step, and the scores of it
PAIRS = PoolRules(unique=())


class Roles:
    def __init__(self, cfg: Config) -> None:
        template, sampling = templates(cfg, cfg.dialogues.prompts), cfg.dialogues.sampling
        ask, solve = (template("propose"), template("propose_harder")), (template("solve"),)
        self.proposer = Role("proposer", ask, questions, sampling, TASKS, tagged("question", "text"))
        self.solver = Role("solver", solve, readable_tasks, sampling, ANSWERS, tagged("answer", "answer"))
        mark = sampling, MARKS, tagged("score", "mark", mark_out_of_ten)
        self.question_judge = Role("judge", (template("judge_question"),), readable_tasks, *mark)
        self.answer_judge = Role("judge", (template("judge_answer"),), answered_tasks, *mark)


def tagged(name: str, column: str, read: Callable[..., Any] = last_element) -> Reader:
    """What the last `<name>` element of a reply says, and the format reward in any case."""
    return reads(column, partial(read, name=name), measure=partial(tags_kept, name=name))


def questions(draws: list[Draw], *, count: int) -> Iterator[Row]:
    """`count` prompts for a question, the first of them each with a question of D that it shall be harder than."""
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
    cfg, policy, n = run.cfg, model.policy, run.cfg.judge.judgments
    shown = draw(run, step, D, round(cfg.questions.referenced * cfg.batch_size), label="references")  # line 5
    asked = run.ask(step, roles.proposer.given(count=cfg.batch_size), policy, draws=shown)  # lines 6-9
    quality = run.ask(step, roles.question_judge, policy, n=n, label="quality", tasks=asked.rows).rows
    tried = run.ask(step, roles.solver, policy, n=cfg.proposer.answers, label="trial", tasks=asked.rows).rows
    about = {"tasks": asked.rows, "answers": tried}
    solved = run.ask(step, roles.answer_judge, policy, n=n, label="difficulty", **about).rows  # line 10
    watch_marks(run, step, policy.id, quality=quality, solved=solved, **about)
    pay = {"pays_format": cfg.pays_format, "unread": cfg.judge.unread, "difficulty_from": cfg.proposer.difficulty_from}
    about = {"tasks": asked.rows, "quality": quality, "tried": tried, "solved": solved}
    scores = score(step, pay_proposer, **about, **pay, label="proposer")  # lines 11, 15
    rules, by = PoolRules(enters_from=cfg.proposer.lowest_quality), {"scores": scores, "component": "quality"}
    D = pool(step, previous=D, tasks=asked.rows, draws=shown, rules=rules, **by, label="questions")  # lines 12-14
    watch_passed(run, step, policy.id, tasks=asked.rows, chosen=D)
    return D, (asked.rollouts, scores)


def solve(run: Run[Config], roles: Roles, step: Place, model: Player, D: Table, P: Table | None) -> tuple[Table, Turn]:
    cfg, policy = run.cfg, model.policy
    drawn = draw(run, step, D, cfg.batch_size, label="questions")  # line 16
    said = run.ask(step, roles.solver, policy, tasks=drawn)  # line 17
    P = pool(step, previous=P, tasks=drawn, answers=said.rows, rules=PAIRS, label="pairs")  # line 18
    about = {"answers": said.rows, "tasks": drawn}
    marks = run.ask(step, roles.answer_judge, policy, n=cfg.judge.judgments, label="answers", **about).rows
    pay = {"pays_format": cfg.pays_format, "unread": cfg.judge.unread}
    scores = score(step, pay_solver, answers=said.rows, marks=marks, **pay, label="solver")  # line 19
    return P, (said.rollouts, scores)


def judge(run: Run[Config], roles: Roles, step: Place, model: Player, P: Table) -> Turn:
    drawn = draw(run, step, P, run.cfg.batch_size, label="pairs", fewest=run.cfg.batch_size)  # line 20
    said = run.ask(step, roles.answer_judge, model.policy, label="judge", answers=drawn, tasks=drawn)  # line 21
    scores = score(step, pay_judge, marks=said.rows, pays_format=run.cfg.pays_format, label="judge")  # line 22
    return said.rollouts, scores


def learn(run: Run[Config], step: Place, model: Player, turns: dict[str, Turn]) -> Player:
    """Section 3: one update for all roles, with a baseline for each."""
    said, scores = zip(*(turns[role] for role in run.cfg.trained), strict=True)
    each = zip(run.cfg.trained, scores, strict=True)
    rewards = [normalise(step, paid, scheme="zscore", within=(), label=role) for role, paid in each]
    return run.learn(step, model, rewards, said, run.cfg.update)


def draw(run: Run[Config], step: Place, pool: Table, count: int, label: str, fewest: int = 1) -> Table:
    """Draws of this step; none from a pool of fewer entries."""
    given = {"seed": run.cfg.seed, "epoch": f"{step.at.iteration}-{step.at.step}", "fewest": fewest}
    return draw_entries(step, pool=pool, num_draws=count, **given, label=label)
