"""Who is asked what: the Proposer for a question, the Checker for its answer with documents, the
Solver for its answer with searches. The policy is all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from flows.run import Role, templates
from flows.ssp.config import Config
from flows.ssp.readers import answer_of, measure_answer, measure_question
from tasks.ask import readable_tasks
from tasks.models.engine import Sampling
from tasks.read import reads
from tasks.readers.lines import labelled
from tasks.readers.lines import read_answer as first_line
from tasks.readers.tags import last_element
from tasks.rollouts.dialogue import Dialogue
from tasks.rollouts.search_syntax import EXAMPLES, stop_strings
from tasks.rollouts.tokens import cut_tokens
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
                enabled=cfg.check.enabled,
                noise=cfg.check.noise,
                model=cfg.models.base,
                limit=cfg.check.document_tokens,
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
            judge=cfg.models.checker is not None,
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
        )


def give_answers(
    samples: list[Sample], documents: list[Document], *, max_words: int
) -> Iterator[Row]:
    """A prompt for each sampled document whose title can be an answer: that answer, and how many
    searches a question for it should take. Nothing else of the document is shown."""
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
    enabled: bool,
    noise: int,
    model: str,
    limit: int,
    seed: int,
) -> Iterator[Row]:
    """A prompt for each question that passed every rule: the question, the documents that its
    Proposer found, and those that `noise` other Proposers found, in random order. Of each document
    the first `limit` tokens, as `model` counts them. No prompt unless the check is `enabled`."""
    if not enabled:
        return
    failed = {gate["task_id"] for gate in gates if not gate["passed"]}
    document_of = {d["document_id"]: d for d in documents}
    for task in tasks:
        if task["text"] is None or task["task_id"] in failed:
            continue
        rng = random.Random(f"{seed} {task['task_id']}")
        others = [other for other in tasks if other["task_id"] != task["task_id"]]
        shown = list(task["evidence"] or [])
        for other in rng.sample(others, min(noise, len(others))):
            shown += other["evidence"] or []
        shown = list(dict.fromkeys(shown))
        rng.shuffle(shown)
        yield {
            "task_id": task["task_id"],
            "task": task["text"],
            "documents": [
                {
                    "title": document_of[document_id]["title"] or "",
                    "text": cut_tokens(document_of[document_id]["text"], model, limit),
                }
                for document_id in shown
            ],
        }
