"""Questions over long contexts, the sentences that answer them, and the scores of answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import Field

from corpus_prep.read.rows import read_rows
from corpus_prep.read.suffixes import ROW_FILES
from flows.blocks.corpora import documents_of_run
from flows.run import Run
from flows.settings import profile
from flows.worlds.world import World
from tasks.benchmarks.item_scores import pass_at
from tasks.benchmarks.items import fields, items_of, parts
from tasks.benchmarks.own_file import columns_of
from tasks.corpus.documents import corpus_identity
from tasks.corpus.evidence import evidence_rows
from tasks.corpus.passages import found_contexts
from tasks.read import sampled
from tasks.readers.letters import lettered, with_option
from tasks.readers.words import words_of
from tasks.scorers.accepted import accepted, best_overlap, exact
from tasks.stage import Rows, Tables, as_tables, rows_by, stage
from warehouse.schemas import ANSWERS, DOCUMENTS, RUBRICS, TASKS, Answer, Match, Row, Task, Vote
from warehouse.store import Place, Table


class Evaluation(profile.Evaluation):
    """The held-out score after every iteration, on a built-in world's questions or on files."""

    benchmark: str = Field(  # type: ignore[assignment]
        default="none",
        description=(
            '"micro", "none" or a file of questions (.csv, .tsv, .json, .jsonl or .parquet with'
            " columns question, answer and optionally context and options)"
        ),
    )
    passages: int = Field(
        default=1,
        ge=1,
        description=(
            "passages of the corpus, found by word search, for each question of a file without"
            " contexts"
        ),
    )
    temperature: float | None = Field(  # type: ignore[assignment]
        default=None,
        ge=0,
        description="sampling temperature of answers to held-out questions; null: as in training",
    )


@dataclass(frozen=True)
class QuestionSet:
    """Questions to train on or to hold out: tasks, their contexts, and the sentences that answers
    should quote."""

    name: str
    tasks: Table
    contexts: Table
    evidence: Tables = ()

    @property
    def has_evidence(self) -> bool:
        """Whether the sentences that answer a question are known for any of the questions."""
        return any(table.num_rows for table in as_tables(self.evidence))

    @classmethod
    def of_run(
        cls,
        run: Run[Any],
        name: str,
        task_types: Collection[str],
    ) -> QuestionSet:
        """The held-out questions that a run's configuration names: those of its built-in world or
        of a file.

        Raises ValueError if there is no such file.
        """
        cfg = run.cfg.evaluation
        place = run.place.iteration(0).phase("benchmark")
        world = run.world
        if world is not None and name == world.benchmark:
            return cls.of_world(place, world, seed=cfg.seed, num_tasks=cfg.num_tasks)
        label = None
        if name != cfg.benchmark:
            label = Path(name).stem  # another file besides that of `benchmark`
        documents = None
        if Path(name).is_file() and not has_contexts(name):
            documents = documents_of_run(run, place)
        return cls.open(
            place,
            name,
            task_types,
            label=label,
            documents=documents,
            num_passages=cfg.passages,
        )

    @classmethod
    def of_world(
        cls,
        place: Place,
        world: World,
        *,
        seed: int,
        num_tasks: int,
        with_evidence: bool = True,
    ) -> QuestionSet:
        """The questions of a built-in world that has contexts, with its evidence if
        `with_evidence`."""
        assert world.tasks is not None, "a world of questions"
        assert world.contexts is not None, "a world of questions about contexts"
        evidence: Tables = ()
        if with_evidence and world.evidence is not None:
            evidence = world.evidence(place, seed=seed, num_tasks=num_tasks)
        tasks = world.tasks(place, seed=seed, num_tasks=num_tasks)
        contexts = world.contexts(place, seed=seed, num_tasks=num_tasks)
        return cls(world.benchmark, tasks, contexts, evidence)

    @classmethod
    def open(
        cls,
        place: Place,
        path: str,
        task_types: Collection[str],
        *,
        label: str | None = None,
        documents: Table | None = None,
        num_passages: int = 1,
        needs_answers: bool = True,
    ) -> QuestionSet:
        """The questions of a file.

        If the file has no contexts, a question's context is the `num_passages` documents that a
        search for its words finds in `documents`, which must have an index. Raises ValueError if
        there is no such file, if it lacks something that is needed, and as `read_benchmark` does.
        """
        if not Path(path).is_file():
            raise ValueError(
                f"there is no file {path}: give a file of questions ({', '.join(ROW_FILES)}), or a"
                " built-in world"
            )
        identity = corpus_identity(path)
        tasks = read_benchmark(
            place,
            path,
            task_types=sorted(task_types),
            identity=identity,
            needs_answers=needs_answers,
            label=label,
        )
        if has_contexts(path):
            contexts = read_contexts(place, path, identity=identity, label=label)
        elif documents is None:
            raise ValueError(
                f"{path} has no column context, and there are no documents to search for one"
            )
        else:
            contexts = found_contexts(place, tasks, documents, k=num_passages, label=label)
        evidence = read_evidence(place, path, identity=identity, label=label)
        return cls(Path(path).stem, tasks, contexts, evidence)


