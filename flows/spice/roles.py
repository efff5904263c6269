"""SPICE's roles: what each is asked about which rows, and how its reply is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from flows.blocks.questions import readers as answer_readers
from flows.run import Role, templates
from flows.spice import readers
from flows.spice.config import Config
from flows.spice.readers import FREE_FORM, MULTIPLE_CHOICE
from tasks.ask import readable_tasks
from tasks.read import Reader, answer_length, reads
from tasks.rollouts.tokens import cut_tokens
from warehouse.schemas import (
    ANSWERS,
    CHOICES,
    TASKS,
    Choice,
    Document,
    Row,
    Sample,
    Selection,
    Task,
)

R = TypeVar("R", bound=Mapping[str, Any])


class Roles:
    """The roles of one configuration. The Challenger speaks twice: it chooses, then it asks."""

    def __init__(self, cfg: Config) -> None:
        formats = list[str](cfg.challenger.formats)
        answer_types = list[str](cfg.challenger.answer_types)
        dialogues = cfg.dialogues
        template = templates(cfg, dialogues.prompts)
        show = partial(
            segment,
            model=cfg.models.base,
            limit=dialogues.document_tokens,
            grounded=cfg.challenger.grounded,
        )
        if cfg.reads_lines:
            choice_template = template(FREE_FORM)  # never used: with one type, there is no choice
            question_templates = (template(FREE_FORM),)
            read_task = readers.read_line
        else:
            choice_template = template("choose")
            question_templates = (template(MULTIPLE_CHOICE), template(FREE_FORM))
            read_task = readers.read_task
        _, read_result = answer_readers(cfg.reads_lines)

        self.chooser = Role(
            name="choice",
            templates=(choice_template,),
            variables=partial(choose, show=show, formats=formats, answer_types=answer_types),
            sampling=dialogues.sampling.model_copy(update={"max_tokens": dialogues.choice_tokens}),
            into=CHOICES,
            read=reads(
                "task_type",
                partial(readers.read_choice, formats=formats, answer_types=answer_types),
            ),
            dialogue=dialogues.one_reply,
            player="challenger",
            system=dialogues.system,
            on_judge_engine=cfg.models.challenger is not None,
        )
        self.challenger = Role(
            name="question",
            templates=question_templates,
            variables=partial(challenge, show=show),
            sampling=dialogues.sampling,
            into=TASKS,
            read=Reader(read_task, whole=True),
            dialogue=dialogues.one_reply,
            player="challenger",
            system=dialogues.system,
            on_judge_engine=cfg.models.challenger is not None,
        )
        self.reasoner = Role(
            name="reasoner",
            templates=(template("reasoner"),),
            variables=reason,
            sampling=dialogues.sampling,
            into=ANSWERS,
            read=reads(
                "answer",
                read_result,
                partial(answer_length, read=read_result, model=cfg.models.base),
            ),
            dialogue=dialogues.one_reply,
            system=dialogues.system,
        )


# ---- what they are asked ----


def choose(
    samples: list[Sample],
    documents: list[Document],
    tasks: list[Task],
    *,
    show: Callable[[Document], str],
    formats: Sequence[str],
    answer_types: Sequence[str],
) -> Iterator[Row]:
    """Challenger, l.6, first call: each document that has no valid question yet."""
    document_of: dict[str | None, Document] = {row["document_id"]: row for row in documents}
    for sample in without_question(samples, tasks):
        yield {
            "document_id": sample["document_id"],
            "document": show(document_of[sample["document_id"]]),
            "formats": formats,
            "answer_types": answer_types,
        }


def challenge(
    choices: list[Choice | Sample],
    documents: list[Document],
    tasks: list[Task],
    *,
    show: Callable[[Document], str],
) -> Iterator[Row]:
    """Challenger, l.6, second call: for every choice, the document again and the task type."""
    document_of: dict[str | None, Document] = {row["document_id"]: row for row in documents}
    for choice in without_question(choices, tasks):
        task_type = choice["task_type"]
        if task_type is None:  # the choice could not be read
            continue
        template = FREE_FORM
        if task_type == MULTIPLE_CHOICE:
            template = MULTIPLE_CHOICE
        yield {
            "template": template,
            "document_id": choice["document_id"],
            "task_type": task_type,
            "answer_type": task_type,
            "document": show(document_of[choice["document_id"]]),
        }


def reason(tasks: list[Task], left_out: Iterable[Selection] = ()) -> Iterator[Row]:
    """Reasoner, l.9 and l.17: only the question and its options; no document, no reference."""
    absent = {row["task_id"] for row in left_out}
    return readable_tasks(task for task in tasks if task["task_id"] not in absent)


def without_question(rows: Iterable[R], tasks: Iterable[Mapping[str, Any]]) -> list[R]:
    """The `rows` whose document has no valid question among `tasks`."""
    have_one = {task["document_id"] for task in tasks if task["text"] is not None}
    return [row for row in rows if row["document_id"] not in have_one]


def segment(document: Document, *, model: str, limit: int, grounded: bool) -> str:
    """The first `limit` tokens of a document, as `model` counts them. Empty if not `grounded`: the
    ablation without documents."""
    if not grounded:
        return ""
    return cut_tokens(document["text"], model, limit)
