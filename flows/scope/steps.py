"""The steps that both of SCOPE's stages are made of: each a line or two of Algorithm 1 over stages that know no
method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flows.run import Workbench
from flows.scope.config import ScopeConfig
from flows.scope.readers import read_verdict
from flows.scope.roles import Roles, make_roles, solve_kept
from flows.scope.rules import make_rules
from flows.scope.scoring import challenger_scores, solver_scores
from flows.scope.talks import Talk, Talks, hints, make_talks
from tasks.ask import ask
from tasks.batch import batch
from tasks.check import check
from tasks.engines.base import Policy
from tasks.generate import generate
from tasks.judge import Oracle, read_judgments
from tasks.keep import Query, keep
from tasks.normalise import normalise
from tasks.prompt import Prompt
from tasks.read import read_answers, read_gates, read_rubrics, read_tasks
from tasks.sample import sample
from tasks.score import score
from tasks.stage import Tables
from tasks.update import update, updated_policy
from warehouse.store import Place, Table

DIFFICULTY_WINDOW = Query(Path(__file__).parent / "sql" / "difficulty_window.sql")


@dataclass(frozen=True)
class Scope:
    """A run of the method: its configuration, what it works with, who asks what and how far a conversation goes."""

    cfg: ScopeConfig
    bench: Workbench
    documents: Table
    oracle: Oracle | None
    roles: Roles
    talks: Talks

    @classmethod
    def prepare(cls, cfg: ScopeConfig, bench: Workbench, documents: Table, oracle: Oracle | None) -> Scope:
        roles = make_roles(cfg)
        return cls(cfg, bench, documents, oracle, roles, make_talks(cfg, roles))

    def judge(self, half: str) -> Policy:
        """The model of a half of the Judge, `rubric_writer` or `grader`: M0 where none is named."""
        return self.bench.policies.get(half, self.bench.policies["base"])


@dataclass(frozen=True)
class Player:
    """An evolving role: its policy, its optimizer's state, and how many updates it has had."""

    policy: Policy
    optimizer_state: str | None = None
    num_updates: int = 0


def starting_players(scope: Scope) -> tuple[int, Player, Player]:
    """l.2: C_0 = S_0 = M0 and the first iteration; or both as another run left them after one of its iterations."""
    branch = scope.cfg.branch
    if branch is None:
        return 1, Player(scope.bench.policies["base"]), Player(scope.bench.policies["base"])
    challenger, solver = (player_of(scope, branch.run, branch.iteration, role) for role in ("challenger", "solver"))
    return branch.iteration + 1, challenger, solver


def player_of(scope: Scope, run: str, iteration: int, role: str) -> Player:
    """A role as it was after an iteration of a run: M0 if it was never updated."""
    store = scope.bench.place.store
    of_role = [t for t in store.tables(run) if t.at.table == "updates" and t.at.phase == role]
    updates = [t for t in of_role if 1 <= (t.at.iteration or 0) <= iteration]
    if not updates:
        return Player(scope.bench.policies["base"])
    return Player(*updated_policy(updates[-1]), len(updates))


@dataclass(frozen=True)
class Judged:
    """Candidate tasks with all that was judged of them, and the Challenger's rewards for them."""

    tasks: Table
    rollouts: Table
    rubrics: Table
    rubric_rollouts: Table
    judgments: Table
    scores: Table


@dataclass(frozen=True)
class Solved:
    """Answers to a batch of tasks, judged, and the Solver's rewards for them."""

    rollouts: Table
    judgments: Table
    scores: Table


@dataclass(frozen=True)
class Pool:
    """The tasks of one iteration: candidates in batches, and which of them are kept."""

    batches: tuple[Judged, ...] = ()
    selections: tuple[Table, ...] = ()

    def __len__(self) -> int:
        return len(self.batches)

    def __add__(self, more: tuple[Judged, Table]) -> Pool:
        return Pool((*self.batches, more[0]), (*self.selections, more[1]))

    @property
    def tasks(self) -> tuple[Table, ...]:
        return tuple(b.tasks for b in self.batches)

    @property
    def rubrics(self) -> tuple[Table, ...]:
        return tuple(b.rubrics for b in self.batches)

    @property
    def num_kept(self) -> int:
        return sum(row["kept"] for table in self.selections for row in table.rows())


