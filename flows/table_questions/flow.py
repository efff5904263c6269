"""Questions about the tables and prose of long articles, with answers and evidence.

They are for methods that learn from given questions: EAPO's second source ("Wikipedia-based Mixed
QA", appendix A of its paper).

A question is kept if it quotes evidence verbatim from every part that was shown, and if the model
gives the writer's answer with the parts but not without them. A dropped question stores the first
reason why it failed.

Departures
- [our reading] The paper names no filter; these are the usual ones for model-written questions.
- Contexts are articles with their tables as Markdown, so that a quote from a part is also a quote
  from the context.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from flows.blocks.corpora import open_documents
from flows.method import method
from flows.run import Role, Run, templates
from flows.table_questions.config import Config
from flows.table_questions.grounded import check_evidence, write_questions
from flows.table_questions.readers import (
    first_row,
    read_evidence,
    read_question,
    read_whole_question,
)
from tasks.ask import readable
from tasks.corpus.long_context import split_documents
from tasks.corpus.parts import draw_parts, join_parts, part_articles
from tasks.keep import Query, keep
from tasks.match import match
from tasks.prompt import Row
from tasks.read import Reader, read, reads
from tasks.readers.tags import last_element
from tasks.rollouts.tokens import count_tokens
from tasks.scorers.accepted import equal
from warehouse.schemas import ANSWERS, RUBRICS, TASKS, Document, PromptRow, Sample, Task
from warehouse.store import Place, Table

SOUND = Query.beside(__file__, "sound")


class Roles:
    """Who writes questions, who answers them with the parts, and who without."""

    def __init__(self, cfg: Config) -> None:
        dialogues = cfg.dialogues
        template = templates(cfg, dialogues.prompts)
        read_answer = reads("answer", partial(last_element, name="answer"))
        self.writer = Role(
            name="writer",
            templates=(template("write"),),
            variables=passages,
            sampling=dialogues.sampling,
            into=TASKS,
            read=Reader(read_question, whole=True),
            dialogue=dialogues.one_reply,
            ask_again=read_whole_question,
        )
        self.reader = Role(
            name="reader",
            templates=(template("answer"),),
            variables=with_parts,
            sampling=dialogues.sampling,
            into=ANSWERS,
            read=read_answer,
            dialogue=dialogues.one_reply,
        )
        self.guesser = Role(
            name="guesser",
            templates=(template("guess"),),
            variables=without_parts,
            sampling=dialogues.sampling,
            into=ANSWERS,
            read=read_answer,
            dialogue=dialogues.one_reply,
        )


@dataclass(frozen=True)
class Articles:
    """The parts of articles, the parts drawn for questions, and the articles reassembled from
    their parts."""

    parts: Table
    samples: Table
    whole: Table


@method(Config)
def table_questions(run: Run[Config]) -> Table:
    """Draw parts, request questions, check their evidence, answer each with and without the parts,
    and keep the sound ones."""
    cfg = run.cfg
    place = run.place
    roles = Roles(cfg)
    articles = open_articles(run, place)
    written = run.ask(
        place,
        roles.writer,
        run.model("writer"),
        samples=articles.samples,
        documents=articles.parts,
    )
    read_quotes = Reader(read_evidence, first_row, whole=True)
    evidence = read(RUBRICS)(place, written.rollouts, written.prompts, reader=read_quotes)
    checks = check_evidence(
        place, written.rows, evidence, written.prompts, articles.samples, articles.parts
    )
    readings = run.ask(
        place,
        roles.reader,
        run.model("checker"),
        group_size=cfg.answers,
        label="reader",
        tasks=written.rows,
        prompts=written.prompts,
        samples=articles.samples,
        documents=articles.parts,
    )
    guesses = run.ask(
        place,
        roles.guesser,
        run.model("checker"),
        group_size=cfg.answers,
        label="guesser",
        tasks=written.rows,
    )
    chosen = keep(
        place,
        SOUND,
        tasks=written.rows,
        gates=checks,
        seen=compare(run, place, readings.rows, written.rows, label="reader"),
        unseen=compare(run, place, guesses.rows, written.rows, label="guesser"),
    )
    return write_questions(place, written.rows, evidence, articles.whole, chosen, label="kept")


def open_articles(run: Run[Config], place: Place) -> Articles:
    """Split the articles of the corpus into parts, and draw the parts of every question."""
    cfg = run.cfg
    documents = open_documents(place, cfg.corpus)
    count = partial(count_tokens, model=cfg.tokenizer or cfg.models.base)
    segments = split_documents(place, documents, splitting=cfg.splitting, count=count)
    parts = part_articles(place, segments, label="parts")
    samples = draw_parts(place, parts, task_types=cfg.task_types, count=cfg.count, seed=cfg.seed)
    whole = join_parts(place, parts, label="joined")
    return Articles(parts, samples, whole)


def compare(run: Run[Config], place: Place, answers: Table, tasks: Table, *, label: str) -> Table:
    """Compare every answer with the writer's."""
    return match(
        place,
        answers,
        tasks,
        compare=equal,
        time_limit_s=run.cfg.match.time_limit_s,
        num_workers=run.cfg.match.processes,
        label=label,
    )


# ---- what is asked ----


def passages(samples: list[Sample], documents: list[Document]) -> Iterator[Row]:
    """Yield, for each question, the parts drawn for it, in the order of their article."""
    text_of = {row["document_id"]: row["text"] for row in documents}
    for row in samples:
        yield {
            "sample_id": row["sample_id"],
            "document_id": row["document_id"],
            "task_type": row["task_type"],
            "kind": row["task_type"],
            "parts": [text_of[document_id] for document_id in row["document_ids"] or []],
        }


def with_parts(
    tasks: list[Task], prompts: list[PromptRow], samples: list[Sample], documents: list[Document]
) -> Iterator[Row]:
    """Yield every readable question with the parts that it was written about, never its answer."""
    parts_of = {row["sample_id"]: row["parts"] for row in passages(samples, documents)}
    sample_of = {row["prompt_id"]: row["sample_id"] for row in prompts}
    for task in readable(tasks):
        sample_id = sample_of[task["prompt_id"] or ""] or ""
        yield {
            "task_id": task["task_id"],
            "task_type": task["task_type"],
            "question": task["text"],
            "parts": parts_of[sample_id],
        }


def without_parts(tasks: list[Task]) -> Iterator[Row]:
    """Yield every readable question alone."""
    for task in readable(tasks):
        yield {"task_id": task["task_id"], "task_type": task["task_type"], "question": task["text"]}
