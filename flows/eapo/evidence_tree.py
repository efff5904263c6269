"""Inference by trees of evidence, by direct answers, and from known evidence (section 2.2).

The search is breadth first: the answer is given from the best of `breadth` different sets of
quotes. SSA takes the set most similar to the question, and LLM-E the set that a model marks
highest; in LLM-R the model also marks several steps of reasoning from that set. "direct" shows the
whole context and asks only for the answer; "oracle" shows the known evidence in place of the
context. An answer from quotes sees nothing else: [our reading] of "conclusions based exclusively on
the evidence".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from flows.blocks.long_context import QuestionSet
from flows.eapo.compare import read_scores
from flows.eapo.evidence import AnswerChecker, answer_correctness
from flows.eapo.tree import Mode, Trees, extend, rate, rate_by_similarity, sprout
from flows.run import Replies, Role, Run, templates
from tasks.evaluate import evaluate
from tasks.models.engine import Policy
from tasks.monitors.monitor import Measured
from tasks.prompt import Row, Template
from tasks.read import Reader, reads, sampled
from tasks.readers.letters import lettered
from tasks.readers.quotes import verbatim
from tasks.readers.tags import last_element
from tasks.stage import rows_by
from warehouse.schemas import Answer, Criterion, Match, Node, Task, Vote
from warehouse.store import Place, Table


@dataclass(frozen=True)
class TreeEvaluation:
    """Scores every mode of the settings on the questions of a benchmark.

    `answering` is the role that answers, `comparing` the one that marks sets of evidence; some
    modes change their prompts.
    """

    run: Run[Any]
    settings: Trees
    benchmark: QuestionSet
    answering: Role
    comparing: Role
    checker: AnswerChecker

    def score_modes(self, place: Place, answers: Table, policy: Policy, judge: Policy) -> None:
        """Score every mode. Trees start from `answers`, which answer the benchmark's questions with
        quotes.

        `policy` answers; `judge` marks quotes and steps.
        """
        for mode in self.settings.modes:
            if mode == "direct":
                replies = self._answer_directly(place, policy)
                self._score_replies(place, mode, policy, replies)
            elif mode == "oracle":
                replies = self._answer_from_known(place, policy)
                self._score_replies(place, mode, policy, replies)
            else:
                self._score_tree(place, mode, answers, policy, judge)

    def _answer_directly(self, place: Place, policy: Policy) -> Replies:
        role = replace(
            self.answering,
            templates=(self._template("direct"),),
            read=reads("answer", partial(last_element, name="answer")),
        )
        return self.run.ask(
            place,
            role,
            policy,
            group_size=self.settings.breadth,
            label="direct",
            tasks=self.benchmark.tasks,
            contexts=self.benchmark.contexts,
        )

    def _answer_from_known(self, place: Place, policy: Policy) -> Replies:
        grounded = self._template("grounded")
        role = replace(self.answering, templates=(grounded,), variables=from_known)
        return self.run.ask(
            place,
            role,
            policy,
            group_size=self.settings.breadth,
            label="oracle",
            tasks=self.benchmark.tasks,
            evidence=self.benchmark.evidence,
        )

    def _score_tree(
        self, place: Place, mode: Mode, answers: Table, policy: Policy, judge: Policy
    ) -> None:
        tasks = self.benchmark.tasks
        quotes = sprout(place, answers, breadth=self.settings.breadth, label="quotes")
        if mode == "ssa":
            if self.settings.embedding or self.settings.reranker:
                self.run.machines.release_engines()  # the similarity model needs GPU memory as well
            quotes = rate_by_similarity(
                place,
                quotes,
                tasks,
                embedding=self.settings.embedding,
                reranker=self.settings.reranker,
                label="ssa-quotes",
            )
        else:
            quotes = self._mark_quotes(place, quotes, judge)

        # LLM-R chooses among several continuations of the best quotes; the other modes have one
        num_steps = 1
        if mode == "llm-r":
            num_steps = self.settings.breadth
        role = replace(self.answering, templates=(self._template("grounded"),), variables=from_best)
        replies = self.run.ask(
            place, role, policy, group_size=num_steps, label=mode, nodes=quotes, tasks=tasks
        )
        steps = extend(
            place,
            quotes,
            replies.rows,
            replies.rollouts,
            element="reasoning",
            label=f"{mode}-steps",
        )
        if mode == "llm-r":
            steps = self._mark_steps(place, steps, quotes, judge)
        self._score_paths(place, mode, policy, replies, quotes, steps)

    def _mark_quotes(self, place: Place, quotes: Table, judge: Policy) -> Table:
        label = "llm-e-quotes"
        role = replace(self.comparing, variables=sets)
        marks = self.run.ask(
            place, role, judge, label=label, nodes=quotes, tasks=self.benchmark.tasks
        ).rows
        return rate(place, quotes, marks, label=label)

    def _mark_steps(self, place: Place, steps: Table, quotes: Table, judge: Policy) -> Table:
        label = "llm-r-rated"
        read = Reader(partial(read_scores, highest=self.settings.highest_step), whole=True)
        role = replace(
            self.comparing,
            templates=(self._template("steps"),),
            variables=next_steps,
            read=read,
            ask_again=read.read,
        )
        marks = self.run.ask(
            place,
            role,
            judge,
            label=label,
            nodes=steps,
            tasks=self.benchmark.tasks,
            quotes=quotes,
        ).rows
        return rate(place, steps, marks, label=label)

    def _score_replies(self, place: Place, mode: Mode, policy: Policy, replies: Replies) -> None:
        """Score every answer."""
        checks = self.checker.check(place, replies.rows, self.benchmark.tasks, label=mode)
        evaluate(
            place,
            measure_all,
            policy=policy.id,
            benchmark=f"{self.benchmark.name}, {mode}",
            label=mode,
            tasks=self.benchmark.tasks,
            answers=replies.rows,
            matches=checks.matches,
            votes=checks.votes,
        )

    def _score_paths(
        self,
        place: Place,
        mode: Mode,
        policy: Policy,
        replies: Replies,
        quotes: Table,
        steps: Table,
    ) -> None:
        """Score the answer at the end of each task's best path."""
        checks = self.checker.check(place, replies.rows, self.benchmark.tasks, label=mode)
        evaluate(
            place,
            measure_best,
            policy=policy.id,
            benchmark=f"{self.benchmark.name}, {mode}",
            label=mode,
            tasks=self.benchmark.tasks,
            answers=replies.rows,
            matches=checks.matches,
            votes=checks.votes,
            nodes=(quotes, steps),
            evidence=self.benchmark.evidence,
        )

    def _template(self, name: str) -> Template:
        cfg = self.run.cfg
        return templates(cfg, cfg.dialogues.prompts)(name)