def sample_documents(scope: Scope, step: Place, num_samples: int, number: int, per_iteration: int) -> Table:
    """l.6 and l.20: documents, each with a task type and a number of search turns.

    No document comes twice, in this iteration or a later one, before the corpus is used up.
    """
    assert step.at.iteration is not None
    batches_before = (step.at.iteration - 1) * per_iteration + number
    return sample(
        step,
        scope.documents,
        num_samples=num_samples,
        task_types=scope.cfg.task_types,
        search_turns=scope.cfg.challenger.search_turns,
        seed=scope.cfg.seed,
        epoch=step.at.phase,
        skip=batches_before * num_samples,
    )


def judge_tasks(
    scope: Scope,
    step: Place,
    challenger: Player,
    solver: Player,
    samples: Table,
    *,
    num_tasks: int,
    num_answers: int,
    talk: Talk,
) -> Judged:
    """l.7-15 and l.21-23: propose tasks, gate them, write their rubrics, and see how the Solver does."""
    roles, talks, documents = scope.roles, scope.talks, scope.documents
    asked = ask(step, roles.challenger, samples, documents, values=hints(scope.cfg), label="challenger")
    rollouts = roll_out(scope, step, asked, challenger.policy, talks.propose, num_tasks, label="challenger")
    tasks = read_tasks(step, rollouts, asked, reader=roles.read_task)
    gates = gate(scope, step, tasks)
    rubrics, written = write_rubrics(scope, step, tasks, gates)
    answers, _ = answer(scope, step, solver, roles.solver, tasks, rubrics, num_answers=num_answers, talk=talk)
    judgments = grade(scope, step, answers, rubrics, tasks)
    rewards = partial(
        challenger_scores, settings=scope.cfg.challenger.reward, min_coverage=scope.cfg.judge.min_coverage
    )
    scores = score(step, rewards, tasks, rubrics, answers, judgments, *gates)
    return Judged(tasks, rollouts, rubrics, written, judgments, scores)


def gate(scope: Scope, step: Place, tasks: Table) -> Sequence[Table]:
    """l.8: quality gates QG, the Judge's and the rules that a profile adds. In the ablation safety is left, or none."""
    judge = scope.cfg.judge
    if not judge.applied_gates:
        return ()
    asked = ask(step, scope.roles.gates, tasks, scope.documents, label="gate")
    rollouts = roll_out(scope, step, asked, scope.bench.policies["base"], scope.talks.gate, label="gate")
    gates = read_gates(step, rollouts, asked, reader=scope.roles.read_gate)
    rules = make_rules(judge.rule_gates) if judge.quality_gates else None
    return (gates, check(step, tasks, rules=rules, label="rule")) if rules else (gates,)


def write_rubrics(scope: Scope, step: Place, tasks: Table, gates: Sequence[Table]) -> tuple[Table, Table]:
    """l.9: rubrics, and the rollouts they were read from."""
    asked = ask(step, scope.roles.rubric_writer, tasks, scope.documents, *gates, label="rubric")
    rollouts = roll_out(scope, step, asked, scope.judge("rubric_writer"), scope.talks.write_rubric, label="rubric")
    return read_rubrics(step, rollouts, asked, reader=scope.roles.read_rubric), rollouts


def answer(
    scope: Scope, step: Place, solver: Player, prompt: Prompt, *about: Tables, num_answers: int, talk: Talk
) -> tuple[Table, Table]:
    """l.10 and l.30: answers, and the rollouts they were read from."""
    asked = ask(step, prompt, *about, values=hints(scope.cfg), label="solver")
    rollouts = roll_out(scope, step, asked, solver.policy, talk, num_answers, label="solver")
    return read_answers(step, rollouts, asked, reader=scope.roles.read_answer), rollouts


