"""Tables of the built-in worlds (documents to learn from, held-out tasks) and their oracles.

`flows.worlds.built_in` gathers them as one `World` each.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corpus_prep.search.settings import EmbeddingConfig
from flows.worlds import (
    clusters,
    encyclopaedia,
    haystacks,
    ledgers,
    masked_ledgers,
    programs,
    trails,
)
from tasks.corpus.documents import store_documents
from tasks.corpus.evidence import evidence_rows
from tasks.needles import Grid, only_criterion
from tasks.scorers.equality import LETTER
from tasks.stage import Rows, stage
from warehouse.schemas import RUBRICS, TASKS, Row, Task
from warehouse.schemas.corpus import DOCUMENTS, MEMBERSHIPS
from warehouse.store import Place, Table

BENCHMARK_ENTITIES = 200
HELD_OUT_PEOPLE = 200
CLUSTER = "cluster-"  # prefix of the document ids in the world of clusters
CLUSTER_TASK_TYPES = ("general_qa", "finance_math", "multiple_choice")
LEDGER_KINDS: dict[str, tuple[ledgers.Kind, ...]] = {
    "micro": tuple(ledgers.KINDS),
    "micro-mathematics": ledgers.MATHEMATICS,
    "micro-general": tuple(kind for kind in ledgers.KINDS if kind not in ledgers.MATHEMATICS),
}

# ---- the encyclopaedia: linked entities, tasks with rubrics ----


def encyclopaedia_documents(
    place: Place,
    *,
    seed: int,
    num_documents: int,
    embedding: EmbeddingConfig | None = None,
    label: str | None = None,
) -> Table:
    """The documents of an encyclopaedia with their index: a vector index if there is an
    `embedding`, else BM25.

    The same `seed` and `num_documents` give the same documents.
    """
    documents = encyclopaedia.corpus(seed, num_documents)
    return store_documents(
        place, documents, source=f"micro-world, seed {seed}", embedding=embedding, label=label
    )


def encyclopaedia_oracle(
    criterion: str, answer: str, *, seed: int, num_documents: int
) -> bool | None:
    """Whether an answer truly meets a criterion; None if the criterion does not have this world's
    form."""
    return encyclopaedia.oracle(criterion, answer, _world(seed, num_documents))


def encyclopaedia_sound(task: Task, *, seed: int, num_documents: int) -> bool:
    """Whether a task asks for named attributes, unlike a generic task, and the world has them."""
    parsed = encyclopaedia.parse_task(task["text"] or "")
    return _world(seed, num_documents).true_facts(parsed) is not None


@functools.cache
def _world(seed: int, num_documents: int) -> encyclopaedia.World:
    return encyclopaedia.World(seed, num_documents)


@stage(TASKS)
def encyclopaedia_tasks(*, seed: int, num_tasks: int) -> Rows:
    """Yield held-out tasks; `difficulty` is the number of documents needed for a full answer."""
    for task in encyclopaedia.held_out_tasks(seed, num_tasks, BENCHMARK_ENTITIES):
        yield {
            "task_id": task.task_id,
            "task_type": task.task_type,
            "text": task.text,
            "difficulty": task.hops + 1,
        }


@stage(RUBRICS)
def encyclopaedia_rubrics(*, seed: int, num_tasks: int) -> Rows:
    """Yield the criteria that a perfect answer meets, for each task of `encyclopaedia_tasks` with
    the same seed and number of tasks."""
    for task in encyclopaedia.held_out_tasks(seed, num_tasks, BENCHMARK_ENTITIES):
        for i, criterion in enumerate(task.criteria):
            yield {
                "criterion_id": f"{task.task_id}-{i}",
                "task_id": task.task_id,
                "position": i,
                "criterion": criterion,
                "priority": "critical",
                "weight": 1.0,
            }


# ---- ledgers: questions that take one step per item ----


def ledger_documents(
    place: Place,
    corpus: str,
    *,
    seed: int,
    num_documents: int,
    label: str | None = None,
    num_items: int = ledgers.NUM_ITEMS,
) -> Table:
    """`num_documents` ledgers drawn from `seed`, of the kinds that `LEDGER_KINDS` lists for
    `corpus`, with a BM25 index."""
    documents = ledgers.corpus(
        seed, num_documents, LEDGER_KINDS[corpus], name=corpus, num_items=num_items
    )
    return store_documents(
        place, documents, source=f"{corpus}, seed {seed}", embedding=None, label=label
    )


@stage(TASKS)
def ledger_tasks(*, seed: int, num_tasks: int, num_items: int = ledgers.NUM_ITEMS) -> Rows:
    """Yield held-out questions with their true answers; `difficulty` is the number of items, at
    most `num_items`."""
    for task in ledgers.held_out_tasks(seed, num_tasks, num_items):
        yield {
            "task_id": task.task_id,
            "task_type": task.answer_type,
            "text": task.question,
            "reference": task.answer,
            "answer_type": task.answer_type,
            "options": list(task.options) or None,
            "difficulty": task.count,
        }


def ledger_oracle(task: Task, answer: str) -> bool | None:
    """Whether an answer, or the letter of an option, is the true result; None for a question that
    does not follow the ledgers' grammar."""
    truth = ledgers.true_answer(task["text"] or "", task["options"])
    if truth is None:
        return None
    return answer.split() == truth.split()


