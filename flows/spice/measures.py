"""Measurements outside training: the questions, and checkpoints against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flows.blocks.questions import Describe, answer, correctness
from flows.run import Player, Run
from flows.spice.steps import Attempts, Questions, Spice, ask_round, sample_documents
from tasks.evaluate import evaluate
from warehouse.schemas import Answer, Match, Reward, Task
from warehouse.store import Place

QUESTIONS = "questions asked"
FIXED_REASONER = "fixed Reasoner"
FIXED_CHALLENGER = "fixed Challenger"


def describe_questions(
    run: Run[Any], iteration: Place, questions: Sequence[Questions], player: Player
) -> None:
    """Store metrics of the Challenger's questions in an iteration: its attempts and the Reasoner's
    success, by answer type."""
    evaluate(
        iteration.phase("questions"),
        measure_questions,
        policy=player.policy.id,
        benchmark=QUESTIONS,
        tasks=[table for of_step in questions for table in of_step.tasks],
        rewards=[of_step.rewards for of_step in questions],
        describe=run.world and run.world.describe,
    )


def measure_questions(
    tasks: list[Task], rewards: list[Reward], *, describe: Describe | None
) -> Iterator[tuple[str, float]]:
    """Yield metrics of questions: `valid` for every attempt, `pass_rate` for every rewarded one.

    `describe` gives further metrics of a question in a built-in world, such as whether the
    reference is true, and the number of items.
    """
    rates = {row["task_id"]: row["score"] for row in rewards}
    answer_types = sorted(
        {row["answer_type"] for row in tasks if row["text"] is not None and row["answer_type"]}
    )
    for task in tasks:
        yield "valid", float(task["text"] is not None)
        if task["text"] is None:
            continue
        for answer_type in answer_types:
            yield f"share_{answer_type}", float(task["answer_type"] == answer_type)
        if describe is not None:
            yield from describe(task)
        rate = rates.get(task["task_id"])
        if rate is not None:
            yield "pass_rate", rate
            if task["answer_type"] is not None:
                yield f"pass_rate_{task['answer_type']}", rate


# ---- checkpoints of each role against one fixed opponent of the other (figure 3 of the paper) ----


def probe(spice: Spice) -> None:
    """Let each checkpoint play either role against one fixed opponent in the other.

    `fixed Reasoner`: the opponent answers every checkpoint's questions; its pass rate falls as the
    questions get harder. `fixed Challenger`: every checkpoint answers the opponent's questions; the
    pass rate rises. Scores are stored with the checkpoint's iteration.
    """
    run = spice.run
    cfg = run.cfg.probes
    if not cfg.checkpoints:
        return
    opponent = run.player_after("policy", cfg.opponent)
    opponent_place = run.place.iteration(cfg.opponent).phase("probe_questions")
    opponent_questions = ask_probe(spice, opponent_place, opponent)
    for checkpoint in cfg.checkpoints:
        player = run.player_after("policy", checkpoint)
        iteration = run.place.iteration(checkpoint)
        questions = opponent_questions
        if checkpoint != cfg.opponent:
            questions = ask_probe(spice, iteration.phase("probe_questions"), player)
        measure_pass_rate(
            spice,
            iteration.phase("probe_fixed_reasoner"),
            questions,
            reasoner=opponent,
            evaluated=player,
            benchmark=FIXED_REASONER,
        )
        measure_pass_rate(
            spice,
            iteration.phase("probe_fixed_challenger"),
            opponent_questions,
            reasoner=player,
            evaluated=player,
            benchmark=FIXED_CHALLENGER,
        )


def ask_probe(spice: Spice, place: Place, player: Player) -> Attempts:
    """Questions of one player on the probe's documents, the same for all players."""
    cfg = spice.run.cfg.probes
    samples = sample_documents(spice, place, 0, epoch="probe", num_documents=cfg.num_documents)
    return ask_round(
        spice,
        place,
        player,
        samples,
        earlier=Attempts(),
        round_number=1,
        num_attempts=cfg.attempts,
    )


def measure_pass_rate(
    spice: Spice,
    place: Place,
    questions: Attempts,
    *,
    reasoner: Player,
    evaluated: Player,
    benchmark: str,
) -> None:
    """Store, as a score of `evaluated`, how often `reasoner` is right when it answers each valid
    question once."""
    run = spice.run
    answers = answer(
        run,
        place,
        spice.roles.reasoner,
        reasoner,
        tasks=questions.tasks,
        group_size=1,
        comparing=run.cfg.match,
    )
    evaluate(
        place,
        measure_probe,
        policy=evaluated.policy.id,
        benchmark=benchmark,
        tasks=questions.tasks,
        answers=answers.answers,
        matches=answers.matches,
        describe=run.world and run.world.describe,
    )


def measure_probe(
    tasks: list[Task],
    answers: list[Answer],
    matches: list[Match],
    *,
    describe: Describe | None,
) -> Iterator[tuple[str, float]]:
    """Yield `score`, whose mean is the pass rate over the valid questions whose answer could be
    compared, and the metrics of `measure_questions`."""
    for correct in correctness(answers, matches).values():
        if correct is not None:
            yield "score", float(correct)
    yield from measure_questions(tasks, [], describe=describe)
