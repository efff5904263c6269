"""Inference by trees of evidence, by direct answers, and from known evidence (EAPO's paper, section 2.2).

Breadth first: the answer is given from the best of `breadth` different sets of quotes. SSA takes the set most similar
to the question, LLM-E the set that a model marks highest; in LLM-R the model also marks several steps of reasoning from
that set. "direct" sees the whole context and asks for the answer alone; "oracle" sees the known evidence in place of
the context. An answer from quotes sees nothing else: [our reading] of "conclusions based exclusively on the evidence".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from flows.evidence import Outcome, outcomes
from flows.long_context import QuestionSet
from flows.run import Replies, Role, Run, templates
from tasks.compare import read_scores
from tasks.engines.base import Policy
from tasks.evaluate import evaluate
from tasks.prompt import Row
from tasks.read import Reader, reads
from tasks.readers.quotes import verbatim
from tasks.readers.tags import last_element
from tasks.stage import rows_by
from tasks.tree import Mode, Trees, extend, rate, rate_by_similarity, sprout
from warehouse.schemas import Answer, Criterion, Match, Node, Task, Vote
from warehouse.store import Place, Table


@dataclass(frozen=True)
class TreeExam:
    """The roles that answer and compare evidence, and the check whether an answer is right."""

    run: Run[Any]
    settings: Trees
    benchmark: QuestionSet
    answering: Role
    comparing: Role
    outcome: Outcome

    def take(self, place: Place, answers: Table, policy: Policy, judge: Policy) -> None:
        """Score every mode. Trees begin with `answers`, which quote, to the benchmark's questions."""
        for mode in self.settings.modes:
            if mode == "direct":
                self._score(place, mode, policy, self._directly(place, policy))
            elif mode == "oracle":
                self._score(place, mode, policy, self._from_known(place, policy))
            else:
                self._grow(place, mode, answers, policy, judge)

    def _directly(self, place: Place, policy: Policy) -> Replies:
        read = reads("answer", partial(last_element, name="answer"))
        role = replace(self.answering, templates=(self._template("direct"),), read=read)
        shown: dict[str, Any] = {"tasks": self.benchmark.tasks, "contexts": self.benchmark.contexts}
        return self.run.ask(place, role, policy, n=self.settings.breadth, label="direct", **shown)

    def _from_known(self, place: Place, policy: Policy) -> Replies:
        role = replace(self.answering, templates=(self._template("grounded"),), about=from_known)
        shown: dict[str, Any] = {"tasks": self.benchmark.tasks, "evidence": self.benchmark.evidence}
        return self.run.ask(place, role, policy, n=self.settings.breadth, label="oracle", **shown)

    def _grow(self, place: Place, mode: Mode, answers: Table, policy: Policy, judge: Policy) -> None:
        tasks, breadth = self.benchmark.tasks, self.settings.breadth
        nodes = sprout(place, answers, breadth=breadth, label="quotes")
        if mode == "ssa":
            nodes = rate_by_similarity(place, nodes, tasks, embedding=self.settings.embedding, label="ssa-quotes")
        else:
            nodes = self._judged(place, replace(self.comparing, about=sets), judge, nodes, "llm-e-quotes")
        role = replace(self.answering, templates=(self._template("grounded"),), about=from_best)
        n = breadth if mode == "llm-r" else 1
        replies = self.run.ask(place, role, policy, n=n, label=mode, nodes=nodes, tasks=tasks)
        steps = extend(place, nodes, replies.rows, replies.rollouts, element="reasoning", label=f"{mode}-steps")
        if mode == "llm-r":
            read = Reader(partial(read_scores, highest=self.settings.highest_step), whole=True)
            given = {"templates": (self._template("steps"),), "about": next_steps, "read": read, "ask_again": read}
            steps = self._judged(place, replace(self.comparing, **given), judge, steps, "llm-r-rated", quotes=nodes)
        self._score(place, mode, policy, replies, (nodes, steps))

    def _judged(self, place: Place, role: Role, judge: Policy, nodes: Table, label: str, **shown: Any) -> Table:
        asked = {"nodes": nodes, "tasks": self.benchmark.tasks, **shown}
        return rate(place, nodes, self.run.ask(place, role, judge, label=label, **asked).rows, label=label)

    def _score(
        self, place: Place, mode: Mode, policy: Policy, replies: Replies, nodes: tuple[Table, ...] | None = None
    ) -> None:
        tasks, known = self.benchmark.tasks, self.benchmark.evidence
        about = {"tasks": tasks, "answers": replies.rows, **self.outcome(place, replies.rows, tasks, label=mode)}
        told = {"policy": policy.id, "benchmark": f"{self.benchmark.name}, {mode}", "label": mode}
        if nodes is None:
            evaluate(place, measure_all, **about, **told)
        else:
            evaluate(place, measure_best, **about, nodes=nodes, evidence=known, **told)

    def _template(self, name: str) -> Any:
        return templates(self.run.cfg, self.run.cfg.dialogues.prompts)(name)


