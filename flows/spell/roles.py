"""SPELL's roles: what each is asked about which rows, and how its reply is read.

One policy plays the questioner, the responder and the verifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from corpus_prep.read.titles import shown_title
from flows.benchmarks.item_prompts import benchmark_template
from flows.blocks.long_context import answers_to_judge
from flows.run import Role, templates
from flows.settings.profile import home
from flows.settings.prompts import is_read_by_lines, prompt_folder
from flows.spell import readers
from flows.spell.config import TASK_TYPES, Baseline, Config, Dialogues
from tasks.ask import readable
from tasks.clusters import members_of
from tasks.models.engine import Sampling
from tasks.prompt import Row, Template
from tasks.read import Reader, reads
from tasks.readers import lines
from tasks.readers.letters import lettered
from tasks.readers.verdicts import yes_or_no
from tasks.rollouts.dialogue import Dialogue
from tasks.rollouts.tokens import count_tokens, cut_middle
from tasks.stage import rows_by
from warehouse.schemas import (
    ANSWERS,
    TASKS,
    VOTES,
    Document,
    Match,
    Membership,
    Memory,
    Sample,
    Task,
)

MARKUP = 32  # tokens of a chat template around one message


class Roles:
    """The roles of one configuration.

    In an ablation, the judge replaces the rule. The examiner judges held-out answers.
    """

    def __init__(self, cfg: Config) -> None:
        dialogues = cfg.dialogues
        in_lines = cfg.reads_lines
        template = templates(cfg, dialogues.prompts)
        document = template("document")
        dialogue = dialogues.one_reply.model_copy(update={"prompt_tokens": dialogues.input_tokens})
        no_limit = dialogue.model_copy(update={"prompt_tokens": None})
        read_answer = readers.read_answer
        read_vote = readers.read_vote
        if in_lines:
            read_answer = lines.read_answer
            read_vote = lines.read_vote
        # held-out questions may be of types that are not trained
        responder_types = cfg.task_types if in_lines else TASK_TYPES
        self._model = cfg.models.base
        self.questioner = self._questioner(cfg, cfg.asking or dialogues)
        self.responder = Role(
            "responder",
            templates=tuple(template(f"responder_{task_type}") for task_type in responder_types),
            variables=partial(respond, document=document),
            sampling=dialogues.sampling,
            into=ANSWERS,
            read=reads(
                "answer",
                partial(readers.read_short, read=read_answer, most_words=dialogues.answer_words),
                partial(readers.measure_reply, model=self._model),
                whole=False,
            ),
            dialogue=dialogue,
        )
        self.closed_book = replace(
            self.responder, variables=partial(guess, empty=template("empty").render())
        )
        vote_tokens = cfg.verifier.response_tokens or dialogues.response_tokens
        self.verifier = Role(
            "verifier",
            templates=(template("verifier"),),
            variables=answers_to_judge,  # l.17
            sampling=dialogues.sampling.model_copy(update={"max_tokens": vote_tokens}),
            into=VOTES,
            read=reads("vote", read_vote, whole=False),
            dialogue=dialogue,
        )
        self.judge = replace(
            self.verifier,
            name="judge",
            sampling=Sampling(
                temperature=0,
                max_tokens=dialogues.response_tokens,
                form=cfg.form_of("judge", lines.VOTE_FORM),
            ),
            dialogue=no_limit,
            on_judge_engine=True,
        )
        self.examiner = replace(
            self.judge,
            name="examiner",
            templates=(benchmark_template("english", "present"),),
            sampling=Sampling(temperature=0, max_tokens=cfg.evaluation.judge_tokens),
            read=reads("vote", yes_or_no),
            dialogue=Dialogue(),
        )

    def _questioner(self, cfg: Config, dialogues: Dialogues) -> Role:
        """The questioner, asked as `dialogues` says.

        Unless these say otherwise, a reference may be as long as the responder's answers.
        """
        folder = prompt_folder(home(type(cfg)), dialogues.prompts)
        template = templates(cfg, dialogues.prompts)
        return Role(
            "questioner",
            templates=(
                *(template(f"questioner_{task_type}") for task_type in cfg.task_types),
                *(template(f"questioner_{task_type}_again") for task_type in cfg.task_types),
            ),
            variables=partial(propose, document=template("document")),
            sampling=dialogues.sampling.model_copy(
                update={"form": cfg.form_of("questioner", lines.PAIR_FORM)}
            ),
            into=TASKS,
            read=Reader(
                partial(
                    readers.read_questioner,
                    model=self._model,
                    most_words=dialogues.answer_words or cfg.dialogues.answer_words,
                    in_lines=is_read_by_lines(folder),
                )
            ),
            dialogue=dialogues.one_reply.model_copy(
                update={"prompt_tokens": dialogues.input_tokens}
            ),
            on_judge_engine=cfg.models.questioner is not None,
        )

    def held_out_responder(
        self, cfg: Config, input_tokens: int, baseline: Baseline | None = None
    ) -> Role:
        """The responder on held-out tasks, with prompts of at most `input_tokens`.

        A `baseline` has its own prompts.
        """
        prompts = self.responder.templates
        sampling = self.responder.sampling
        # contexts are truncated to fit, so no prompt is refused for its length
        dialogue = self.responder.dialogue.model_copy(update={"prompt_tokens": None})
        if baseline is not None:
            template = templates(cfg, baseline.prompts)
            prompts = tuple(template(f"responder_{task_type}") for task_type in cfg.task_types)
            dialogue = dialogue.model_copy(update={"chat_template": baseline.chat_template})
        if cfg.evaluation.temperature is not None:
            sampling = sampling.model_copy(update={"temperature": cfg.evaluation.temperature})
        return replace(
            self.responder,
            templates=prompts,
            variables=partial(
                respond_held_out, templates=prompts, model=self._model, limit=input_tokens
            ),
            dialogue=dialogue,
            sampling=sampling,
        )


# ---- what they are asked ----


def propose(
    samples: list[Sample],
    documents: list[Document],
    memory: Iterable[Memory] = (),
    *,
    document: Template,
) -> Iterator[Row]:
    """Questioner, l.9: the sample's new documents, the remembered pairs of its cluster and task
    type, and the documents of these pairs.

    Documents are in corpus order.
    """
    memory_of = rows_by("cluster", memory)
    for sample in samples:
        task_type = sample["task_type"]
        remembered = [row for row in memory_of[sample["cluster"]] if row["task_type"] == task_type]
        ids = set(sample["document_ids"] or ())
        for row in remembered:
            ids.update(row["document_ids"])
        template = f"questioner_{task_type}"
        if remembered:
            template += "_again"
        yield {
            "sample_id": sample["sample_id"],
            "document_id": sample["document_id"],
            "task_type": task_type,
            "template": template,
            "context": show(document, [row for row in documents if row["document_id"] in ids]),
            "pairs": [{"question": row["text"], "answer": row["reference"]} for row in remembered],
        }


def guess(tasks: list[Task], *, empty: str) -> Iterator[Row]:
    """Grounding filter, l.11: the question without a document. `empty` stands for the context."""
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
    """Responder, l.15: the question, and all documents of its cluster.

    Documents that the questioner did not see are distractors. Questions that were answered rightly
    without documents are left out.
    """
    ungrounded = {match["task_id"] for match in closed_book if match["matched"]}
    cluster_of: dict[str | None, int] = {row["document_id"]: row["cluster"] for row in memberships}
    members = members_of(memberships)
    documents_by_id = {row["document_id"]: row for row in documents}
    for task in readable(tasks):
        if task["task_id"] in ungrounded:
            continue
        ids = members[cluster_of[task["document_id"]]]
        shown = [documents_by_id[i] for i in ids if i in documents_by_id]
        yield {**question_of(task), "context": show(document, shown)}


def respond_held_out(
    tasks: list[Task],
    contexts: list[Document],
    *,
    templates: tuple[Template, ...],
    model: str,
    limit: int,
) -> Iterator[Row]:
    """The responder on held-out tasks.

    The middle of a context is cut out to keep the prompt, with chat markup, to about `limit` tokens
    of `model`.
    """
    text_of: dict[str | None, str] = {row["document_id"]: row["text"] for row in contexts}
    template_of = {template.name: template for template in templates}
    for task in tasks:
        question = question_of(task)
        without_context = template_of[question["template"]].render(**question, context="")
        room = limit - count_tokens(without_context, model) - MARKUP
        context = cut_middle(text_of[task["document_id"]], model, max(1, room))
        yield {**question, "context": context}


def question_of(task: Task) -> Row:
    """A task's ids and the parts that a responder may see, never the reference."""
    return {
        "task_id": task["task_id"],
        "task_type": task["task_type"],
        "template": f"responder_{task['task_type']}",
        "question": task["text"],
        "options": lettered(task["options"]),
    }


def show(document: Template, documents: list[Document]) -> str:
    """The documents as one context.

    They are neutralised a second time when the prompt is rendered, which is harmless.
    """
    shown = (
        document.render(title=shown_title(row["title"], row["text"]), text=row["text"])
        for row in documents
    )
    return "".join(shown).strip()
