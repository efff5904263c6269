"""The steps that both of SCOPE's stages are made of, each a line or two of Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from flows.ahead import ahead
from flows.corpora import open_documents
from flows.micro.tables import encyclopaedia_documents, encyclopaedia_oracle, encyclopaedia_sound
from flows.micro.worlds.encyclopaedia import follows_grammar
from flows.run import Player, Replies, Role, Run
from flows.scope.config import ChallengerSettings, Config, SolverSettings
from flows.scope.readers import read_verdict
from flows.scope.rewards import challenger_scores, solver_scores
from flows.scope.roles import Roles
from tasks.ask import kept_tasks
from tasks.audit import Sound
from tasks.check import asks_nothing_twice, check
from tasks.given import GivenTasks, given_rubrics, given_tasks
from tasks.judge import Oracle, read_judgments
from tasks.keep import Limit, Query, keep
from tasks.normalise import normalise
from tasks.sample import sample
from tasks.score import score
from tasks.stage import Tables
from warehouse.store import Place, Table

DIFFICULTY_WINDOW = Query.beside(__file__, "difficulty_window")
EVERY_TASK = Query.beside(__file__, "every_task")
NOT_NEEDED = ("another task of its document is kept", "target already met")  # why a moderate task is not kept
RULES = {"repeats": asks_nothing_twice, "grammar": follows_grammar}  # of `judge.rule_gates`


@dataclass(frozen=True)
class Scope:
    """A run, its roles, and its corpus with the index. In the built-in world also an oracle of verdicts, and one that
    tells which tasks are sound."""

    run: Run[Config]
    roles: Roles
    documents: Table
    oracle: Oracle | None
    sound: Sound | None = None

    @classmethod
    def prepare(cls, run: Run[Config]) -> Scope:
        cfg = run.cfg
        if cfg.corpus in cfg.worlds:
            return cls.over_world(run, run.place, cfg.world_seed, cfg.corpus_documents)
        return cls(run, Roles(cfg), open_documents(run.place, cfg.corpus, cfg.embedding), None)

    @classmethod
    def over_world(cls, run: Run[Config], at: Place, seed: int, num_documents: int) -> Scope:
        """The same roles over the built-in world, with its oracles."""
        made = {"seed": seed, "num_documents": num_documents}
        documents = encyclopaedia_documents(at, embedding=run.cfg.embedding, **made)
        oracle, sound = partial(encyclopaedia_oracle, **made), partial(encyclopaedia_sound, **made)
        return cls(run, Roles(run.cfg), documents, oracle, sound)


@dataclass(frozen=True)
class Judged:
    """Candidate tasks, their rollouts and rubrics, and the Challenger's rewards for them."""

    tasks: Table
    rollouts: Table
    rubrics: Replies
    scores: Table


@dataclass(frozen=True)
class Solved:
    """Answers to a batch of tasks, the verdicts on them, and the Solver's rewards."""

    rollouts: Table
    judgments: Table
    scores: Table


@dataclass(frozen=True)
class Pool:
    """The tasks of one iteration: candidates with their rubrics, and which of them are kept."""

    tasks: tuple[Table, ...] = ()
    rubrics: tuple[Table, ...] = ()
    selections: tuple[Table, ...] = ()
    judged: tuple[Judged, ...] = ()  # none if tasks are given
    num_batches: int = 0

    def with_batches(self, number: int, judged: Judged, selections: Table) -> Pool:
        tasks, rubrics = (*self.tasks, judged.tasks), (*self.rubrics, judged.rubrics.rows)
        all_selections, all_judged = (*self.selections, selections), (*self.judged, judged)
        return Pool(tasks, rubrics, all_selections, all_judged, self.num_batches + number)

    @property
    def num_kept(self) -> int:
        return sum(row["kept"] for table in self.selections for row in table.rows())


def sample_documents(scope: Scope, step: Place, size: int, number: int, per_iteration: int, batches: int = 1) -> Table:
    """l.6 and l.20: `batches` of documents, each with a task type and a number of search turns.

    No document is drawn twice, in this iteration or a later one, before the corpus is used up.
    """
    cfg, iteration = scope.run.cfg, step.at.iteration or 1
    return sample(
        step,
        scope.documents,
        num_samples=batches * size,
        task_types=cfg.task_types,
        search_turns=cfg.challenger.search_turns,
        seed=cfg.seed,
        epoch=step.at.phase or "",
        skip=((iteration - 1) * per_iteration + number) * size,
    )


