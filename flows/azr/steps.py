"""The parts of an Absolute Zero step: tasks are proposed, executed and tried, then solved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from flows.azr.config import Config, TaskType
from flows.azr.programs import (
    TOO_LONG,
    Triplet,
    first_task,
    halves,
    is_same_output,
    outputs,
    runs_of_answers,
    runs_of_tasks,
    with_programs,
)
from flows.azr.rewards import proposer_rewards, solver_rewards
from flows.azr.roles import Roles, visible
from flows.blocks.joint_update import RoleRollouts, learn_jointly
from flows.blocks.questions import compare_answers, held_out_world
from flows.run import Player, Replies, Run
from tasks.execute import execute
from tasks.monitors.monitor import JUDGE, Truth
from tasks.pool import PoolRules, draw_entries, pool
from tasks.processes.sandbox import LOST, equal
from tasks.prompt import Template
from tasks.rollouts.tokens import count_tokens
from tasks.score import score
from tasks.stage import Rows, Tables, rows_by, rows_of, stage
from warehouse.draft import hash_json
from warehouse.schemas import (
    MATCHES,
    TASKS,
    Answer,
    ExecutionRow,
    Match,
    PromptRow,
    Task,
)
from warehouse.store import Place, Table

Buffers = dict[TaskType, Table]


@dataclass(frozen=True)
class Proposals:
    """Proposed tasks with the outputs of their programs, and the rollouts that proposed them."""

    tasks: Table
    rollouts: Table


# ---- lines 1-2: the buffers before training ----


def seed_buffers(run: Run[Config], roles: Roles, model: Player) -> Buffers:
    """Fill the buffers with the untrained model's proposals, starting from the identity program."""
    cfg = run.cfg
    start = run.place.iteration(0).phase("seeding").step(0)
    buffers: Buffers = {}
    for task_type in cfg.task_types:
        tasks = first_tasks(
            start,
            task_type=task_type,
            num_inputs=cfg.proposer.num_inputs,
            identity=cfg.seeding.identity,
            inputs=cfg.seeding.inputs,
            message=cfg.seeding.message,
            label=task_type,
        )
        buffers[task_type] = pool(start, tasks=tasks, rules=rules(cfg), label=task_type)
    for s in range(cfg.seeding.rounds):
        step = run.place.iteration(0).phase("seeding").step(s + 1)
        for task_type in cfg.task_types:
            proposals = propose(run, roles, step, model, task_type, buffers)
            buffers[task_type] = pool(
                step,
                previous=buffers[task_type],
                tasks=proposals.tasks,
                rules=rules(cfg),
                label=task_type,
            )
    return buffers


@stage(TASKS)
def first_tasks(
    *, task_type: str, num_inputs: int, identity: str, inputs: Sequence[str], message: str
) -> Rows:
    """Yield the one task that every run begins with: the identity function on its inputs."""
    text, reference = first_task(task_type, num_inputs, identity, inputs, message)
    yield {
        "task_id": hash_json(["first task", task_type, text]),
        "task_type": task_type,
        "text": text,
        "reference": reference,
    }


def rules(cfg: Config) -> PoolRules:
    """The rules of a buffer: it keeps the newest `buffer_size` tasks, or all."""
    return PoolRules(max_size=cfg.buffer_size)


# ---- lines 4-9: proposals ----


def propose(
    run: Run[Config],
    roles: Roles,
    step: Place,
    model: Player,
    task_type: TaskType,
    buffers: Mapping[TaskType, Table],
) -> Proposals:
    """A batch of proposals of one type, each executed: its reference is what its program returns.

    The proposers of deduction and abduction see past triplets of their type; the proposer of
    induction sees a program of either type (lines 5 and 8).
    """
    cfg = run.cfg
    label = f"propose_{task_type}"
    if task_type == "induction":
        programs = [buffers[name] for name in cfg.task_types if name != "induction"]
        draws = draw(run, step, programs, cfg.batch_size, label=label)
    else:
        num_shown = cfg.proposer.references * cfg.batch_size
        draws = draw(run, step, buffers[task_type], num_shown, label=label)
    replies = run.ask(step, roles.proposer[task_type], model.policy, label=label, draws=draws)
    executions = execute(
        step,
        runs_of_tasks,
        tasks=replies.rows,
        prompts=replies.prompts,
        draws=draws,
        sandbox=cfg.sandbox,
        num_runs=cfg.proposer.num_runs,
        num_workers=cfg.sandbox_processes,
        label=label,
    )
    tasks = executed_tasks(
        step,
        replies.rows,
        replies.prompts,
        draws,
        executions,
        template=roles.solver[task_type].templates[0],
        model=cfg.models.base,
        limit=cfg.dialogues.content_tokens,
        label=task_type,
    )
    return Proposals(tasks, replies.rollouts)