# ---- what is asked ----


def from_best(nodes: list[Node], tasks: list[Task]) -> Iterator[Row]:
    """Yield every question with its best set of quotes in place of its context."""
    best = {row["task_id"]: row for row in nodes if row["best"]}
    for task in tasks:
        node = best.get(task["task_id"])
        if node is not None:
            yield {
                "task_id": task["task_id"],
                "task_type": task["task_type"],
                "rollout_id": node["node_id"],
                "context": node["text"],
                "question": task["text"],
                "options": lettered(task["options"]),
            }


def from_known(tasks: list[Task], evidence: list[Criterion]) -> Iterator[Row]:
    """Yield every question with known evidence, with this evidence in place of its context."""
    evidence_of = rows_by("task_id", evidence)
    for task in tasks:
        sentences = [row["criterion"] or "" for row in evidence_of[task["task_id"]]]
        if sentences:
            yield {
                "task_id": task["task_id"],
                "task_type": task["task_type"],
                "context": "\n".join(sentences),
                "question": task["text"],
                "options": lettered(task["options"]),
            }


def sets(nodes: list[Node], tasks: list[Task]) -> Iterator[Row]:
    """Yield, for each task, all its sets of quotes, without the context."""
    text_of = {task["task_id"]: task["text"] for task in tasks}
    for task_id, group in rows_by("task_id", nodes).items():
        yield {
            "task_id": task_id,
            "rollout_ids": [row["node_id"] for row in group],
            "question": text_of[task_id],
            "sets": [row["text"].splitlines() for row in group],
        }


def next_steps(nodes: list[Node], tasks: list[Task], quotes: list[Node]) -> Iterator[Row]:
    """Yield, for each task, all steps of reasoning from a set of quotes, together with these
    quotes."""
    text_of = {task["task_id"]: task["text"] for task in tasks}
    quotes_of = {row["node_id"]: row["text"] for row in quotes}
    for task_id, group in rows_by("task_id", nodes).items():
        yield {
            "task_id": task_id,
            "rollout_ids": [row["node_id"] for row in group],
            "question": text_of[task_id],
            "evidence": quotes_of[group[0]["parent"] or ""].splitlines(),
            "steps": [row["text"] for row in group],
        }


# ---- what is measured ----


def measure_all(
    tasks: list[Task], answers: list[Answer], matches: list[Match], votes: list[Vote]
) -> Measured:
    """Yield, for every sampled answer, `score` (1 if it is right; 0 if it is wrong or that is
    unknown) and `unanswered` (1 if it could not be read, else 0)."""
    correct = answer_correctness(answers, matches, votes)
    answers_of = rows_by("task_id", answers)
    for task in tasks:
        for row in sampled(answers_of[task["task_id"]]):
            yield "score", float(correct[row["rollout_id"]] or 0)
            yield "unanswered", float(row["answer"] is None)


def measure_best(
    tasks: list[Task],
    answers: list[Answer],
    matches: list[Match],
    votes: list[Vote],
    nodes: list[Node],
    evidence: list[Criterion],
) -> Measured:
    """Yield metrics of best paths. `score` is the share of tasks whose best path ends in a right
    answer.

    `evidence_recall` is the share of the known sentences that the best set of quotes holds in full.
    A task without a path has a score of 0 and no recall. A task whose replies were never sampled
    has neither.
    """
    correct = answer_correctness(answers, matches, votes)
    evidence_of = rows_by("task_id", evidence)
    best = {(row["task_id"], row["depth"]): row for row in nodes if row["best"]}
    answers_of = rows_by("task_id", answers)
    for task in tasks:
        replies = answers_of[task["task_id"]]
        if replies and not sampled(replies):
            continue
        quotes = best.get((task["task_id"], 1))
        step = best.get((task["task_id"], 2))
        yield "score", float(step is not None and correct[step["node_id"]] is True)
        yield "unanswered", float(step is None)
        sentences = [row["criterion"] or "" for row in evidence_of[task["task_id"]]]
        if quotes is not None and sentences:
            yield "evidence_recall", verbatim(sentences, quotes["text"])
