"""SPELL's roles: what each is asked, about which rows, and how its reply is read. One policy plays them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from flows.benchmarks import asking
from flows.long_context import answers_to_judge
from flows.run import Role, templates
from flows.spell import readers
from flows.spell.config import TASK_TYPES, Baseline, Config
from tasks.ask import readable
from tasks.clusters import members_of
from tasks.engines.base import Sampling
from tasks.prompt import Row, Template
from tasks.read import Reader, reads
from tasks.readers import lines
from tasks.rollouts.tokens import count_tokens, cut_middle
from tasks.stage import rows_by
from warehouse.schemas import ANSWERS, TASKS, VOTES, Document, Match, Membership, Memory, Sample, Task

MARKUP = 32  # tokens of a chat template around one message


class Roles:
    """The roles of one configuration."""

    def __init__(self, cfg: Config) -> None:
        d, template, self._model = cfg.dialogues, templates(cfg, cfg.dialogues.prompts), cfg.models.base
        document, in_lines, most = template("document"), d.prompts == "lines", d.answer_words
        dialogue = d.one_reply.model_copy(update={"prompt_tokens": d.input_tokens})
        role = partial(Role, sampling=d.sampling, dialogue=dialogue)
        asked = partial(readers.read_questioner, model=self._model, most_words=most, in_lines=in_lines)
        stated = lines.read_answer if in_lines else readers.read_answer
        answered = partial(readers.read_short, read=stated, most_words=most)
        self.questioner = role(
            "questioner",
            tuple(template(f"questioner_{t}{which}") for which in ("", "_again") for t in cfg.task_types),
            partial(propose, document=document),
            into=TASKS,
            read=Reader(asked),
        )
        self.responder = role(
            "responder",
            tuple(template(f"responder_{t}") for t in (cfg.task_types if in_lines else TASK_TYPES)),  # held out: all
            partial(respond, document=document),
            into=ANSWERS,
            read=reads("answer", answered, partial(readers.measure_reply, model=self._model), whole=False),
        )
        self.closed_book = replace(self.responder, about=partial(guess, empty=template("empty").render()))
        self.verifier = role(
            "verifier",
            (template("verifier"),),
            answers_to_judge,  # l.17
            into=VOTES,
            read=reads("vote", lines.read_vote if in_lines else readers.read_vote, whole=False),
            sampling=d.sampling.model_copy(update={"max_tokens": cfg.verifier.response_tokens or d.response_tokens}),
        )
        self.judge = replace(
            self.verifier,
            name="judge",
            sampling=Sampling(temperature=0, max_tokens=d.response_tokens),
            dialogue=dialogue.model_copy(update={"prompt_tokens": None}),
            judge=True,
        )
        self.examiner = replace(
            self.judge,
            name="examiner",
            templates=(asking.templates("english", "judge"),),
            read=reads("vote", asking.verdict),
        )

    def examinee(self, cfg: Config, input_tokens: int, baseline: Baseline | None = None) -> Role:
        """The responder on held-out tasks, with prompts of at most `input_tokens`, and with those of a `baseline` if
        given."""
        whole = self.responder.dialogue.model_copy(update={"prompt_tokens": None})
        asked, sampling = self.responder.templates, self.responder.sampling
        if baseline is not None:
            asked = tuple(map(templates(cfg, baseline.prompts), (f"responder_{t}" for t in cfg.task_types)))
            whole = whole.model_copy(update={"chat_template": baseline.chat_template})
        cut = partial(examine, templates=asked, model=self._model, limit=input_tokens)
        if cfg.evaluation.temperature is not None:
            sampling = sampling.model_copy(update={"temperature": cfg.evaluation.temperature})
        return replace(self.responder, templates=asked, about=cut, dialogue=whole, sampling=sampling)


# ---- what they are asked ------------------------------------------------------------------------------------------


def propose(
    samples: list[Sample], documents: list[Document], memory: Iterable[Memory] = (), *, document: Template
) -> Iterator[Row]:
    """Questioner, l.9: remembered pairs, and their documents with the new ones, in the order of the corpus."""
    remembered = rows_by("cluster", memory)
    for sample in samples:
        pairs = [row for row in remembered[sample["cluster"]] if row["task_type"] == sample["task_type"]]
        shown = {*(sample["document_ids"] or ()), *(d for pair in pairs for d in pair["document_ids"])}
        yield {
            "sample_id": sample["sample_id"],
            "document_id": sample["document_id"],
            "task_type": sample["task_type"],
            "template": f"questioner_{sample['task_type']}" + ("_again" if pairs else ""),
            "context": show(document, [d for d in documents if d["document_id"] in shown]),
            "pairs": [{"question": pair["text"], "answer": pair["reference"]} for pair in pairs],
        }


def guess(tasks: list[Task], *, empty: str) -> Iterator[Row]:
    """Grounding filter, l.11: the question with no document. The context says that it is empty."""
    for task in readable(tasks):
        yield {**question_of(task), "context": empty}


def respond(
    tasks: list[Task],
    documents: list[Document],
    memberships: list[Membership],
    closed_book: Iterable[Match] = (),
    *,
    document: Template,
) -> Iterator[Row]:
    """Responder, l.15: all documents of the cluster; those that the questioner did not see are distractors.

    Questions that were answered without a document are not asked.
    """
    ungrounded = {match["task_id"] for match in closed_book if match["matched"]}
    cluster_of: dict[str | None, int] = {m["document_id"]: m["cluster"] for m in memberships}
    members, text_of = members_of(memberships), {d["document_id"]: d for d in documents}
    for task in readable(tasks):
        if task["task_id"] not in ungrounded:
            shown = [text_of[d] for d in members[cluster_of[task["document_id"]]] if d in text_of]
            yield {**question_of(task), "context": show(document, shown)}


def examine(
    tasks: list[Task], contexts: list[Document], *, templates: tuple[Template, ...], model: str, limit: int
) -> Iterator[Row]:
    """The responder on held-out tasks. The middle of a context is cut out so that the prompt, with chat markup, has at
    most about `limit` tokens."""
    text_of: dict[str | None, str] = {row["document_id"]: row["text"] for row in contexts}
    by_name = {template.name: template for template in templates}
    for task in tasks:
        about = question_of(task)
        rest = count_tokens(by_name[about["template"]].render(**about, context=""), model) + MARKUP
        yield {**about, "context": cut_middle(text_of[task["document_id"]], model, max(1, limit - rest))}


def question_of(task: Task) -> Row:
    """Ids and what a responder may see of a task: never its reference."""
    return {
        "task_id": task["task_id"],
        "task_type": task["task_type"],
        "template": f"responder_{task['task_type']}",
        "question": task["text"],
        "options": task["options"] or [],
    }


def show(document: Template, documents: list[Document]) -> str:
    """Documents as one context. They are neutralised again, harmlessly, when the prompt is rendered."""
    return "".join(document.render(title=d["title"] or "", text=d["text"]) for d in documents).strip()