@stage(TASKS)
def executed_tasks(
    tasks: Table,
    prompts: Table,
    draws: Table,
    executions: Table,
    *,
    template: Template,
    model: str,
    limit: int,
) -> Rows:
    """Yield the proposed tasks with the outputs of their programs as references.

    An unusable task loses its text and gets the reason: one of its inputs has no output, or its
    Solver's prompt, made with `template`, has more than `limit` tokens of `model`.
    """
    executions_of = rows_by("subject_id", executions.rows(ExecutionRow))
    rows = with_programs(tasks.rows(Task), prompts.rows(PromptRow), draws.rows(Triplet))
    for task in rows:
        if task["text"] is None:
            yield task
            continue
        runs = executions_of[task["task_id"]]
        reasons = [run["reason"] for run in runs if run["reason"] is not None]
        outputs_of_inputs = [run["output"] for run in runs if run["output"] is not None]
        if LOST in reasons:
            yield {**task, "text": None, "malformed": LOST}
            continue
        if reasons:
            yield {**task, "text": None, "malformed": f"the program: {reasons[0]}"}
            continue
        prompt = template.render(**visible(task["task_type"], task["text"], outputs_of_inputs))
        if count_tokens(prompt, model) > limit:
            yield {**task, "text": None, "malformed": TOO_LONG}
        elif task["task_type"] == "induction":
            yield {**task, "reference": json.dumps(outputs_of_inputs)}
        else:
            yield {**task, "reference": outputs_of_inputs[0]}


def try_proposals(
    run: Run[Config],
    roles: Roles,
    step: Place,
    model: Player,
    task_type: TaskType,
    proposals: Proposals,
) -> RoleRollouts:
    """Line 11: attempts at every valid proposal, for eq. 4 and 6."""
    cfg = run.cfg
    label = f"try_{task_type}"
    attempts = run.ask(
        step,
        roles.solver[task_type],
        model.policy,
        group_size=cfg.proposer.attempts,
        label=label,
        tasks=proposals.tasks,
    )
    matches = judge(run, step, task_type, attempts, proposals.tasks, label=label)
    rewards = score(
        step,
        proposer_rewards,
        tasks=proposals.tasks,
        answers=attempts.rows,
        matches=matches,
        unlearnable=cfg.penalties.unlearnable,
        malformed=cfg.penalties.malformed,
        label=f"propose_{task_type}",
    )
    return RoleRollouts(proposals.rollouts, rewards)


# ---- lines 10-12: answers ----


def solve(
    run: Run[Config],
    roles: Roles,
    step: Place,
    model: Player,
    task_type: TaskType,
    buffer: Table,
    new: Table,
) -> RoleRollouts:
    """Answer a batch of tasks: first this step's new ones, then others from the buffer."""
    cfg = run.cfg
    label = f"solve_{task_type}"
    tasks = draw(run, step, buffer, cfg.batch_size, label=label, first=new)
    answers = run.ask(step, roles.solver[task_type], model.policy, label=label, tasks=tasks)
    matches = judge(run, step, task_type, answers, tasks, label=label)
    rewards = score(
        step,
        solver_rewards,
        answers=answers.rows,
        matches=matches,
        wrong=cfg.penalties.wrong,
        malformed=cfg.penalties.malformed,
        label=label,
    )
    watch_truth(run, step, model, answers=answers.rows, matches=matches, tasks=tasks, label=label)
    return RoleRollouts(answers.rollouts, rewards)


