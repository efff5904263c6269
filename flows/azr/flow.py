"""AZR, Absolute Zero: one model proposes small Python programs and solves tasks about them; running
the programs verifies the answers.

arXiv 2505.03335. A triplet is a program, an input and an output; a task hides one of them: the
output (deduction), the input (abduction) or the program (induction). The flow reads as Algorithm 1.

Departures
- Programs run in a sandbox that offers only the pure modules of the standard library. Inputs are
  literals and outputs are values of built-in types, compared by our own code and not by the
  program's `==`: an input that is an expression could fake any output. In the paper, examples may
  define their own classes and pass instances of them.
- A proposed program runs in two interpreters with different hash seeds, so an output that depends
  on the order of a set is recognised as nondeterministic. The released code runs the program twice
  in one process.
- Banned names such as `os.path` never match in the released code; here they do, and more modules
  are banned (`proposer.banned`).
- Functions besides `f` are allowed; the released code refuses programs with more than one function,
  and renames a function that has another name.
- The buffers are filled by `seeding.rounds` batches of proposals, however many of them are valid;
  the released code continues until there are S times B valid ones.
- References are dealt from a shuffled buffer, so within a step no triplet is shown twice before all
  have been shown once; the paper draws them independently.
- References that would make a proposer's prompt too long (`dialogues.content_tokens`) are left out;
  the released code drops the whole prompt.
- Advantages are normalised over the replies of a role and task type; the released code does so over
  their tokens, which gives long replies more weight in the mean.
- Mini-batches are drawn at random from all roles; the released code takes them in order of task
  type.
- A reply that the engine failed to sample is left out instead of penalised.
- The prompts are worded for this project. Brackets like [[5]] in them are replaced by look-alikes,
  as everywhere in this project.
- Error tasks (`code_e`), composite functions, and rewards for complexity or diversity, which the
  paper tried and dropped, are missing.
- Benchmarks: HumanEval+ and MBPP+ are run by lm-evaluation-harness; LiveCodeBench is missing.
"""

from __future__ import annotations

from flows.azr.config import Config, TaskType
from flows.azr.held_out import describe_tasks, score_held_out
from flows.azr.roles import Roles
from flows.azr.steps import (
    Proposals,
    learn,
    propose,
    rules,
    seed_buffers,
    solve,
    try_proposals,
)
from flows.blocks.joint_update import RoleRollouts
from flows.blocks.questions import watch_questions
from flows.method import method
from flows.run import Player, Run
from tasks.pool import pool


@method(Config)
def azr_iteration(run: Run[Config]) -> Player:
    """Proposer and Solver are one model; every step updates it once for all roles and types."""
    cfg = run.cfg
    roles = Roles(cfg)
    model = run.player("model")
    score_held_out(run, roles, run.place.iteration(0), model)
    buffers = seed_buffers(run, roles, model)  # lines 1-2
    for _, iteration in run.iterations():
        for t in range(1, cfg.steps + 1):  # line 3
            step = iteration.phase("play").step(t)
            played: dict[str, RoleRollouts] = {}
            new: dict[TaskType, Proposals] = {}
            tried: dict[TaskType, RoleRollouts] = {}
            for task_type in cfg.task_types:  # lines 4-9
                new[task_type] = propose(run, roles, step, model, task_type, buffers)
            asked = [proposals.tasks for proposals in new.values()]
            watch_questions(run, step, model.policy.id, tasks=asked)
            for task_type, proposals in new.items():
                tried[task_type] = try_proposals(  # line 11
                    run, roles, step, model, task_type, proposals
                )
                if cfg.proposer.trained:
                    played[f"propose_{task_type}"] = tried[task_type]
                buffers[task_type] = pool(
                    step,
                    previous=buffers[task_type],
                    tasks=proposals.tasks,
                    rewards=tried[task_type].rewards,
                    rules=rules(cfg),
                    label=task_type,
                )
            describe_tasks(run, step, model, new, tried)
            for task_type, proposals in new.items():  # lines 10-12
                played[f"solve_{task_type}"] = solve(
                    run, roles, step, model, task_type, buffers[task_type], proposals.tasks
                )
            model = learn(run, step, model, played)  # lines 13-14
        run.watch_pool(iteration, model.policy.id, list(buffers.values()))
        score_held_out(run, roles, iteration, model)
    return model
