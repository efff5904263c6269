"""Tables of the micro-worlds: documents to learn from, and held-out tasks with their true answers."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Sequence

from corpus_prep.search.settings import EmbeddingConfig
from flows.long_context import QuestionSet, evidence_rows
from flows.micro.worlds import clusters, encyclopaedia, haystacks, ledgers
from tasks.corpus.documents import store_documents
from tasks.needles import Grid, only_criterion
from tasks.stage import Rows, stage
from warehouse.schemas import RUBRICS, TASKS, Task
from warehouse.schemas.corpus import DOCUMENTS, MEMBERSHIPS
from warehouse.store import Place, Table

BENCHMARK_ENTITIES = 200
CLUSTER = "cluster-"  # prefix of the document ids in the world of clusters
CLUSTER_TASK_TYPES = ("general_qa", "finance_math", "multiple_choice")
LEDGER_KINDS: dict[str, tuple[ledgers.Kind, ...]] = {
    "micro": tuple(ledgers.KINDS),
    "micro-mathematics": ledgers.MATHEMATICS,
    "micro-general": tuple(kind for kind in ledgers.KINDS if kind not in ledgers.MATHEMATICS),
}

# ---- the encyclopaedia: linked entities, tasks with rubrics ----------------------------------------------------------


def encyclopaedia_documents(
    place: Place, *, seed: int, num_documents: int, embedding: EmbeddingConfig | None = None
) -> Table:
    documents = encyclopaedia.corpus(seed, num_documents)
    return store_documents(place, documents, source=f"micro-world, seed {seed}", embedding=embedding)


def encyclopaedia_oracle(criterion: str, answer: str, *, seed: int, num_documents: int) -> bool | None:
    """Whether an answer truly meets a criterion; None if the criterion is not in the form that this world uses."""
    return encyclopaedia.oracle(criterion, answer, _world(seed, num_documents))


def encyclopaedia_sound(task: Task, *, seed: int, num_documents: int) -> bool:
    """Whether a task asks for named attributes, as a generic task does not, and the world has them."""
    return _world(seed, num_documents).true_facts(encyclopaedia.parse_task(task["text"] or "")) is not None


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
    """Yield the true criteria of these tasks."""
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


# ---- ledgers: questions that need one step for every item -----------------------------------------------------------


def ledger_documents(place: Place, world: str, *, seed: int, num_documents: int, label: str | None = None) -> Table:
    """Ledgers of the kinds that `LEDGER_KINDS` lists for `world`."""
    documents = ledgers.corpus(seed, num_documents, LEDGER_KINDS[world], name=world)
    return store_documents(place, documents, source=f"{world}, seed {seed}", embedding=None, label=label)


@stage(TASKS)
def ledger_tasks(*, seed: int, num_tasks: int) -> Rows:
    """Yield held-out questions with their true answers; `difficulty` is the number of items."""
    for task in ledgers.held_out_tasks(seed, num_tasks):
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
    """Whether an answer, or the letter of an option, is the true result; None for a question that does not follow the
    ledgers' grammar."""
    truth = ledgers.true_answer(task["text"] or "", task["options"])
    return None if truth is None else answer.split() == truth.split()


def ledger_sound(task: Task) -> bool:
    """Whether a question follows the ledgers' grammar and its reference answer, if it has one, is the true result."""
    truth, given = ledgers.true_answer(task["text"] or "", task["options"]), task["reference"]
    return truth is not None and (given is None or given.split() == truth.split())


# ---- clusters: each question is about all documents of one cluster ---------------------------------------------------


@stage(DOCUMENTS)
def cluster_documents(*, seed: int, num_clusters: int) -> Rows:
    """Yield the documents of all clusters."""
    for _, document in clusters.cluster_rows(seed, num_clusters):
        yield {**document, "source": f"micro-world of clusters, seed {seed}", "num_chars": len(document["text"])}


@stage(MEMBERSHIPS)
def cluster_memberships(*, seed: int, num_clusters: int) -> Rows:
    """Yield which document is in which cluster."""
    for number, document in clusters.cluster_rows(seed, num_clusters):
        yield {"document_id": document["document_id"], "cluster": number, "similarity": 1.0}


def cluster_oracle(task: Task, answer: str) -> bool | None:
    """Whether an answer, or the letter of an option, is true in the cluster of the task's document; None for a question
    that does not follow the grammar, or asks for a fact that the cluster does not have."""
    if not (task["document_id"] or "").startswith(CLUSTER):
        return None
    seed, number, *_ = (task["document_id"] or "").removeprefix(CLUSTER).split("-")
    question = clusters.parse_question(task["text"] or "")
    truth = clusters.world_cluster(int(seed), int(number)).true_answer(question)
    if truth is None:
        return None
    said = clusters.option_of(answer, task["options"]) if task["options"] else answer
    return said is not None and clusters.same_answer(said.strip(), truth)


def cluster_sound(task: Task) -> bool:
    """Whether a question asks for a fact of its cluster and its reference answer is true."""
    return task["reference"] is not None and bool(cluster_oracle(task, task["reference"]))


