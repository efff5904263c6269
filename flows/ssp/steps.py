"""The parts of a step: propose, check, solve, reward, learn."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from flows.blocks.controls import permuted
from flows.blocks.corpora import open_documents, world_of_corpus
from flows.blocks.questions import (
    ComparedAnswers,
    answer,
    answer_rewards,
    watch_questions_and_answers,
)
from flows.run import Player, Run
from flows.ssp.config import Config
from flows.ssp.readers import answer_of, queries_of, rules
from flows.ssp.rewards import proposer_rewards
from flows.ssp.roles import Roles
from tasks.keep import Query, keep
from tasks.normalise import normalise
from tasks.pool import draw_entries
from tasks.sample import sample
from tasks.score import score
from tasks.scorers.accepted import equal
from tasks.stage import Rows, stage
from warehouse.schemas import GATES, TASKS, PromptRow, Rollout, Sample, Task
from warehouse.store import Place, Table

log = logging.getLogger("selfplay")
VALID = Query.beside(__file__, "valid")


@dataclass(frozen=True)
class Questions:
    """Proposed questions with their answers as references, and the rollouts that proposed them."""

    tasks: Table
    rollouts: Table


@dataclass(frozen=True)
class Valid:
    """Which questions are valid, and the answers of the check with documents."""

    selections: Table
    checks: ComparedAnswers


@dataclass(frozen=True)
class Rewards:
    """What each role earned in a step."""

    proposer: Table
    solver: Table


def open_documents_with_titles(run: Run[Config]) -> Table:
    """The documents to search, with their index.

    Raises ValueError if no document has a title that can be an answer.
    """
    cfg = run.cfg
    world = world_of_corpus(run, cfg.corpus)
    if world is not None:
        assert world.documents is not None, "a world with a corpus"
        return world.documents(
            run.place,
            cfg.corpus,
            seed=cfg.world_seed,
            size=cfg.corpus_documents,
            embedding=cfg.embedding,
        )
    max_words = cfg.proposer.max_answer_words
    documents = open_documents(run.place, cfg.corpus, cfg.embedding)
    for batch in documents.batches(["title"]):
        if any(answer_of(title, max_words) for title in batch["title"].to_pylist()):
            return documents
    raise ValueError(
        f"no document of corpus {cfg.corpus} has a title of at most {max_words} words, and titles"
        " are the answers that questions are written for: name the column of the titles when you"
        " prepare the corpus (--set 'columns.title=[\"NAME\"]'), or raise proposer.max_answer_words"
    )


# ---- the Proposer ----


def propose(
    run: Run[Config], roles: Roles, step: Place, policy: Player, documents: Table, number: int
) -> Questions:
    """Request a question for each drawn document, whose title is the answer.

    No document is drawn again before all have been drawn. `number` counts steps from 0.
    """
    cfg = run.cfg
    samples = sample(
        step,
        documents,
        num_samples=cfg.questions,
        search_turns=cfg.proposer.hops,
        seed=cfg.seed,
        skip=number * cfg.questions,
    )
    replies = run.ask(
        step,
        roles.proposer,
        policy.policy,
        index=documents,
        samples=samples,
        documents=documents,
    )
    num_left_out = samples.num_rows - replies.prompts.num_rows
    if num_left_out:
        log.warning("%s: %s drawn documents have no title for an answer", step.path, num_left_out)
    tasks = with_answers(
        step,
        replies.rows,
        replies.prompts,
        samples,
        documents,
        max_words=cfg.proposer.max_answer_words,
        label="questions",
    )
    return Questions(tasks, replies.rollouts)


@stage(TASKS)
def with_answers(
    tasks: Table, prompts: Table, samples: Table, documents: Table, *, max_words: int
) -> Rows:
    """Yield the questions with the answers that they were written for and the number of searches
    that each should take."""
    prompt_of = {row["prompt_id"]: row for row in prompts.rows(PromptRow)}
    sample_of: dict[str | None, Sample] = {row["sample_id"]: row for row in samples.rows(Sample)}
    rows = tasks.rows(Task)
    ids = {row["document_id"] for row in rows if row["document_id"] is not None}
    title_of: dict[str | None, str | None] = {
        row["document_id"]: row["title"] for row in documents.rows_with("document_id", ids)
    }
    for row in rows:
        prompt = prompt_of[row["prompt_id"] or ""]
        yield {
            **row,
            "reference": answer_of(title_of[row["document_id"]], max_words),
            "difficulty": sample_of[prompt["sample_id"]]["search_turns"],
        }


# ---- which questions are valid ----


def check(
    run: Run[Config],
    roles: Roles,
    step: Place,
    policy: Player,
    documents: Table,
    questions: Questions,
) -> Valid:
    """Check which questions are valid: first by the rules, then by answering each from a mix of the
    documents that its Proposer found and others. This answer must equal the one that the question
    was written for."""
    cfg = run.cfg
    gates = check_rules(
        step,
        questions.tasks,
        questions.rollouts,
        min_words=cfg.proposer.min_words,
        max_characters=cfg.proposer.max_characters,
        min_searches=cfg.proposer.min_searches,
    )
    checker = policy
    if cfg.models.checker is not None:
        checker = Player("checker", run.model("checker"))
    checks = answer(
        run,
        step,
        roles.checker,
        checker,
        tasks=questions.tasks,
        gates=gates,
        documents=documents,
        group_size=1,
        compare=equal,
        comparing=cfg.match,
        label="checker",
    )
    selections = keep(
        step,
        VALID,
        tasks=questions.tasks,
        gates=gates,
        matches=checks.matches,
        checked=cfg.check.enabled,
        seed=cfg.seed,
    )
    return Valid(selections, checks)


@stage(GATES)
def check_rules(
    tasks: Table, rollouts: Table, *, min_words: int, max_characters: int, min_searches: int
) -> Rows:
    """Yield a row for every readable question and rule: whether it passes."""
    rollout_of: dict[str | None, Rollout] = {
        row["rollout_id"]: row for row in rollouts.rows(Rollout)
    }
    for task in tasks.rows(Task):
        if task["text"] is None:
            continue
        passes = rules(
            task["text"],
            task["reference"] or "",
            queries_of(rollout_of[task["rollout_id"]]),
            min_words=min_words,
            max_characters=max_characters,
            min_searches=min_searches,
        )
        for gate, passed in passes.items():
            yield {"task_id": task["task_id"], "gate": gate, "kind": "rule", "passed": passed}


# ---- the Solver ----


def solve(
    run: Run[Config],
    roles: Roles,
    step: Place,
    policy: Player,
    documents: Table,
    questions: Questions,
    buffer: Table,
) -> ComparedAnswers:
    """G answers, after searches, to each valid question of the step and, for each missing one, to a
    question from the buffer."""
    cfg = run.cfg
    draws = draw_entries(
        step,
        pool=buffer,
        num_draws=cfg.questions,
        seed=cfg.seed,
        epoch=f"{step.at.iteration}-{step.at.step}",
        first=questions.tasks,
        repeat=False,
    )
    return answer(
        run,
        step,
        roles.solver,
        policy,
        tasks=draws,
        group_size=cfg.answers,
        index=documents,
        compare=equal,
        comparing=cfg.match,
    )


# ---- rewards and the update ----


def reward(
    run: Run[Config], step: Place, questions: Questions, valid: Valid, answers: ComparedAnswers
) -> Rewards:
    """The Solver earns 1 for a right answer; the Proposer earns what the Solver loses."""
    proposer = score(
        step,
        proposer_rewards,
        tasks=questions.tasks,
        selections=valid.selections,
        checks=valid.checks.answers,
        check_matches=valid.checks.matches,
        answers=answers.answers,
        matches=answers.matches,
        invalid=run.cfg.proposer.invalid_reward,
        label="proposer",
    )
    solver = score(
        step,
        answer_rewards,
        answers=answers.answers,
        matches=answers.matches,
        label="solver",
    )
    return Rewards(proposer, solver)


def watch(
    run: Run[Config],
    step: Place,
    policy: Player,
    documents: Table,
    questions: Questions,
    valid: Valid,
    answers: ComparedAnswers,
    rewards: Rewards,
) -> None:
    """Raise Alarm, before the update, if questions are empty or copies, or if too many that passed
    are unsound according to an auditor or, in a built-in world, to its rules."""
    watch_questions_and_answers(
        run,
        step,
        policy.policy.id,
        run.world,
        tasks=questions.tasks,
        chosen=valid.selections,
        shown={"documents": documents},
        answers=answers.answers,
        rewards=rewards.solver,
    )


def learn(
    run: Run[Config],
    step: Place,
    policy: Player,
    questions: Questions,
    answers: ComparedAnswers,
    rewards: Rewards,
) -> Player:
    """One update: REINFORCE for the Proposer, GRPO for the Solver, each with half of the weight."""
    cfg = run.cfg
    advantages: list[Table] = []
    rollouts: list[Table] = []
    if "proposer" in cfg.trained:
        # every question has its own prompt, so the group is the step
        scheme = cfg.proposer.advantage
        advantages.append(
            normalise(step, rewards.proposer, scheme=scheme, within=(), label="proposer")
        )
        rollouts.append(questions.rollouts)
    if "solver" in cfg.trained:
        earned = permuted(run, step, cfg, rewards.solver)
        advantages.append(normalise(step, earned, scheme="zscore", label="solver"))
        rollouts.append(answers.rollouts)
    return run.learn(step, policy, advantages, rollouts, cfg.update, equal_tables=True)
