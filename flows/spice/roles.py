"""SPICE's roles: what each is asked, about which rows, and how its reply is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from flows.questions import readers as answer_readers
from flows.run import Role, templates
from flows.spice import readers
from flows.spice.config import Config
from flows.spice.readers import FREE_FORM, MULTIPLE_CHOICE
from tasks.ask import readable_tasks
from tasks.read import Reader, answer_length, reads
from tasks.rollouts.tokens import cut_tokens
from warehouse.schemas import ANSWERS, CHOICES, TASKS, Choice, Document, Row, Sample, Selection, Task

R = TypeVar("R", bound=Mapping[str, Any])


class Roles:
    """The roles of one configuration. The Challenger speaks twice: it chooses, then it asks."""

    def __init__(self, cfg: Config) -> None:
        c, d, base = cfg.challenger, cfg.dialogues, cfg.models.base
        allowed = {"formats": list(c.formats), "answer_types": list(c.answer_types)}
        template, role = templates(cfg, d.prompts), partial(Role, dialogue=d.one_reply, system=d.system)
        show = partial(segment, model=base, limit=d.document_tokens, grounded=c.grounded)
        challenger = partial(role, player="challenger", judge=cfg.models.challenger is not None)
        in_lines, result = d.prompts == "lines", answer_readers(d.prompts)[1]
        self.chooser = challenger(
            "choice",
            (template(FREE_FORM if in_lines else "choose"),),  # lines ask one type: nobody chooses
            partial(choose, show=show, **allowed),
            d.sampling.model_copy(update={"max_tokens": d.choice_tokens}),
            CHOICES,
            reads("task_type", partial(readers.read_choice, **allowed)),
        )
        self.challenger = challenger(
            "question",
            tuple(map(template, (FREE_FORM,) if in_lines else (MULTIPLE_CHOICE, FREE_FORM))),
            partial(challenge, show=show),
            d.sampling,
            TASKS,
            Reader(readers.read_line if in_lines else readers.read_asked, whole=True),
        )
        self.reasoner = role(
            "reasoner",
            (template("reasoner"),),
            reason,
            d.sampling,
            ANSWERS,
            reads("answer", result, partial(answer_length, read=result, model=base)),
        )


# ---- what they are asked ------------------------------------------------------------------------------------------


def choose(
    samples: list[Sample],
    documents: list[Document],
    tasks: list[Task],
    *,
    show: Callable[[Document], str],
    formats: list[str],
    answer_types: list[str],
) -> Iterator[Row]:
    """Challenger, l.6, first call: a document that has no valid question yet."""
    by_id: dict[str | None, Document] = {d["document_id"]: d for d in documents}
    for sample in without_question(samples, tasks):
        document = show(by_id[sample["document_id"]])
        about = {"document_id": sample["document_id"], "document": document}
        yield {**about, "formats": formats, "answer_types": answer_types}


def challenge(
    choices: list[Choice | Sample], documents: list[Document], tasks: list[Task], *, show: Callable[[Document], str]
) -> Iterator[Row]:
    """Challenger, l.6, second call: the document again, and the chosen type of task, once for every choice."""
    by_id: dict[str | None, Document] = {d["document_id"]: d for d in documents}
    for choice in without_question(choices, tasks):
        if choice["task_type"] is not None:
            yield {
                "template": MULTIPLE_CHOICE if choice["task_type"] == MULTIPLE_CHOICE else FREE_FORM,
                "document_id": choice["document_id"],
                "task_type": choice["task_type"],
                "answer_type": choice["task_type"],
                "document": show(by_id[choice["document_id"]]),
            }


def reason(tasks: list[Task], left_out: Iterable[Selection] = ()) -> Iterator[Row]:
    """Reasoner, l.9 and l.17: only the question and its options; no document, no reference."""
    absent = {row["task_id"] for row in left_out}
    return readable_tasks(task for task in tasks if task["task_id"] not in absent)


def without_question(rows: Iterable[R], tasks: Iterable[Mapping[str, Any]]) -> list[R]:
    """Those of `rows` whose document has no valid question among `tasks`."""
    asked = {task["document_id"] for task in tasks if task["text"] is not None}
    return [row for row in rows if row["document_id"] not in asked]


def segment(document: Document, *, model: str, limit: int, grounded: bool) -> str:
    """The first tokens of a document; nothing in the ablation without documents."""
    return cut_tokens(document["text"], model, limit) if grounded else ""