@stage(TASKS)
def cluster_tasks(*, seed: int, num_tasks: int) -> Rows:
    """Yield held-out questions, each about a cluster stored as one document; `difficulty` is the number of links on the
    longest path, plus one."""
    for i, task_type, _, question, options, answer in _drawn(seed, num_tasks):
        yield {
            "task_id": f"cluster-{seed}-{i:04d}",
            "document_id": f"cluster-{seed}-{i:04d}",
            "task_type": task_type,
            "text": clusters.write_question(question),
            "reference": answer,
            "options": options or None,
            "difficulty": question.hops + 1,
        }


@stage(DOCUMENTS)
def cluster_contexts(*, seed: int, num_tasks: int) -> Rows:
    """Yield what is shown with each question: all documents of its cluster."""
    for i, _, cluster, *_ in _drawn(seed, num_tasks):
        text = " ".join(cluster.texts[name] for name in cluster.names)
        source = f"micro-world, seed {seed}"
        yield {"document_id": f"cluster-{seed}-{i:04d}", "text": text, "source": source, "num_chars": len(text)}


def open_cluster_tasks(place: Place, *, seed: int, num_tasks: int) -> QuestionSet:
    """Questions and their contexts."""
    made = {"seed": seed, "num_tasks": num_tasks}
    return QuestionSet("micro", cluster_tasks(place, **made), cluster_contexts(place, **made))


def _drawn(seed: int, num_tasks: int) -> Iterator[tuple[int, str, clusters.Cluster, clusters.Question, list[str], str]]:
    """Number, type, cluster, question, options and answer. Types and hops take turns; each has its own cluster."""
    rng = random.Random(seed)
    for i in range(num_tasks):
        cluster, task_type = clusters.world_cluster(seed, i % 1000), CLUSTER_TASK_TYPES[i % len(CLUSTER_TASK_TYPES)]
        hops = i // len(CLUSTER_TASK_TYPES) % (clusters.MAX_HOPS + 1)
        question = cluster.draw_question(rng, task_type == "finance_math", hops)
        answer, options = cluster.true_answer(question) or "", []
        if task_type == "multiple_choice":
            options, answer = cluster.draw_options(rng, question, answer)
        yield i, task_type, cluster, question, options, answer


# ---- haystacks: clusters hidden among other documents, questions about them, the sentences that answer these --------


@stage(TASKS)
def haystack_tasks(*, seed: int, num_tasks: int) -> Rows:
    """Yield questions, each about a context stored as one document; `difficulty` is the number of sentences needed."""
    for one in haystacks.haystacks(seed, num_tasks):
        about = {"document_id": one.task_id, "task_type": "multi_hop", "difficulty": one.hops + 1}
        yield {"task_id": one.task_id, **about, "text": one.question, "reference": one.answer}


@stage(DOCUMENTS)
def haystack_contexts(*, seed: int, num_tasks: int) -> Rows:
    """Yield what is shown with each question."""
    for one in haystacks.haystacks(seed, num_tasks):
        source = f"micro-world of haystacks, seed {seed}"
        yield {"document_id": one.task_id, "text": one.context, "source": source, "num_chars": len(one.context)}


@stage(RUBRICS)
def haystack_evidence(*, seed: int, num_tasks: int) -> Rows:
    """Yield the sentences that answer each question: each is a criterion, a sentence that an answer should quote."""
    for one in haystacks.haystacks(seed, num_tasks):
        yield from evidence_rows(one.task_id, one.evidence)


def open_haystacks(place: Place, *, seed: int, num_tasks: int, with_evidence: bool = True) -> QuestionSet:
    """Questions, their contexts, and the sentences that an answer should quote."""
    made = {"seed": seed, "num_tasks": num_tasks}
    evidence = haystack_evidence(place, **made) if with_evidence else ()
    return QuestionSet("micro", haystack_tasks(place, **made), haystack_contexts(place, **made), evidence)


@stage(TASKS)
def needle_tasks(*, grid: Grid, seed: int) -> Rows:
    """Yield questions that one sentence answers, one for each of the grid's needles."""
    for task_id, question, answer, _ in _needles(grid, seed):
        about = {"document_id": task_id, "task_type": "needle", "difficulty": 1}
        yield {"task_id": task_id, **about, "text": question, "reference": answer}


@stage(RUBRICS)
def needle_sentences(*, grid: Grid, seed: int) -> Rows:
    """Yield those sentences: each is a criterion, a sentence that an answer should quote."""
    for task_id, _, _, sentence in _needles(grid, seed):
        yield only_criterion(task_id, sentence)


def is_of_another(needle: str, sentence: str) -> bool:
    """Whether a sentence does not mention the entity that a needle is about."""
    return needle.split()[0] not in sentence.split()


def _needles(grid: Grid, seed: int) -> Iterator[tuple[str, str, str, str]]:
    rng = random.Random(seed)
    for i in range(len(grid.cells)):
        cluster = clusters.world_cluster(seed, i % 1000)
        question = cluster.draw_question(rng, False, 0)
        (sentence,) = haystacks.evidence_of(cluster, question)
        answer = cluster.true_answer(question) or ""
        yield f"needle-{seed}-{i:04d}", clusters.write_question(question), answer, sentence


def haystack_mark(question: str, quotes: Sequence[str]) -> float | None:
    """The mark that quotes deserve, 0..1, by how many steps to the answer they contain; None for a question that does
    not follow the grammar."""
    parsed = clusters.parse_question(question)
    return None if parsed is None else (haystacks.mark(haystacks.links_found(parsed, quotes)) - 1) / 4
