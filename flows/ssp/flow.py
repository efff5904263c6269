"""SSP, Search Self-Play, arXiv 2510.18821: one policy writes questions for given answers, and
answers them. It searches the documents for both.

It reads as the paper's game: the Proposer searches and asks; rules, and a check with the documents
that the Proposer found, decide which questions are valid; the Solver searches and answers; and one
policy learns both roles.

Departures
- We did not have the paper's text, only its abstract, its released code and summaries by others.
  The defaults are those of the released script.
- Answers are titles of the searched documents, of at most ten words and without trailing
  parentheses; the paper has a list of 50,000 answers. We did not find its numbers of searches per
  question; here they are 2, 3 or 4, equally often (`proposer.hops`).
- The policy itself checks questions, as the abstract says; the released code asks another model,
  which `models.checker` may name.
- The check sees the first tokens of every document that the Proposer found, along with documents
  found by four other proposals, as many as fit its prompt (`check.prompt_tokens`); the released
  code shows the results as the Proposer saw them.
- Answers are compared by their words alone; the released code asks a model about those that differ.
- There is one on-policy update per step for both roles, each with half of the weight; the released
  script updates the Proposer first, then the Solver, each in two optimizer steps. The Proposer is
  therefore sampled at the Solver's temperature of 1 (released: 0.8), and there is no warm-up.
- A search counts as repeated if it has the same words; in the released code, the same characters.
- The buffer of valid questions is emptied every ten steps, as in the released script; here, that is
  every iteration. A question is replayed at most once in a step.
- A reply that the engine failed to sample, or a check or an answer that could not be compared, is
  left out instead of penalised.
- The prompts are worded for this project, and the Proposer sees no example of a question.
- Benchmarks: three of the paper's seven, asked as SCOPE asks them, with five searches.
"""

from __future__ import annotations

from flows.method import method
from flows.run import Player, Run
from flows.ssp.config import Config
from flows.ssp.measures import describe_questions, score_held_out
from flows.ssp.roles import Roles
from flows.ssp.steps import (
    check,
    learn,
    open_documents_with_titles,
    propose,
    reward,
    solve,
    watch,
)
from tasks.pool import PoolRules, pool
from warehouse.store import Table

EVERY_QUESTION = PoolRules(unique=())


@method(Config)
def ssp_iteration(run: Run[Config]) -> Player:
    """Proposer and Solver are one policy; every step updates it once for both."""
    cfg = run.cfg
    roles = Roles(cfg)
    documents = open_documents_with_titles(run)
    policy = run.player("policy")
    score_held_out(run, roles, run.place.iteration(0), policy, documents)
    for t, iteration in run.iterations():
        buffer: Table | None = None
        tasks: list[Table] = []
        selections: list[Table] = []
        proposer_rewards: list[Table] = []
        for s in range(cfg.steps):
            step = iteration.phase("play").step(s + 1)
            number = (t - 1) * cfg.steps + s
            # the Proposer turns an answer into a question that needs searches
            questions = propose(run, roles, step, policy, documents, number)
            valid = check(run, roles, step, policy, documents, questions)
            buffer = pool(
                step,
                previous=buffer if cfg.replay else None,
                tasks=questions.tasks,
                chosen=valid.selections,
                rules=EVERY_QUESTION,
            )
            # the Solver answers the valid questions, and earlier ones in place of invalid ones
            answers = solve(run, roles, step, policy, documents, questions, buffer)
            rewards = reward(run, step, questions, valid, answers)
            watch(run, step, policy, documents, questions, valid, answers, rewards)
            policy = learn(run, step, policy, questions, answers, rewards)
            tasks.append(questions.tasks)
            selections.append(valid.selections)
            proposer_rewards.append(rewards.proposer)
        run.watch_pool(iteration, policy.policy.id, selections)
        score_held_out(run, roles, iteration, policy, documents)
        describe_questions(
            run, iteration, policy, tasks=tasks, selections=selections, rewards=proposer_rewards
        )
    return policy