@stage(TASKS)
def read_benchmark(
    path: str, *, task_types: Collection[str], identity: str, needs_answers: bool = True
) -> Rows:
    """Yield the tasks of a file of questions, whose columns are recognised by their names.

    The columns are question, answer or answers (a list of all right answers), context, options (a
    list, for multiple choice), task_type (by default multiple_choice with options, else general_qa)
    and id (by default the file's name and the row's number). Raises ValueError naming the first row
    that has no question or, if answers are needed, no answer, or whose type is not in `task_types`.
    """
    for question in _questions(path, needs_answers=needs_answers):
        if question.task_type not in task_types:
            raise ValueError(f"{question.place} has no task_type of {', '.join(task_types)}")
        answers = question.item["references"]
        # an answer without a word, such as a dash, would be found in any reply
        answers = [answer for answer in answers if words_of(answer)] or answers
        yield {
            "task_id": question.task_id,
            "document_id": question.task_id,
            "task_type": question.task_type,
            "reference": next(iter(answers), None),
            "accepted": answers if len(answers) > 1 else None,
            "text": question.item["text"],
            "options": question.item["options"],
        }


def has_contexts(path: str) -> bool:
    """Whether a file of questions has a column of contexts."""
    return bool(columns_of(Path(path)).context)


@stage(DOCUMENTS)
def read_contexts(path: str, *, identity: str) -> Rows:
    """Yield the context of each question in a file as a document with the question's task id.

    `identity` changes with the file (`corpus_identity`), so that a changed file is read again.
    Raises ValueError for a row without a context.
    """
    for question in _questions(path):
        text = question.item["context"]
        if text is None:
            raise ValueError(f"{question.place} has no context")
        yield {
            "document_id": question.task_id,
            "text": text,
            "source": path,
            "num_chars": len(text),
        }


@stage(ANSWERS)
def read_second_answers(path: str, *, identity: str) -> Rows:
    """Yield the second answers to the questions of a file: every `second_answer` that it has."""
    for question in _questions(path):
        second_answer = question.row.get("second_answer")
        if second_answer is not None:
            yield {
                "rollout_id": f"{question.task_id}-second",
                "prompt_id": question.task_id,
                "task_id": question.task_id,
                "answer": str(second_answer),
            }


@stage(RUBRICS)
def read_evidence(path: str, *, identity: str) -> Rows:
    """Yield the sentences that answer each question of a file: its list `evidence`, if any."""
    for question in _questions(path):
        yield from evidence_rows(question.task_id, question.row.get("evidence") or ())


@dataclass(frozen=True)
class _Question:
    """A row of a file of questions, in raw form and as an item of a benchmark."""

    place: str  # for messages
    task_id: str
    row: Row
    item: Row

    @property
    def task_type(self) -> str:
        if self.row.get("task_type"):
            return self.row["task_type"]
        return "multiple_choice" if self.item["options"] else "general_qa"


