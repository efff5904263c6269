"""Measurements that are not part of learning: the questions asked, and checkpoints against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flows.micro.worlds import ledgers
from flows.questions import answer, correctness
from flows.run import Player
from flows.spice.steps import Asked, Attempts, Spice, ask_round, sample_documents
from tasks.evaluate import evaluate
from warehouse.schemas import Answer, Match, Score, Task
from warehouse.store import Place

QUESTIONS, FIXED_REASONER, FIXED_CHALLENGER = "questions asked", "fixed Reasoner", "fixed Challenger"


def describe_questions(iteration: Place, asked: Sequence[Asked], player: Player) -> None:
    """What the Challenger asked in an iteration: attempts, and the Reasoner's success, by type of answer."""
    tasks = [table for questions in asked for table in questions.tasks]
    scores = [questions.scores for questions in asked]
    place = iteration.phase("questions")
    evaluate(place, measure_questions, policy=player.policy.id, benchmark=QUESTIONS, tasks=tasks, scores=scores)


def measure_questions(tasks: list[Task], scores: list[Score]) -> Iterator[tuple[str, float]]:
    """`valid` is over all attempts, `pass_rate` over the rewarded questions. For questions of the built-in world also
    whether the reference is true, and the number of items."""
    rates = {row["task_id"]: row["score"] for row in scores}
    kinds = sorted({row["answer_type"] or "" for row in tasks if row["text"] is not None})
    for task in tasks:
        yield "valid", float(task["text"] is not None)
        if task["text"] is None:
            continue
        for kind in kinds:
            yield f"share_{kind}", float(task["answer_type"] == kind)
        if (ledger := ledgers.parse_question(task["text"])) is not None:
            yield "true_reference", float(ledgers.true_answer(task["text"], task["options"]) == task["reference"])
            yield "items", float(len(ledger.items))
        if (rate := rates.get(task["task_id"])) is not None:
            yield "pass_rate", rate
            yield f"pass_rate_{task['answer_type']}", rate


# ---- checkpoints of each role against one fixed opponent of the other (figure 3 of the paper) ---------------------


def probe(spice: Spice) -> None:
    """`fixed Reasoner`: the opponent answers the questions of every checkpoint; its pass rate falls as they get harder.
    `fixed Challenger`: every checkpoint answers the opponent's questions; the pass rate rises.

    Scores are stored with the checkpoint's iteration.
    """
    run, cfg = spice.run, spice.run.cfg.probes
    if not cfg.checkpoints:
        return
    opponent = run.player_after("policy", cfg.opponent)
    fixed = ask_probe(spice, run.place.iteration(cfg.opponent).phase("probe_questions"), opponent)
    for checkpoint in cfg.checkpoints:
        player, iteration, own = run.player_after("policy", checkpoint), run.place.iteration(checkpoint), fixed
        if checkpoint != cfg.opponent:
            own = ask_probe(spice, iteration.phase("probe_questions"), player)
        pass_rate(spice, iteration.phase("probe_fixed_reasoner"), own, opponent, player, FIXED_REASONER)
        pass_rate(spice, iteration.phase("probe_fixed_challenger"), fixed, player, player, FIXED_CHALLENGER)


def ask_probe(spice: Spice, place: Place, player: Player) -> Attempts:
    """Questions of one player on the probe's documents, the same for all players."""
    cfg = spice.run.cfg.probes
    samples = sample_documents(spice, place, 0, epoch="probe", count=cfg.num_documents)
    return ask_round(spice, place, player, samples, Attempts(), 1, cfg.attempts)


def pass_rate(spice: Spice, place: Place, asked: Attempts, reasoner: Player, measured: Player, benchmark: str) -> None:
    """One answer to every valid question."""
    run = spice.run
    given = answer(run, place, spice.roles.reasoner, reasoner, n=1, comparing=run.cfg.match, tasks=asked.tasks)
    about = {"tasks": asked.tasks, "answers": given.answers, "matches": given.matches}
    evaluate(place, measure_probe, policy=measured.policy.id, benchmark=benchmark, **about)


def measure_probe(tasks: list[Task], answers: list[Answer], matches: list[Match]) -> Iterator[tuple[str, float]]:
    """`score` is the pass rate over the valid questions whose answer could be compared."""
    for found in correctness(answers, matches).values():
        if found is not None:
            yield "score", float(found)
    yield from measure_questions(tasks, [])
