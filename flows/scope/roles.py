"""SCOPE's roles: what each is asked about which rows, with which limits, and how its reply is
read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from flows.run import Role, templates
from flows.scope import readers
from flows.scope.config import Config
from flows.scope.judge_settings import JudgeSettings
from flows.scope.rewards import passing
from flows.scope.rubrics import criteria_of
from tasks.ask import readable, readable_tasks
from tasks.models.engine import Sampling
from tasks.prompt import Row, Template
from tasks.read import Reader, of_reply, reads
from tasks.readers.lines import VOTE_FORM, read_vote
from tasks.rollouts.rollout import Dialogue
from tasks.rollouts.search_syntax import EXAMPLES, Syntax, stop_strings
from tasks.rollouts.tokens import cut_tokens
from warehouse.schemas import (
    ANSWERS,
    GATES,
    JUDGMENTS,
    RUBRICS,
    TASKS,
    Answer,
    Criterion,
    Document,
    Gate,
    Sample,
    Task,
)


class Roles:
    """The roles of one configuration."""

    def __init__(self, cfg: Config) -> None:
        d = cfg.dialogues
        base = cfg.models.base
        self._cfg = cfg
        self._in_lines = cfg.reads_lines
        self._syntax: Syntax = cfg.search_syntax
        self.template = templates(cfg, d.prompts)
        read_task = readers.read_task
        read_answer = readers.read_answer
        self.read_verdict = readers.read_verdict
        if self._in_lines:
            read_task = readers.read_task_line
            read_answer = readers.read_answer_line
            self.read_verdict = read_vote
        hints = {"search_example": EXAMPLES[self._syntax], "max_searches": d.solver_turns - 1}
        self.challenger = Role(
            "challenger",
            templates=(self.template("challenger"),),
            variables=partial(propose, model=base, limit=d.source_tokens),
            sampling=self._turns("task", cfg.challenger.temperature),
            into=TASKS,
            read=reads("text", read_task, partial(readers.measure_task, in_lines=self._in_lines)),
            dialogue=self._searching(
                "challenger", "task", d.challenger_turns, d.challenger_prompt_tokens
            ),
            values=hints,
        )
        self.solver = Role(
            "solver",
            templates=(self.template("solver"),),
            variables=tasks_with_rubric,
            sampling=self._turns("answer", cfg.solver.temperature),
            into=ANSWERS,
            read=reads(
                "answer",
                read_answer,
                partial(readers.measure_answer, model=base, in_lines=self._in_lines),
            ),
            dialogue=self._searching("solver", "answer", d.solver_turns, d.solver_prompt_tokens),
            values=hints,
        )
        # outside training, a Solver that does not answer is told to
        insisting = self.solver.dialogue.model_copy(update={"insist_times": d.insist_times})
        self.screener = replace(self.solver, dialogue=insisting)  # l.23
        self.estimator = replace(  # l.10
            self.screener,
            sampling=self._turns(
                "answer", cfg.challenger.difficulty_temperature, cfg.challenger.difficulty_top_p
            ),
        )
        self.evaluated = replace(
            self.screener, sampling=self._turns("answer", cfg.evaluation.temperature)
        )
        self._judge(cfg)

    def _judge(self, cfg: Config) -> None:
        """The frozen Judge's roles: gates, the writer of rubrics, the grader."""
        judge = cfg.judge
        base = cfg.models.base
        dialogue = Dialogue(
            max_turns=1,
            reasoning=cfg.dialogues.reasoning,
            chat_template=cfg.dialogues.chat_template,
            template_arguments=cfg.dialogues.template_arguments,
        )
        role = partial(Role, player="judge", on_judge_engine=True, dialogue=dialogue)
        temperature = judge.screens_at(cfg.dialogues.reasoning)
        self.gates = role(
            "gate",
            templates=tuple(self.template(f"gate_{gate}") for gate in judge.applied_gates),
            variables=partial(
                examine, model=base, limit=cfg.dialogues.source_tokens, gates=judge.applied_gates
            ),
            sampling=Sampling(
                temperature=temperature,
                max_tokens=judge.gate_tokens,
                form=cfg.form_of("gate", VOTE_FORM),
            ),
            into=GATES,
            read=reads(
                "passed",
                partial(readers.passes, read=self.read_verdict),
                readers.measure_gate,
                whole=False,
            ),
        )
        self.rubric_writer = role(
            "rubric",
            templates=(self.template("rubrics"),),
            variables=partial(
                write_rubric,
                evidence=self.template("evidence"),
                model=base,
                limit=judge.evidence_document_tokens,
            ),
            sampling=Sampling(
                temperature=temperature,
                max_tokens=judge.rubric_tokens,
                stop=("\n\n",) if self._in_lines else (),
                form=cfg.form_of("rubric", rubric_form(judge)),
            ),
            into=RUBRICS,
            read=Reader(
                partial(
                    readers.rubric_rows,
                    weights=judge.priority_weights,
                    min_criteria=judge.min_criteria,
                    max_criteria=judge.max_criteria,
                    in_lines=self._in_lines,
                ),
                readers.measure_rubric,
            ),
        )
        self.grader = role(
            "grade",
            templates=(self.template("grade"),),
            variables=partial(
                show_answers_to_grader,
                model=base,
                seen=judge.graded_answer_tokens,
                graded=judge.ungraded_answer_tokens,
            ),
            sampling=Sampling(
                temperature=judge.grading_temperature,
                max_tokens=judge.grading_tokens,
                form=cfg.form_of("grade", VOTE_FORM),
            ),
            into=JUDGMENTS,
            read=reads("verdict", self.read_verdict, whole=False),
            ask_again=of_reply(self.read_verdict),
        )

    def _turns(self, tag: str, temperature: float, top_p: float = 1.0) -> Sampling:
        d = self._cfg.dialogues
        stop = stop_strings(self._syntax)
        if not self._in_lines:
            stop = (*stop, f"</{tag}>")
        return Sampling(
            temperature=temperature, top_p=top_p, max_tokens=d.response_tokens, stop=stop
        )

    def _searching(self, role: str, final: str, max_turns: int, prompt_tokens: int) -> Dialogue:
        d = self._cfg.dialogues
        return Dialogue(
            search=self._syntax,
            final=final,
            max_turns=max_turns,
            results=self.template("results").text,
            searched=self.template(f"{role}_searched").text,
            searched_out=self.template(f"{role}_searched_out").text,
            format_error=self.template("format_error").text,
            insist=self.template("answer_now").text,
            prompt_tokens=prompt_tokens,
            documents_per_query=d.documents_per_query,
            result_tokens=d.result_tokens,
            reasoning=d.reasoning,
            context_tokens=d.context_tokens,
            chat_template=d.chat_template,
            template_arguments=d.template_arguments,
        )