def grade(scope: Scope, step: Place, answers: Table, rubrics: Tables, tasks: Tables) -> Table:
    """l.11: one verdict for every criterion and answer."""
    asked = ask(step, scope.roles.grader, answers, rubrics, tasks, label="grade")
    return verdicts(scope, step, asked, rubrics, answers, label="grade")


def verdicts(scope: Scope, step: Place, asked: Table, rubrics: Tables, answers: Tables, label: str) -> Table:
    """Grade; an unreadable verdict is asked for once more."""
    grader, talk = scope.judge("grader"), scope.talks.grade
    rollouts = roll_out(scope, step, asked, grader, talk, label=label, ask_again=read_verdict)
    return read_judgments(step, rollouts, asked, rubrics, answers, read=read_verdict, oracle=scope.oracle, label=label)


def keep_moderate(scope: Scope, step: Place, judged: Judged, pool: Pool, target: int) -> Table:
    """l.24-26: the difficulty window, one task a document."""
    cfg = scope.cfg.pool
    bounds = {
        "low": cfg.window[0],
        "high": cfg.window[1],
        "min_rollouts": cfg.min_graded_rollouts,
        "tasks_per_document": cfg.tasks_per_document,
        "target": target,
        "seed": scope.cfg.seed,
    }
    tables = {"tasks": judged.tasks, "scores": judged.scores}
    return keep(step, DIFFICULTY_WINDOW, tables, earlier=pool.selections, bounds=bounds)


def solve_batch(scope: Scope, step: Place, solver: Player, pool: Pool, b: int) -> Solved:
    """l.29-31: answers to the b-th batch of kept tasks, and their rewards (eq. 6)."""
    cfg = scope.cfg.solver
    kept = partial(solve_kept, first=b * cfg.prompts_per_step, count=cfg.prompts_per_step)
    prompt = Prompt("solver", scope.roles.solver.templates, kept)
    answers, rollouts = answer(
        scope, step, solver, prompt, pool.selections, pool.tasks, num_answers=cfg.group_size, talk=scope.talks.solve
    )
    judgments = grade(scope, step, answers, pool.rubrics, pool.tasks)
    rewards = partial(solver_scores, settings=cfg.reward, min_coverage=scope.cfg.judge.min_coverage)
    return Solved(rollouts, judgments, score(step, rewards, answers, pool.rubrics, judgments))


def learn(scope: Scope, step: Place, role: str, player: Player, paid: Judged | Solved) -> Player:
    """l.17 and l.33: one GRPO update of a role, pi_ref = M0."""
    rewards = normalise(step, paid.scores, scheme="zscore", spread=scope.cfg.advantage_std)
    rows = batch(step, rewards, paid.rollouts)
    if rows.num_rows == 0:
        return player
    settings = getattr(scope.cfg, role)
    warmed_up = min(
        1.0, (player.num_updates + 1) / max(1.0, scope.cfg.warmup_ratio * scope.cfg.iterations * settings.steps)
    )
    scope.bench.release_engines()
    table = update(
        step,
        rows,
        policy=player.policy,
        reference=scope.bench.policies["base"],
        optimizer_state=player.optimizer_state,
        settings=settings.update.model_copy(update={"learning_rate": settings.update.learning_rate * warmed_up}),
        role=role,
        trainer=scope.bench.trainer,
    )
    scope.bench.free_superseded(table)
    return Player(*updated_policy(table), player.num_updates + 1)


def roll_out(
    scope: Scope,
    step: Place,
    asked: Table,
    policy: Policy,
    talk: Talk,
    num_samples: int = 1,
    *,
    label: str,
    ask_again: Callable[[str], Any] | None = None,
) -> Table:
    searching = talk.dialogue.search is not None
    return generate(
        step,
        asked,
        policy=policy,
        sampling=talk.sampling,
        dialogue=talk.dialogue,
        fleet=scope.bench.fleet if label in ("challenger", "solver") else scope.bench.judge_fleet,
        num_samples=num_samples,
        index=scope.documents if searching else None,
        seed=scope.cfg.seed,
        ask_again=ask_again,
        label=label,
    )