@ahead
def judge_tasks(
    scope: Scope,
    step: Place,
    challenger: Player,
    solver: Player,
    samples: Table,
    *,
    examinee: Role,
    n: int,
    answers: int,
) -> Judged:
    """l.7-15 and l.21-23: propose tasks, gate them, write their rubrics, and see how the Solver does."""
    run, roles, cfg, documents = scope.run, scope.roles, scope.run.cfg, scope.documents
    searched: dict[str, Any] = {"samples": samples, "documents": documents}
    asked = run.ask(step, roles.challenger, challenger.policy, n=n, index=documents, **searched)  # l.7
    tasks = asked.rows
    gates = gate(scope, step, tasks)  # l.8
    shown: dict[str, Any] = {"tasks": tasks, "documents": documents, "gates": gates}
    written = run.ask(step, roles.rubric_writer, run.model("rubric_writer"), **shown)  # l.9
    about: dict[str, Any] = {"tasks": tasks, "rubrics": written.rows}
    about["answers"] = run.ask(step, examinee, solver.policy, n=answers, index=documents, **about).rows  # l.10
    about["judgments"] = grade(scope, step, **about)  # l.11
    how = {"settings": cfg.challenger.reward, "min_coverage": cfg.judge.min_coverage}
    scores = score(step, challenger_scores, gates=gates, **about, **how)  # l.12-15, eq. 4
    return Judged(tasks, asked.rollouts, written, scores)


def gate(scope: Scope, step: Place, tasks: Table) -> tuple[Table, ...]:
    """l.8: quality gates QG, by the Judge and by a profile's rules. The ablation keeps only safety, if listed."""
    run, judge = scope.run, scope.run.cfg.judge
    if not judge.applied_gates:
        return ()
    gates = run.ask(step, scope.roles.gates, run.model("base"), tasks=tasks, documents=scope.documents).rows
    rules = {name: RULES[name] for name in judge.rule_gates if judge.quality_gates}
    return (gates, check(step, tasks, rules=rules, label="rule")) if rules else (gates,)


def grade(scope: Scope, step: Place, role: Role | None = None, *, rubrics: Tables, **about: Any) -> Table:
    """l.11: one verdict for every criterion and answer; an unreadable one is requested once more."""
    run, role = scope.run, role or scope.roles.grader
    prompts, rollouts = run.sample(step, role, run.model("grader"), rubrics=rubrics, **about)
    how = {"read": read_verdict, "oracle": scope.oracle, "label": role.name}
    return read_judgments(step, rollouts, prompts, rubrics, about.get("answers", ()), **how)


def keep_moderate(scope: Scope, step: Place, judged: Judged, pool: Pool, target: int) -> Table:
    """l.24-26: the difficulty window, and one task per document."""
    cfg = scope.run.cfg.pool
    low, high = cfg.window
    bounds = {"low": low, "high": high, "min_rollouts": cfg.min_graded_rollouts, "seed": scope.run.cfg.seed}
    limits = (Limit(cfg.tasks_per_document, NOT_NEEDED[0], per="document_id"), Limit(target, NOT_NEEDED[1]))
    about = {"tasks": judged.tasks, "scores": judged.scores}
    return keep(step, DIFFICULTY_WINDOW, limits=limits, earlier=pool.selections, **about, **bounds)


def given_pool(run: Run[Config], place: Place, given: GivenTasks, number: int, count: int) -> Pool:
    """The baseline GRPO_data: the `number`-th draw of people's tasks with their rubrics. All are kept."""
    items = given.items(run.place.iteration(0).phase("given"))
    tasks = given_tasks(place, items, number=number, count=count, seed=run.cfg.seed)
    return Pool((tasks,), (given_rubrics(place, items, tasks=tasks),), (keep(place, EVERY_TASK, tasks=tasks),))


@ahead
def solve_batch(scope: Scope, step: Place, solver: Player, pool: Pool, b: int) -> Solved:
    """l.29-31: answers to the b-th batch of kept tasks, and their rewards (eq. 6)."""
    cfg, coverage = scope.run.cfg.solver, scope.run.cfg.judge.min_coverage
    kept = partial(kept_tasks, first=b * cfg.prompts_per_step, count=cfg.prompts_per_step)
    role = replace(scope.roles.solver, about=kept)
    drawn: dict[str, Any] = {"selections": pool.selections, "tasks": pool.tasks}
    said = scope.run.ask(step, role, solver.policy, n=cfg.group_size, index=scope.documents, **drawn)
    about: dict[str, Any] = {"answers": said.rows, "rubrics": pool.rubrics}
    judgments = grade(scope, step, tasks=pool.tasks, **about)
    scores = score(step, solver_scores, judgments=judgments, settings=cfg.reward, min_coverage=coverage, **about)
    return Solved(said.rollouts, judgments, scores)


def learn(
    scope: Scope, step: Place, player: Player, settings: ChallengerSettings | SolverSettings, paid: Judged | Solved
) -> Player:
    """l.17 and l.33: one GRPO update of a role, pi_ref = M0. The learning rate rises linearly over its first steps."""
    cfg = scope.run.cfg
    rewards = normalise(step, paid.scores, scheme="zscore", spread=cfg.advantage_std)
    rate = settings.update.learning_rate * warmed_up(player.num_updates, int(cfg.warmup_ratio * settings.steps))
    update = settings.update.model_copy(update={"learning_rate": rate})
    return scope.run.learn(step, player, rewards, paid.rollouts, update)


def warmed_up(num_updates: int, num_steps: int) -> float:
    """The share of the learning rate in a role's next update: linear over the first `num_steps`.

    >>> [warmed_up(n, 2) for n in range(3)], warmed_up(0, int(0.03 * 20))
    ([0.5, 1.0, 1.0], 1.0)
    """
    return min(1.0, (num_updates + 1) / max(1, num_steps))