def rubric_form(judge: JudgeSettings) -> str:
    """A regular expression for a rubric: one criterion per line, as many as a rubric may have. The
    prompt begins the first one."""
    line = r"[^\n]{8,160}\n"
    return f" {line}(- {line}){{{judge.min_criteria - 1},{judge.max_criteria - 1}}}\n"


# ---- what they are asked ----


def propose(
    samples: list[Sample], documents: list[Document], *, model: str, limit: int
) -> Iterator[Row]:
    """Challenger, Algorithm 1 l.7: a source document, a task type and a number of search turns."""
    cut = cut_documents(documents, model, limit)
    for sample in samples:
        yield {
            "document_id": sample["document_id"],
            "task_type": sample["task_type"],
            "search_turns": sample["search_turns"],
            **cut[sample["document_id"]],
        }


def examine(
    tasks: list[Task], documents: list[Document], *, model: str, limit: int, gates: tuple[str, ...]
) -> Iterator[Row]:
    """Quality gates, l.8: each gate sees the task; the source gate also sees the document."""
    cut = cut_documents(documents, model, limit)
    for task in readable(tasks):
        for gate in gates:
            yield {
                "template": f"gate_{gate}",
                "task_id": task["task_id"],
                "task": task["text"],
                **cut[task["document_id"]],
            }


def write_rubric(
    tasks: list[Task],
    documents: list[Document],
    gates: Iterable[Gate] = (),
    *,
    evidence: Template,
    model: str,
    limit: int,
) -> Iterator[Row]:
    """Rubric writer, l.9: every task that passed the gates, with every document behind it."""
    cut = cut_documents(documents, model, limit)
    passed = passing(tasks, gates)
    for task in readable(tasks):
        if task["task_id"] in passed:
            shown = [cut[i] for i in task["evidence"] or [] if i in cut]
            yield {
                "task_id": task["task_id"],
                "task_type": task["task_type"],
                "task": task["text"],
                "documents": evidence.render(documents=shown),
            }


def tasks_with_rubric(tasks: list[Task], rubrics: list[Criterion]) -> Iterator[Row]:
    """Solver, l.10: only the text of each task that has a rubric; no document, no criterion."""
    with_rubric = criteria_of(rubrics)
    return readable_tasks(task for task in tasks if task["task_id"] in with_rubric)


def show_answers_to_grader(
    answers: list[Answer],
    rubrics: list[Criterion],
    tasks: list[Task],
    *,
    model: str,
    seen: int,
    graded: int,
) -> Iterator[Row]:
    """Grader, l.11: one criterion, and the first `seen` tokens of one answer.
    Answers of more than `graded` tokens are not graded."""
    criteria = criteria_of(rubrics)
    text = {t["task_id"]: t["text"] for t in tasks}
    for answer in answers:
        has_format = (answer["format"] or {}).get("total", 0) > 0
        if answer["answer"] is None or not has_format or (answer["answer_tokens"] or 0) > graded:
            continue
        for criterion in criteria[answer["task_id"]]:
            yield {
                "task_id": answer["task_id"],
                "rollout_id": answer["rollout_id"],
                "criterion_id": criterion["criterion_id"],
                "task": text[answer["task_id"]],
                "answer": cut_tokens(answer["answer"], model, seen),
                "criterion": criterion["criterion"],
            }


# ---- shared rows ----


def cut_documents(documents: list[Document], model: str, limit: int) -> dict[str | None, Row]:
    """Each document's title and its first `limit` tokens, by document id, under the names that
    templates use."""
    return {
        d["document_id"]: {
            "title": d["title"] or "",
            "document": cut_tokens(d["text"], model, limit),
        }
        for d in documents
    }
