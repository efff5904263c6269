"""Questions about the tables and the prose of long articles, with answers and evidence, for methods that learn from
given questions: EAPO's second source ("Wikipedia-based Mixed QA", appendix A of its paper).

A question is kept if it quotes evidence word for word from every part that was shown, and if the model gives the
writer's answer with the parts and not without them. A dropped question stores the first reason it failed.

Departures
- [our reading] The paper names no filter; these are the usual ones of questions that a model writes.
- Contexts are articles with their tables as Markdown, so that quotes of the parts are quotes of the context.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from flows.corpora import open_documents
from flows.method import method
from flows.run import Replies, Role, Run, templates
from flows.tables.config import Config
from flows.tables.readers import first_row, read_evidence, read_question
from tasks.accepted import equal
from tasks.ask import readable
from tasks.corpus.long_context import split_documents
from tasks.corpus.parts import draw_parts, join_parts, part_articles
from tasks.grounded import check_evidence, write_questions
from tasks.keep import Query, keep
from tasks.match import match
from tasks.prompt import Row
from tasks.read import Reader, read, reads
from tasks.readers.tags import last_element
from tasks.rollouts.tokens import count_tokens
from warehouse.schemas import ANSWERS, RUBRICS, TASKS, Document, PromptRow, Sample, Task
from warehouse.store import Place, Table

SOUND = Query.beside(__file__, "sound")


class Roles:
    def __init__(self, cfg: Config) -> None:
        template, d = templates(cfg, cfg.dialogues.prompts), cfg.dialogues
        role = partial(Role, sampling=d.sampling, dialogue=d.one_reply)
        again = Reader(read_question, whole=True)
        self.writer = role("writer", (template("write"),), passages, into=TASKS, read=again, ask_again=again)
        answered = {"into": ANSWERS, "read": reads("answer", partial(last_element, name="answer"))}
        self.reader = role("reader", (template("answer"),), with_parts, **answered)
        self.guesser = role("guesser", (template("guess"),), without_parts, **answered)


@dataclass(frozen=True)
class Articles:
    """The parts of articles, the parts drawn for questions, and the articles reassembled from their parts."""

    parts: Table
    samples: Table
    whole: Table


@method(Config)
def table_questions(run: Run[Config]) -> Table:
    """Draw parts, request questions, check their evidence, answer each with and without the parts, keep the sound
    ones."""
    roles, place = Roles(run.cfg), run.place
    articles = open_articles(run, place)
    asked: dict[str, Any] = {"samples": articles.samples, "documents": articles.parts}
    written = run.ask(place, roles.writer, run.model("writer"), **asked)
    quotes = Reader(read_evidence, first_row, whole=True)
    evidence = read(RUBRICS)(place, written.rollouts, written.prompts, reader=quotes)
    checks = check_evidence(place, written.rows, evidence, written.prompts, articles.samples, articles.parts)
    compared = {
        name: answer(run, place, role, written, articles)
        for name, role in (("seen", roles.reader), ("unseen", roles.guesser))
    }
    chosen = keep(place, SOUND, tasks=written.rows, gates=checks, **compared)
    return write_questions(place, written.rows, evidence, articles.whole, chosen, label="kept")


def open_articles(run: Run[Config], place: Place) -> Articles:
    cfg = run.cfg
    documents = open_documents(place, cfg.corpus)
    count = partial(count_tokens, model=cfg.tokenizer or cfg.models.base)
    segments = split_documents(place, documents, splitting=cfg.splitting, count=count)
    parts = part_articles(place, segments, rules=cfg.tables, label="parts")
    samples = draw_parts(place, parts, task_types=cfg.task_types, count=cfg.count, seed=cfg.seed)
    return Articles(parts, samples, join_parts(place, parts, label="joined"))


def answer(run: Run[Config], place: Place, role: Role, written: Replies, articles: Articles) -> Table:
    """Answers to every question, each compared with the writer's."""
    shown = {"prompts": written.prompts, "samples": articles.samples, "documents": articles.parts}
    given: dict[str, Any] = {"tasks": written.rows, **(shown if role.name == "reader" else {})}
    said = run.ask(place, role, run.model("checker"), n=run.cfg.answers, label=role.name, **given)
    limits = {"time_limit_s": run.cfg.match.time_limit_s, "num_workers": run.cfg.match.processes}
    return match(place, said.rows, written.rows, compare=equal, label=role.name, **limits)


# ---- what is asked --------------------------------------------------------------------------------------------------


def passages(samples: list[Sample], documents: list[Document]) -> Iterator[Row]:
    """The parts drawn for a question, in the order of their article."""
    text_of = {row["document_id"]: row["text"] for row in documents}
    for row in samples:
        ids = {name: row[name] for name in ("sample_id", "document_id", "task_type")}
        yield {**ids, "kind": row["task_type"], "parts": [text_of[name] for name in row["document_ids"] or []]}


def with_parts(
    tasks: list[Task], prompts: list[PromptRow], samples: list[Sample], documents: list[Document]
) -> Iterator[Row]:
    """Every question with the parts that it was written about; never its answer."""
    parts_of = {row["sample_id"]: row["parts"] for row in passages(samples, documents)}
    sample_of = {row["prompt_id"]: row["sample_id"] for row in prompts}
    for task in readable(tasks):
        ids = {"task_id": task["task_id"], "task_type": task["task_type"]}
        yield {**ids, "question": task["text"], "parts": parts_of[sample_of[task["prompt_id"] or ""] or ""]}


def without_parts(tasks: list[Task]) -> Iterator[Row]:
    """Every question alone."""
    for task in readable(tasks):
        yield {"task_id": task["task_id"], "task_type": task["task_type"], "question": task["text"]}
