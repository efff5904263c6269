"""The corpora a run learns from, and what is measured beside learning: answers to questions that it never trains on,
and the questions that it asks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flows.micro.worlds import ledgers as world
from flows.spice.config import MICRO, MICRO_GENERAL, MICRO_MATHEMATICS, SpiceConfig
from flows.spice.scoring import correctness
from flows.spice.steps import Attempts, Player, Spice, answer
from tasks.corpus.documents import corpus_identity, read_documents, store_documents
from tasks.evaluate import evaluate
from tasks.prompt import Row
from tasks.stage import Rows, stage
from warehouse.schemas import TASKS
from warehouse.store import Place, Table

KINDS: dict[str, tuple[world.Kind, ...]] = {
    MICRO: tuple(world.KINDS),
    MICRO_MATHEMATICS: world.MATHEMATICS,
    MICRO_GENERAL: tuple(kind for kind in world.KINDS if kind not in world.MATHEMATICS),
}
QUESTIONS = "questions asked"


def open_corpora(place: Place, cfg: SpiceConfig) -> tuple[Table, ...]:
    """The documents of each corpus, in the order of their shares."""
    return tuple(_open(place, cfg, corpus, f"corpus-{i}") for i, corpus in enumerate(cfg.shares, 1))


def _open(place: Place, cfg: SpiceConfig, corpus: str, label: str) -> Table:
    if corpus in KINDS:
        documents = world.corpus(cfg.world_seed, cfg.corpus_documents, KINDS[corpus], name=corpus)
        return store_documents(place, documents, source=f"{corpus}, seed {cfg.world_seed}", embedding=None, label=label)
    if not Path(corpus).exists():
        raise ValueError(
            f"corpus {corpus} does not exist: give a folder, a .jsonl or .parquet file, or one of {', '.join(KINDS)}"
        )
    return read_documents(place, corpus, identity=corpus_identity(corpus), embedding=None, label=label)


@dataclass(frozen=True)
class HeldOut:
    """Benchmark questions of a world that is in no training corpus; None where a run has no benchmark."""

    spice: Spice
    tasks: Table | None = None

    @classmethod
    def prepare(cls, spice: Spice) -> HeldOut:
        cfg = spice.cfg.evaluation
        if cfg.benchmark == "none":
            return cls(spice)
        place = spice.bench.place.iteration(0).phase("benchmark")
        return cls(spice, benchmark_tasks(place, seed=cfg.seed, num_tasks=cfg.num_tasks))


def score_held_out(held_out: HeldOut, iteration: Place, player: Player) -> None:
    """Answer every benchmark question once, and compare with the true answer."""
    spice, tasks = held_out.spice, held_out.tasks
    if tasks is None:
        return
    cfg, place = spice.cfg.evaluation, iteration.phase("evaluation")
    sampling = spice.sampling(cfg.temperature)
    given = answer(spice, place, player, tasks, num_answers=1, sampling=sampling)
    evaluate(place, measure, tasks, given.answers, given.matches, policy=player.policy.id, benchmark=cfg.benchmark)


def measure(tasks: list[Row], answers: list[Row], matches: list[Row]) -> Iterator[tuple[str, float]]:
    """`score` is the share of true answers; what could not be compared counts as wrong, and is a metric of its own."""
    correct, answer_of = correctness(answers, matches), {row["task_id"]: row for row in answers}
    for task in tasks:
        given = answer_of[task["task_id"]]
        score = float(correct[given["rollout_id"]] or 0)
        yield "score", score
        yield f"score_{task['answer_type']}", score
        if task["difficulty"] is not None:
            yield f"score_{task['difficulty']}_items", score
        yield "unanswered", float(given["answer"] is None)
        yield "not_compared", float(given["answer"] is not None and correct[given["rollout_id"]] is None)


def describe_questions(spice: Spice, iteration: Place, asked: list[tuple[Attempts, Table]], player: Player) -> None:
    """What the Challenger asked in an iteration: attempts, and the Reasoner's success, by type of answer."""
    place = iteration.phase("questions")
    tasks = [table for attempts, _ in asked for table in attempts.tasks]
    scores = [table for _, table in asked]
    evaluate(place, measure_questions, tasks, scores, policy=player.policy.id, benchmark=QUESTIONS)


def measure_questions(tasks: list[Row], scores: list[Row]) -> Iterator[tuple[str, float]]:
    """`valid` is over all attempts, `pass_rate` over the rewarded questions. Where the built-in world knows a question,
    whether its reference is the truth, and how many items it has."""
    paid = {row["task_id"]: row["components"] for row in scores}
    for task in tasks:
        yield "valid", float(task["text"] is not None)
        if task["text"] is None:
            continue
        for kind in sorted({row["answer_type"] for row in tasks if row["text"] is not None}):
            yield f"share_{kind}", float(task["answer_type"] == kind)
        if (ledger := world.parse_question(task["text"])) is not None:
            yield "true_reference", float(world.true_answer(task["text"], task["options"]) == task["reference"])
            yield "items", float(len(ledger.items))
        if (rate := paid.get(task["task_id"], {}).get("g_bar")) is not None:
            yield "pass_rate", rate
            yield f"pass_rate_{task['answer_type']}", rate


@stage(TASKS)
def benchmark_tasks(*, seed: int, num_tasks: int) -> Rows:
    """Yield the questions of the held-out world with their true answers."""
    for task in world.held_out_tasks(seed, num_tasks):
        yield {
            "task_id": task.task_id,
            "task_type": task.answer_type,
            "difficulty": task.count,
            "text": task.question,
            "reference": task.answer,
            "answer_type": task.answer_type,
            "options": list(task.options) or None,
        }