def ledger_sound(task: Task) -> bool:
    """Whether a question follows the ledgers' grammar and its reference answer, if it has one,
    is the true result."""
    truth = ledgers.true_answer(task["text"] or "", task["options"])
    reference = task["reference"]
    return truth is not None and (reference is None or reference.split() == truth.split())


def describe_ledger_question(task: Task) -> Iterator[tuple[str, float]]:
    """Yield whether the reference of a question is true, and how many items the question names;
    nothing for a question that does not follow the ledgers' grammar."""
    ledger = ledgers.parse_question(task["text"] or "")
    if ledger is None:
        return
    truth = ledgers.true_answer(task["text"] or "", task["options"])
    yield "true_reference", float(truth == task["reference"])
    yield "items", float(len(ledger.items))


# ---- programs: tasks that take one step per step of a program ----


@stage(TASKS)
def program_tasks(*, seed: int, num_tasks: int) -> Rows:
    """Yield held-out tasks with the outputs of their programs; `difficulty` is the number of steps
    of the program."""
    for task in programs.held_out_tasks(seed, num_tasks):
        yield {
            "task_id": task.task_id,
            "task_type": task.task_type,
            "text": task.text,
            "reference": task.reference,
            "answer_type": task.task_type,
            "difficulty": task.num_steps,
        }


def program_oracle(task: Task, answer: str) -> bool | None:
    """Whether an answer to a task about a program is right; None for a program that does not
    follow the grammar."""
    return programs.is_right(task["task_type"], task["text"] or "", answer)


def program_sound(task: Task) -> bool:
    """Whether a task's program follows the grammar and its reference is what it returns."""
    parsed = programs.parse_task(task["text"] or "")
    if parsed is None or task["reference"] is None:
        return False
    outputs = [str(output) for output in parsed.outputs]
    if task["task_type"] == "induction":
        return json.loads(task["reference"]) == outputs
    return task["reference"] == outputs[0]


def describe_program(task: Task) -> Iterator[tuple[str, float]]:
    """Yield whether the reference of a task is true, and how many steps its program has, overall
    and by type; nothing for a program that does not follow the grammar."""
    parsed = programs.parse_task(task["text"] or "")
    if parsed is None:
        return
    yield "true_reference", float(program_sound(task))
    num_steps = float(len(parsed.program.steps))
    yield "steps", num_steps
    yield f"steps_{task['task_type']}", num_steps


# ---- trails: questions that take one search per hop ----