def _questions(path: str, *, needs_answers: bool = False) -> Iterator[_Question]:
    """The questions of a file, in order. The second one with an id `x` gets `x#2`, and so on.

    Raises ValueError for a question that lacks something that is needed.
    """
    columns = columns_of(Path(path))
    if needs_answers and not columns.answers:
        raise ValueError(f"{path} has no column answer, which says what is right")
    num_of_id = Counter[str]()
    taken = set[str]()
    for number, row in enumerate(read_rows(Path(path)), start=1):
        place = f"{path}, row {number}"
        present = columns
        if not needs_answers and not parts(row, columns.answers):
            present = columns.model_copy(update={"answers": ()})
        try:
            [item] = items_of([row], Path(path).stem, present)
        except ValueError as problem:
            raise ValueError(f"{place}: {problem}") from problem
        own = fields(row, columns.id) if columns.id else []
        task_id = str(own[0]) if own else f"{Path(path).stem}-{number}"
        num_of_id[task_id] += 1
        if num_of_id[task_id] > 1:
            task_id = f"{task_id}#{num_of_id[task_id]}"
        while task_id in taken:
            task_id += "#"
        taken.add(task_id)
        yield _Question(place, task_id, row, item)


# ---- answers to them ----


def answers_to_judge(answers: list[Answer], tasks: list[Task]) -> Iterator[Row]:
    """Yield what a judge sees of each readable answer: the question, its options, the answer, the
    reference and all accepted answers. The judge sees no document.

    For multiple choice, the accepted answers are letters with their options.
    """
    task_of = {task["task_id"]: task for task in tasks}
    for row in answers:
        if row["answer"] is not None:
            task = task_of[row["task_id"]]
            yield {
                "task_id": task["task_id"],
                "task_type": task["task_type"],
                "rollout_id": row["rollout_id"],
                "question": task["text"],
                "options": lettered(task["options"]),
                "answer": row["answer"],
                "reference": task["reference"],
                "references": [with_option(ref, task["options"]) for ref in accepted(task)],
            }


def measure(
    tasks: list[Task],
    answers: list[Answer],
    matches: list[Match],
    judged: list[Vote],
    *,
    passes: tuple[int, ...],
) -> Iterator[tuple[str, float]]:
    """Yield metrics of answers. `score` is pass@1, the mean over a task's answers; an answer that
    is missing or cannot be compared is wrong.

    Multiple choice is scored by the letter alone; answers of other types are right if the rule or
    the judge accepts them. Replies that were never sampled are left out of every score; if there
    are any, `not_sampled` is their share.
    """
    right_of = accepted_rollouts(matches, judged)
    answers_of = rows_by("task_id", answers)
    lacks_some = len(sampled(answers)) < len(answers)
    for task in tasks:
        asked_for = answers_of[task["task_id"]]
        answer_N = sampled(asked_for)
        if lacks_some:
            yield "not_sampled", 1 - len(answer_N) / len(asked_for)
        if not answer_N:
            continue
        right_ids = right_of(task)
        num_answers = len(answer_N)
        num_right = sum(row["rollout_id"] in right_ids for row in answer_N)
        yield "score", num_right / num_answers
        yield f"score_{task['task_type']}", num_right / num_answers
        if task["difficulty"]:
            yield f"score_{task['difficulty'] - 1}_hops", num_right / num_answers
        for k in passes:
            if k <= num_answers:
                yield f"pass_at_{k}", pass_at(k, num_answers, num_right)
        yield "unanswered", sum(row["answer"] is None for row in answer_N) / num_answers
        if task["task_type"] == "general_qa":
            yield "exact_match", fmean([exact(task, row["answer"]) for row in answer_N])
            yield "f1", fmean([best_overlap(task, row["answer"]) for row in answer_N])


def accepted_rollouts(matches: list[Match], judged: list[Vote]) -> Callable[[Task], set[str]]:
    """A function from a task to the ids of the rollouts whose answers count as right for its type:
    by the rule or a judge or, for multiple choice, by the rule alone."""
    by_rule = {row["rollout_id"] for row in matches if row["matched"]}
    by_either = by_rule | {row["rollout_id"] for row in judged if row["vote"]}

    def right_of(task: Task) -> set[str]:
        if task["task_type"] == "multiple_choice":
            return by_rule
        return by_either

    return right_of