# ---- what is asked --------------------------------------------------------------------------------------------------


def from_best(nodes: list[Node], tasks: list[Task]) -> Iterator[Row]:
    """Every question with the best set of quotes in place of its context."""
    best = {row["task_id"]: row for row in nodes if row["best"]}
    for task in tasks:
        if node := best.get(task["task_id"]):
            yield {**_ids(task), "rollout_id": node["node_id"], "context": node["text"], "question": task["text"]}


def from_known(tasks: list[Task], evidence: list[Criterion]) -> Iterator[Row]:
    """Every question with the known evidence in place of its context."""
    known = rows_by("task_id", evidence)
    for task in tasks:
        context = "\n".join(row["criterion"] or "" for row in known[task["task_id"]])
        yield {**_ids(task), "context": context, "question": task["text"]}


def _ids(task: Task) -> Row:
    return {"task_id": task["task_id"], "task_type": task["task_type"]}


def sets(nodes: list[Node], tasks: list[Task]) -> Iterator[Row]:
    """All sets of quotes of a task, without its context."""
    text_of = {task["task_id"]: task["text"] for task in tasks}
    for task_id, group in rows_by("task_id", nodes).items():
        shown = [row["text"].splitlines() for row in group]
        yield {"task_id": task_id, "rollout_ids": _names(group), "question": text_of[task_id], "sets": shown}


def next_steps(nodes: list[Node], tasks: list[Task], quotes: list[Node]) -> Iterator[Row]:
    """All steps of reasoning from a set of quotes, together with these quotes."""
    text_of, known = {task["task_id"]: task["text"] for task in tasks}, {row["node_id"]: row["text"] for row in quotes}
    for task_id, group in rows_by("task_id", nodes).items():
        about = {"evidence": known[group[0]["parent"] or ""].splitlines(), "steps": [row["text"] for row in group]}
        yield {"task_id": task_id, "rollout_ids": _names(group), "question": text_of[task_id], **about}


def _names(group: list[Node]) -> list[str]:
    return [row["node_id"] for row in group]


# ---- what is measured -----------------------------------------------------------------------------------------------


def measure_all(
    tasks: list[Task], answers: list[Answer], matches: list[Match], votes: list[Vote]
) -> Iterator[tuple[str, float]]:
    """`score` is the share of right answers."""
    right, answers_of = outcomes(answers, matches, votes), rows_by("task_id", answers)
    for task in tasks:
        for row in answers_of[task["task_id"]]:
            yield "score", float(right[row["rollout_id"]] or 0)
            yield "unanswered", float(row["answer"] is None)


def measure_best(
    tasks: list[Task],
    answers: list[Answer],
    matches: list[Match],
    votes: list[Vote],
    nodes: list[Node],
    evidence: list[Criterion],
) -> Iterator[tuple[str, float]]:
    """`score` is the share of tasks whose best path ends in a right answer, `evidence_recall` the share of the known
    sentences that the best set of quotes holds in full. A task without a path has neither."""
    right, known = outcomes(answers, matches, votes), rows_by("task_id", evidence)
    best = {(row["task_id"], row["depth"]): row for row in nodes if row["best"]}
    for task in tasks:
        quotes, step = (best.get((task["task_id"], depth)) for depth in (1, 2))
        yield "score", float(step is not None and right[step["node_id"]] is True)
        yield "unanswered", float(step is None)
        if quotes and (sentences := [row["criterion"] or "" for row in known[task["task_id"]]]):
            yield "evidence_recall", verbatim(sentences, quotes["text"])