def trail_documents(
    place: Place,
    *,
    seed: int,
    num_documents: int,
    embedding: EmbeddingConfig | None = None,
    label: str | None = None,
) -> Table:
    """The documents about people who know each other, with their index: a vector index if there is
    an `embedding`, else BM25."""
    documents = trails.corpus(seed, num_documents)
    return store_documents(
        place, documents, source=f"trails, seed {seed}", embedding=embedding, label=label
    )


@stage(TASKS)
def trail_tasks(*, seed: int, num_tasks: int) -> Rows:
    """Yield held-out questions with their true answers; `difficulty` is the number of hops."""
    for task in trails.held_out_tasks(seed, num_tasks, HELD_OUT_PEOPLE):
        yield {
            "task_id": task.task_id,
            "document_id": task.task_id,
            "text": trails.write_question(task.question),
            "reference": task.answer,
            "difficulty": task.question.hops,
        }


def trail_oracle(task: Task, answer: str) -> bool | None:
    """Whether an answer is the person at the end of a question's trail, in the world of the task's
    document; None if the question does not follow the grammar or its trail does not exist."""
    truth = _trail_answer(task)
    if truth is None:
        return None
    return answer.split() == [truth]


def trail_sound(task: Task) -> bool:
    """Whether a question's trail exists and ends at its reference answer."""
    return task["reference"] is not None and bool(trail_oracle(task, task["reference"]))


def describe_trail_question(task: Task) -> Iterator[tuple[str, float]]:
    """Yield whether the reference of a question is true, and how many hops the question has;
    nothing for a question that does not follow the grammar."""
    question = trails.parse_question(task["text"] or "")
    if question is None:
        return
    yield "true_reference", float(trail_sound(task))
    yield "hops", float(question.hops)


def _trail_answer(task: Task) -> str | None:
    world = trails.world_of(task["document_id"])
    if world is None:
        return None
    return world.true_answer(trails.parse_question(task["text"] or ""))


# ---- masked ledgers: one step per masked entry ----


@stage(TASKS)
def masked_ledger_tasks(*, seed: int, num_tasks: int) -> Rows:
    """Yield held-out masked ledgers with four options each; `difficulty` is the number of masked
    entries."""
    for task in masked_ledgers.held_out_tasks(seed, num_tasks):
        yield {
            "task_id": task.task_id,
            "task_type": LETTER,
            "text": task.text,
            "reference": task.answer,
            "answer_type": LETTER,
            "options": list(task.options),
            "difficulty": task.length,
        }


def masked_ledger_oracle(task: Task, answer: str) -> bool | None:
    """Whether a letter is that of the only right option; None if the task is not a masked ledger or
    does not have exactly one right option."""
    truth = masked_ledgers.true_letter(task["text"] or "", task["options"] or ())
    if truth is None:
        return None
    return answer.strip() == truth


def masked_ledger_sound(task: Task) -> bool:
    """Whether a task is a masked ledger whose only right option is its reference."""
    truth = masked_ledgers.true_letter(task["text"] or "", task["options"] or ())
    return truth is not None and truth == task["reference"]


def describe_masked_ledger(task: Task) -> Iterator[tuple[str, float]]:
    """Yield whether the reference is the only right option, and how many entries are masked;
    nothing for a task that is not a masked ledger."""
    options = task["options"] or ()
    entries = masked_ledgers.parse_entries(options[0]) if options else None
    if entries is None:
        return
    yield "true_reference", float(masked_ledger_sound(task))
    yield "entries", float(len(entries))


# ---- clusters: each question is about all documents of one cluster ----


@stage(DOCUMENTS)
def cluster_documents(*, seed: int, num_clusters: int, confirmed: float | None = None) -> Rows:
    """Yield the documents of `num_clusters` clusters drawn from `seed`; `confirmed` as in
    `clusters.world_cluster`."""
    for _, document in clusters.cluster_rows(seed, num_clusters, confirmed):
        yield {
            **document,
            "source": f"micro-world of clusters, seed {seed}",
            "num_chars": len(document["text"]),
        }