def watch_truth(
    run: Run[Config],
    step: Place,
    model: Player,
    *,
    answers: Table,
    matches: Table,
    tasks: Table,
    label: str,
) -> None:
    """Measure, in a built-in world, whether executions agree with the truth: the world computes
    what programs return without running them. Raise Alarm, before an update, if they disagree too
    often (`monitor.max_reward_error`)."""
    world = held_out_world(run)
    if world is None or world.oracle is None:
        return
    run.watch(
        step,
        partial(match_errors, oracle=world.oracle),
        policy=model.policy.id,
        benchmark=JUDGE,
        label=label,
        answers=answers,
        matches=matches,
        tasks=tasks,
    )


def match_errors(
    answers: list[Answer], matches: list[Match], tasks: list[Triplet], *, oracle: Truth
) -> Iterator[tuple[str, float]]:
    """Yield `reward_error` for every compared answer that `oracle` can check: 1 if the verdict is
    wrong, else 0."""
    task_of = {task["task_id"]: cast("Task", task) for task in tasks}
    matched = {row["rollout_id"]: row["matched"] for row in matches}
    for answer in answers:
        verdict = matched.get(answer["rollout_id"])
        if verdict is None or answer["answer"] is None:
            continue
        truth = oracle(task_of[answer["task_id"]], answer["answer"])
        if truth is not None:
            yield "reward_error", float(verdict != truth)


def judge(
    run: Run[Config],
    step: Place,
    task_type: TaskType,
    answers: Replies,
    tasks: Table,
    *,
    label: str,
) -> Table:
    """Judge whether each answer is right (section 3.2): an output by its value, an input or a
    program by running it."""
    cfg = run.cfg
    if task_type == "deduction":
        return compare_answers(
            step, answers.rows, tasks, compare=is_same_output, comparing=cfg.match, label=label
        )
    executions = execute(
        step,
        runs_of_answers,
        answers=answers.rows,
        tasks=tasks,
        sandbox=cfg.sandbox,
        num_workers=cfg.sandbox_processes,
        label=label,
    )
    return match_executions(step, answers.rows, tasks, executions, label=label)


@stage(MATCHES)
def match_executions(answers: Table, tasks: Table, executions: Table) -> Rows:
    """Yield for every answer whether its runs returned all of the task's outputs.

    An answer that raises an exception or exceeds its resource limits is wrong. An answer whose
    process was lost could not be compared.
    """
    task_of = {task["task_id"]: task for task in rows_of(tasks, Triplet)}
    executions_of = rows_by("subject_id", executions.rows(ExecutionRow))
    for answer in answers.rows(Answer):
        runs = executions_of[answer["rollout_id"]]
        reason = None
        matched = None
        if answer["answer"] is None:
            reason = answer["malformed"] or "no answer"
        elif any(run["reason"] == LOST for run in runs):
            reason = LOST
        else:
            matched = returned_all(runs, task_of[answer["task_id"]])
        yield {
            "rollout_id": answer["rollout_id"],
            "task_id": answer["task_id"],
            "matched": matched,
            "reason": reason,
            "seconds": sum(run["seconds"] for run in runs),
        }


def returned_all(runs: list[ExecutionRow], task: Triplet) -> bool:
    """Whether the runs returned, in order, the outputs that the Solver did not see; False if a run
    is missing or returned nothing."""
    wanted = outputs(task)
    if task["task_type"] == "induction":
        _, wanted = halves(wanted)
    if len(runs) != len(wanted):
        return False
    return all(
        run["output"] is not None and equal(run["output"], output)
        for run, output in zip(runs, wanted, strict=True)
    )


# ---- lines 13-14: the update ----


def learn(
    run: Run[Config], step: Place, model: Player, played: Mapping[str, RoleRollouts]
) -> Player:
    """Eq. 8, TRR++: one update for all roles, with a baseline for each role and task type."""
    cfg = run.cfg
    return learn_jointly(
        run,
        step,
        model,
        played,
        cfg.update,
        rows_per_role=cfg.batch_size,
        mini_batch=cfg.mini_batch,
    )


def draw(
    run: Run[Config],
    step: Place,
    entries: Tables,
    num_draws: int,
    *,
    label: str,
    first: Tables = (),
) -> Table:
    """Draw `num_draws` entries for this step from one buffer or from several together; tasks in
    `first` are drawn first. Empty buffers give none."""
    return draw_entries(
        step,
        pool=entries,
        num_draws=num_draws,
        seed=run.cfg.seed,
        epoch=f"{step.at.iteration}-{step.at.step}-{label}",
        fewest=1,
        first=first,
        label=label,
    )
