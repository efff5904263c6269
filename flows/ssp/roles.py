"""Who is asked what: the Proposer for a question, the Checker for its answer from documents, the
Solver for its answer by searching. The policy plays all three roles."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from flows.run import Role, templates
from flows.ssp.config import Config
from flows.ssp.readers import answer_of, measure_answer, measure_question
from tasks.ask import readable_tasks
from tasks.models.engine import Sampling
from tasks.prompt import Template
from tasks.read import reads
from tasks.readers.lines import labelled
from tasks.readers.lines import read_answer as first_line
from tasks.readers.tags import last_element
from tasks.rollouts.dialogue import Dialogue
from tasks.rollouts.search_syntax import EXAMPLES, stop_strings
from tasks.rollouts.tokens import count_tokens, cut_tokens
from warehouse.schemas import ANSWERS, TASKS, Document, Gate, Row, Sample, Task


class Roles:
    """The roles of one configuration."""

    def __init__(self, cfg: Config) -> None:
        self._cfg = cfg
        self.template = templates(cfg, cfg.dialogues.prompts)
        read_question = partial(last_element, name="question")
        read_answer = partial(last_element, name="answer")
        read_checked = read_answer
        if cfg.reads_lines:
            read_question = partial(labelled, name="question")
            read_answer = partial(labelled, name="answer")
            read_checked = first_line
        example = EXAMPLES[cfg.search_syntax]
        self.proposer = Role(
            "proposer",
            templates=(self.template("proposer"),),
            variables=partial(give_answers, max_words=cfg.proposer.max_answer_words),
            sampling=self._sampling("question"),
            into=TASKS,
            read=reads("text", read_question, measure_question),
            dialogue=self._searching("proposer", "question", cfg.dialogues.proposer_turns),
            values={"search_example": example, "max_searches": cfg.dialogues.proposer_turns - 1},
        )
        self.solver = Role(
            "solver",
            templates=(self.template("solver"),),
            variables=readable_tasks,
            sampling=self._sampling("answer"),
            into=ANSWERS,
            read=reads("answer", read_answer, measure_answer),
            dialogue=self._searching("solver", "answer", cfg.dialogues.solver_turns),
            values={"search_example": example, "max_searches": cfg.dialogues.solver_turns - 1},
        )
        self.checker = Role(
            "checker",
            templates=(self.template("checker"),),
            variables=partial(
                show_documents,
                template=self.template("checker"),
                enabled=cfg.check.enabled,
                noise=cfg.check.noise,
                model=cfg.models.base,
                document_tokens=cfg.check.document_tokens,
                prompt_tokens=cfg.check.prompt_tokens,
                seed=cfg.seed,
            ),
            sampling=Sampling(
                temperature=cfg.check.temperature,
                max_tokens=cfg.check.response_tokens,
                stop=cfg.dialogues.stop,
            ),
            into=ANSWERS,
            read=reads("answer", read_checked),
            dialogue=cfg.dialogues.one_reply,
            on_judge_engine=cfg.models.checker is not None,
        )

    def _sampling(self, final: str) -> Sampling:
        """How a turn is sampled: it ends after a search, and after the element `final`."""
        stop = (*self._cfg.dialogues.stop, *stop_strings(self._cfg.search_syntax))
        if not self._cfg.reads_lines:
            stop = (*stop, f"</{final}>")
        return self._cfg.dialogues.sampling.model_copy(update={"stop": tuple(dict.fromkeys(stop))})

    def _searching(self, role: str, final: str, max_turns: int) -> Dialogue:
        """A conversation that searches, and ends with the element `final`."""
        dialogues = self._cfg.dialogues
        return Dialogue(
            search=self._cfg.search_syntax,
            final=final,
            max_turns=max_turns,
            results=self.template("results").text,
            searched=self.template("searched").text,
            searched_out=self.template(f"{role}_searched_out").text,
            format_error=self.template("format_error").text,
            documents_per_query=dialogues.documents_per_query,
            result_tokens=dialogues.result_tokens,
            reasoning=dialogues.reasoning,
            prompt_tokens=dialogues.prompt_tokens,
            context_tokens=dialogues.context_tokens,
            chat_template=dialogues.chat_template,
            template_arguments=dialogues.template_arguments,
        )


def give_answers(
    samples: list[Sample], documents: list[Document], *, max_words: int
) -> Iterator[Row]:
    """Yield a prompt for each sampled document whose title can be an answer: that answer, and how
    many searches a question about it should take. Nothing else of the document is shown."""
    title_of: dict[str | None, str | None] = {d["document_id"]: d["title"] for d in documents}
    for sample in samples:
        answer = answer_of(title_of[sample["document_id"]], max_words)
        if answer is not None:
            yield {
                "sample_id": sample["sample_id"],
                "document_id": sample["document_id"],
                "answer": answer,
                "hops": sample["search_turns"],
            }


def show_documents(
    tasks: list[Task],
    gates: list[Gate],
    documents: list[Document],
    *,
    template: Template,
    enabled: bool,
    noise: int,
    model: str,
    document_tokens: int,
    prompt_tokens: int,
    seed: int,
) -> Iterator[Row]:
    """Yield a prompt for each question that passed every rule; none unless the check is `enabled`.

    A prompt has the question, the documents that its Proposer found, and those found for `noise`
    other questions, in random order. Each document is truncated to `document_tokens`, as `model`
    counts them. If the prompt that `template` makes would exceed `prompt_tokens`, documents of
    other questions are left out; if it is still too long, the Proposer's own are truncated further.
    """
    if not enabled:
        return
    failed = {gate["task_id"] for gate in gates if not gate["passed"]}
    document_of = {d["document_id"]: d for d in documents}
    for task in tasks:
        if task["text"] is None or task["task_id"] in failed:
            continue
        rng = random.Random(f"{seed} {task['task_id']}")
        others = [other for other in tasks if other["task_id"] != task["task_id"]]
        own = task["evidence"] or []
        found = list(own)
        for other in rng.sample(others, min(noise, len(others))):
            found += other["evidence"] or []
        found = list(dict.fromkeys(found))
        rng.shuffle(found)
        shown = [
            Shown(
                title=document_of[document_id]["title"] or "",
                text=cut_tokens(document_of[document_id]["text"], model, document_tokens),
                is_own=document_id in own,
            )
            for document_id in found
        ]
        question = Question(template, task["text"], model)
        yield {
            "task_id": task["task_id"],
            "task": task["text"],
            "documents": [
                {"title": document.title, "text": document.text}
                for document in fitting(shown, question, prompt_tokens)
            ],
        }


@dataclass(frozen=True)
class Shown:
    """A document in a check: its title, its truncated text, and whether the question's own Proposer
    found it."""

    title: str
    text: str
    is_own: bool


@dataclass(frozen=True)
class Question:
    """A question as `template` asks it, and the model that counts tokens."""

    template: Template
    text: str
    model: str

    def num_tokens(self, *documents: Shown) -> int:
        """The tokens of the prompt with these documents, without those of a chat template."""
        shown = [{"title": document.title, "text": document.text} for document in documents]
        return count_tokens(self.template.render(task=self.text, documents=shown), self.model)


def fitting(documents: list[Shown], question: Question, prompt_tokens: int) -> list[Shown]:
    """The documents, in their order, that fit a prompt of about `prompt_tokens`.

    The Proposer's own documents take precedence; others are added while there is room. If the own
    documents alone have too many tokens, each text gets an equal share of the room.
    """
    alone = question.num_tokens()
    left = prompt_tokens - alone
    own = [document for document in documents if document.is_own]
    used = sum(question.num_tokens(document) - alone for document in own)
    if own and used > left:
        without_texts = [replace(document, text="") for document in own]
        titles = sum(question.num_tokens(document) - alone for document in without_texts)
        share = max(1, (left - titles) // len(own))
        return [
            replace(document, text=cut_tokens(document.text, question.model, share))
            for document in own
        ]
    left -= used
    kept = []
    for document in documents:
        added = 0 if document.is_own else question.num_tokens(document) - alone
        if added <= left:
            kept.append(document)
            left -= added
    return kept