@stage(MEMBERSHIPS)
def cluster_memberships(*, seed: int, num_clusters: int, confirmed: float | None = None) -> Rows:
    """Yield the cluster of each document of `cluster_documents`."""
    for number, document in clusters.cluster_rows(seed, num_clusters, confirmed):
        yield {"document_id": document["document_id"], "cluster": number, "similarity": 1.0}


def cluster_oracle(task: Task, answer: str, confirmed: float | None = None) -> bool | None:
    """Whether an answer, or the letter of an option, is true in the cluster of the task's document;
    None if the question does not follow the grammar, or asks for a fact that the cluster lacks."""
    if not (task["document_id"] or "").startswith(CLUSTER):
        return None
    seed, number, *_ = (task["document_id"] or "").removeprefix(CLUSTER).split("-")
    question = clusters.parse_question(task["text"] or "")
    truth = clusters.world_cluster(int(seed), int(number), confirmed).true_answer(question)
    if truth is None:
        return None
    # a letter without an option is wrong
    text = clusters.option_of(answer, task["options"]) if task["options"] else answer
    return text is not None and clusters.same_answer(text.strip(), truth)


def cluster_compare(task: Row, answer: str) -> bool:
    """Whether an answer equals the true reference of a held-out question, in digits or in words:
    `compare` of the stage `match`."""
    return clusters.same_answer(answer.strip(), task["reference"])


def cluster_sound(task: Task, confirmed: float | None = None) -> bool:
    """Whether a question asks for a fact of its cluster and its reference answer is true."""
    reference = task["reference"]
    return reference is not None and bool(cluster_oracle(task, reference, confirmed))


@dataclass(frozen=True)
class ClusterQuestion:
    """A held-out question about a cluster. `options` is empty unless `task_type` is multiple
    choice; then the answer is a letter."""

    task_id: str
    task_type: str
    cluster: clusters.Cluster
    question: clusters.Question
    options: list[str]
    answer: str


@stage(TASKS)
def cluster_tasks(*, seed: int, num_tasks: int, confirmed: float | None = None) -> Rows:
    """Yield held-out questions, each about a cluster stored as one document; `difficulty` is the
    number of links on the question's path, plus one."""
    for drawn in _draw_cluster_questions(seed, num_tasks, confirmed):
        yield {
            "task_id": drawn.task_id,
            "document_id": drawn.task_id,
            "task_type": drawn.task_type,
            "text": clusters.write_question(drawn.question),
            "reference": drawn.answer,
            "options": drawn.options or None,
            "difficulty": drawn.question.hops + 1,
        }


@stage(DOCUMENTS)
def cluster_contexts(*, seed: int, num_tasks: int, confirmed: float | None = None) -> Rows:
    """Yield the context shown with each question: all documents of its cluster as one document,
    whose id is the task's."""
    for drawn in _draw_cluster_questions(seed, num_tasks, confirmed):
        text = " ".join(drawn.cluster.texts[name] for name in drawn.cluster.names)
        yield {
            "document_id": drawn.task_id,
            "text": text,
            "source": f"micro-world, seed {seed}",
            "num_chars": len(text),
        }


def _draw_cluster_questions(
    seed: int, num_tasks: int, confirmed: float | None
) -> Iterator[ClusterQuestion]:
    """Questions that cycle through types and numbers of hops, each about a different one of 1,000
    clusters; then second questions about the same clusters, and so on."""
    rng = random.Random(seed)
    for i in range(num_tasks):
        turn, number = divmod(i, 1000)
        cluster = clusters.world_cluster(seed, number, confirmed)
        task_type = CLUSTER_TASK_TYPES[i % len(CLUSTER_TASK_TYPES)]
        hops = i // len(CLUSTER_TASK_TYPES) % (clusters.MAX_HOPS + 1)
        question = cluster.draw_question(rng, task_type == "finance_math", hops)
        answer = cluster.true_answer(question) or ""
        options = []
        if task_type == "multiple_choice":
            options, answer = cluster.draw_options(rng, question, answer)
        task_id = f"{CLUSTER}{seed}-{number:04d}" + (f"-{turn}" if turn else "")
        yield ClusterQuestion(task_id, task_type, cluster, question, options, answer)


# ---- haystacks: clusters hidden among other documents, questions about them, and the sentences
# that answer these ----


@stage(TASKS)
def haystack_tasks(*, seed: int, num_tasks: int, share_yes: float | None = None) -> Rows:
    """Yield questions, each about a context stored as one document; `difficulty` is the number of
    sentences needed.

    With `share_yes`, they are leading questions, and this share of them proposes the true answer.
    """
    for haystack in haystacks.haystacks(seed, num_tasks, share_yes):
        yield {
            "task_id": haystack.task_id,
            "document_id": haystack.task_id,
            "task_type": "multi_hop",
            "difficulty": haystack.hops + 1,
            "text": haystack.question,
            "reference": haystack.answer,
        }


@stage(DOCUMENTS)
def haystack_contexts(*, seed: int, num_tasks: int) -> Rows:
    """Yield the context shown with each question of `haystack_tasks`: one document, whose id is the
    task's."""
    for haystack in haystacks.haystacks(seed, num_tasks):
        yield {
            "document_id": haystack.task_id,
            "text": haystack.context,
            "source": f"micro-world of haystacks, seed {seed}",
            "num_chars": len(haystack.context),
        }


@stage(RUBRICS)
def haystack_evidence(*, seed: int, num_tasks: int) -> Rows:
    """Yield the sentences that answer each question, as criteria: an answer should quote them."""
    for haystack in haystacks.haystacks(seed, num_tasks):
        yield from evidence_rows(haystack.task_id, haystack.evidence)


def haystack_mark(question: str, quotes: Sequence[str]) -> float | None:
    """The mark that quotes deserve, 0..1, by the number of steps to the answer that they contain.

    None for a question that does not follow the grammar. A leading question's proposal does not
    matter.
    """
    parsed = clusters.parse_question(haystacks.without_proposal(question))
    if parsed is None:
        return None
    # scale marks from 1..5 to 0..1
    return (haystacks.mark(haystacks.links_found(parsed, quotes)) - 1) / 4


# ---- needles: single sentences of clusters, to hide among documents of other clusters ----


@dataclass(frozen=True)
class ClusterNeedle:
    """A sentence to hide, and the question that it alone answers."""

    task_id: str
    question: str
    answer: str
    sentence: str


@stage(TASKS)
def needle_tasks(*, grid: Grid, seed: int) -> Rows:
    """Yield questions that a single sentence answers, one for each of the grid's needles."""
    for needle in _draw_needles(grid, seed):
        yield {
            "task_id": needle.task_id,
            "document_id": needle.task_id,
            "task_type": "needle",
            "difficulty": 1,
            "text": needle.question,
            "reference": needle.answer,
        }


@stage(RUBRICS)
def needle_sentences(*, grid: Grid, seed: int) -> Rows:
    """Yield the sentences that answer the questions of `needle_tasks`, as criteria: an answer
    should quote them."""
    for needle in _draw_needles(grid, seed):
        yield only_criterion(needle.task_id, needle.sentence)


def is_of_another(needle: str, sentence: str) -> bool:
    """Whether a sentence does not mention the entity that a needle is about."""
    return needle.split()[0] not in sentence.split()


def _draw_needles(grid: Grid, seed: int) -> Iterator[ClusterNeedle]:
    rng = random.Random(seed)
    for i in range(len(grid.cells)):
        cluster = clusters.world_cluster(seed, i % 1000)
        question = cluster.draw_question(rng, False, 0)
        # a question without links has one sentence of evidence
        (sentence,) = haystacks.evidence_of(cluster, question)
        yield ClusterNeedle(
            f"needle-{seed}-{i:04d}",
            clusters.write_question(question),
            cluster.true_answer(question) or "",
            sentence,
        )
