"""SCOPE's roles: what each is asked, about which rows, and how its reply is read. One place a role, template and
reader side by side."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flows.scope import readers
from flows.scope.config import ScopeConfig
from flows.scope.rewards import challenger_format, solver_format
from tasks.judge import canary_id
from tasks.prompt import Malformed, Prompt, Row, Template
from tasks.read import UNANSWERED, Reader
from tasks.rollouts.tokens import count_tokens, cut_tokens

PROMPTS = Path(__file__).parent / "prompts"
TASK_DESCRIPTIONS = {
    "long_form_qa": "one how, what or why question on a single topic, answered in flowing prose without sections",
    "summarisation": "condense or recast what sources say about something, adding nothing of one's own",
    "planning": "a plan with steps, a timeline or milestones",
    "writing": "a formal document with introduction, body and conclusion",
    "creative_writing": "a story, scene or poem built on facts",
}
SEARCH_EXAMPLES = {
    "tags": "<search>the words to look for</search>",
    "qwen": '<tool_call>\n{"name": "search", "arguments": {"query_list": ["the words to look for"]}}\n</tool_call>',
    "olmo": '<function_calls>search(query="the words to look for")</function_calls>',
}


@dataclass(frozen=True)
class Roles:
    """The prompts and readers of one configuration."""

    challenger: Prompt
    gates: Prompt
    rubric_writer: Prompt
    solver: Prompt
    grader: Prompt
    canary: Prompt
    read_task: Reader
    read_gate: Reader
    read_rubric: Reader
    read_answer: Reader
    templates: Callable[[str], Template]


def make_roles(cfg: ScopeConfig) -> Roles:
    template = functools.partial(Template.load, PROMPTS / cfg.dialogues.prompts)
    base, judge = cfg.models.base, cfg.judge
    gates = tuple(template(f"gate_{gate}") for gate in judge.applied_gates)
    source = functools.partial(_cut_document, model=base, limit=cfg.dialogues.source_tokens)
    evidence = functools.partial(_cut_document, model=base, limit=judge.evidence_document_tokens)
    see = functools.partial(cut_tokens, model=base, limit=judge.graded_answer_tokens)
    graded = functools.partial(_gradable, limit=judge.ungraded_answer_tokens)
    return Roles(
        challenger=Prompt("challenger", (template("challenger"),), functools.partial(propose, source)),
        gates=Prompt("judge", gates, functools.partial(examine, source, judge.applied_gates)),
        rubric_writer=Prompt(
            "judge", (template("rubrics"),), functools.partial(mark_scheme, template("evidence"), evidence)
        ),
        solver=Prompt("solver", (template("solver"),), solve),
        grader=Prompt("judge", (template("grade"),), functools.partial(grade, see, graded)),
        canary=Prompt("judge", (template("grade"),), functools.partial(canaries, judge.canaries)),
        read_task=Reader(about_task, read_task),
        read_gate=Reader(about_gate, read_gate),
        read_rubric=Reader(
            about_rubric,
            functools.partial(
                read_rubric,
                min_criteria=judge.min_criteria,
                max_criteria=judge.max_criteria,
                weights=judge.priority_weights,
            ),
        ),
        read_answer=Reader(functools.partial(about_answer, model=base), read_answer),
        templates=template,
    )


# ---- what they are asked ------------------------------------------------------------------------------------------


def propose(source: Callable[[Row], Row], samples: list[Row], documents: list[Row]) -> Iterator[Row]:
    """Challenger, algorithm 1 l.7: a source document, a task type, a number of search turns."""
    by_id = {d["document_id"]: d for d in documents}
    for sample in samples:
        document = source(by_id[sample["document_id"]])
        yield {
            "document_id": sample["document_id"],
            "task_type": sample["task_type"],
            "search_turns": sample["search_turns"],
            "task_description": TASK_DESCRIPTIONS[sample["task_type"]],
            "title": document["title"],
            "document": document["text"],
        }


def examine(
    source: Callable[[Row], Row], gates: tuple[str, ...], tasks: list[Row], documents: list[Row]
) -> Iterator[Row]:
    """Quality gates, l.8: each gate sees the task, that of sources also the document."""
    by_id = {d["document_id"]: d for d in documents}
    for task in readable(tasks):
        document = source(by_id[task["document_id"]])
        for gate in gates:
            shown = {"task": task["text"], "title": document["title"], "document": document["text"]}
            yield {"template": f"gate_{gate}", "task_id": task["task_id"], **shown}


def mark_scheme(
    evidence: Template, cut: Callable[[Row], Row], tasks: list[Row], documents: list[Row], *gates: list[Row]
) -> Iterator[Row]:
    """Rubric writer, l.9: the task and every document behind it."""
    by_id = {d["document_id"]: d for d in documents}
    passed = passing(tasks, *gates)
    for task in readable(tasks):
        if task["task_id"] in passed:
            shown = [cut(by_id[i]) for i in task["evidence"] if i in by_id]
            yield {
                "task_id": task["task_id"],
                "task_type": task["task_type"],
                "task": task["text"],
                "documents": evidence.render(documents=shown),
            }


def solve(tasks: list[Row], rubrics: list[Row]) -> Iterator[Row]:
    """Solver, l.10 and l.30: the task alone. Only ids of the row and its text go in: no document, no criterion."""
    marked = {r["task_id"] for r in rubrics if r["criterion"] is not None}
    for task in readable(tasks):
        if task["task_id"] in marked:
            yield {"task_id": task["task_id"], "task_type": task["task_type"], "task": task["text"]}


def solve_kept(selections: list[Row], tasks: list[Row], *, first: int, count: int) -> Iterator[Row]:
    """Solver, l.29: `count` of the kept tasks, in the order of their selection."""
    by_id = {task["task_id"]: task for task in tasks}
    for selection in [s for s in selections if s["kept"]][first : first + count]:
        task = by_id[selection["task_id"]]
        yield {"task_id": task["task_id"], "task_type": task["task_type"], "task": task["text"]}


def grade(
    see: Callable[[str], str], gradable: Callable[[Row], bool], answers: list[Row], rubrics: list[Row], tasks: list[Row]
) -> Iterator[Row]:
    """Grader, l.11: one answer, one criterion."""
    criteria, text = criteria_of(rubrics), {t["task_id"]: t["text"] for t in tasks}
    for answer in filter(gradable, answers):
        for criterion in criteria[answer["task_id"]]:
            yield {
                "task_id": answer["task_id"],
                "rollout_id": answer["rollout_id"],
                "criterion_id": criterion["criterion_id"],
                "task": text[answer["task_id"]],
                "answer": see(answer["answer"]),
                "criterion": criterion["criterion"],
            }


def canaries(count: int, rubrics: list[Row], tasks: list[Row]) -> Iterator[Row]:
    """Answers of known verdict, made of the criteria themselves: all stated must pass, one left out must fail it."""
    text = {t["task_id"]: t["text"] for t in tasks}
    made = 0
    for task_id, criteria in criteria_of(rubrics).items():
        for left_out in criteria:
            for expected in (1, 0):
                if made == count:
                    return
                stated = [c for c in criteria if expected or c is not left_out]
                yield {
                    "task_id": task_id,
                    "rollout_id": canary_id(expected, left_out["criterion_id"]),
                    "criterion_id": left_out["criterion_id"],
                    "task": text[task_id],
                    "answer": " ".join(_statement(c["criterion"]) for c in stated),
                    "criterion": left_out["criterion"],
                }
                made += 1


# ---- how their replies are read -----------------------------------------------------------------------------------


def about_task(rollout: Row, prompt: Row) -> Row:
    turns = rollout["turns"] or []
    retrieved = [i for turn in turns for result in turn["results"] or [] for i in result["document_ids"]]
    try:
        has_task = bool(readers.read_task(rollout["reply"] or ""))
    except Malformed:
        has_task = False
    texts, searched = [t["text"] for t in turns], [t["valid_search"] for t in turns]
    return {
        "task_id": rollout["rollout_id"],
        "rollout_id": rollout["rollout_id"],
        "prompt_id": prompt["prompt_id"],
        "document_id": prompt["document_id"],
        "task_type": prompt["task_type"],
        "search_turns": prompt["search_turns"],
        "evidence": list(dict.fromkeys([prompt["document_id"], *retrieved])),
        "format": challenger_format(texts, searched, prompt["search_turns"], has_task),
    }


def read_task(rollout: Row, prompt: Row) -> Row:
    if rollout["finish_reason"] != "final":
        raise Malformed(UNANSWERED[rollout["finish_reason"]])
    return {"text": readers.read_task(rollout["reply"])}


def about_gate(rollout: Row, prompt: Row) -> Row:
    gate = prompt["template"].removeprefix("gate_")
    return {"task_id": prompt["task_id"], "gate": gate, "kind": "model", "judge_rollout_id": rollout["rollout_id"]}


def read_gate(rollout: Row, prompt: Row) -> Row:
    return {"passed": bool(readers.read_verdict(rollout["reply"]))}


def about_rubric(rollout: Row, prompt: Row) -> Row:
    task_id = prompt["task_id"]
    return {"task_id": task_id, "criterion_id": task_id, "position": 0, "judge_rollout_id": rollout["rollout_id"]}


def read_rubric(
    rollout: Row, prompt: Row, *, min_criteria: int, max_criteria: int, weights: dict[str, float]
) -> list[Row]:
    found = readers.read_rubric(rollout["reply"], min_criteria, max_criteria, weights)
    return [{**row, "criterion_id": f"{prompt['task_id']}-{row['position']}"} for row in found]


def about_answer(rollout: Row, prompt: Row, *, model: str) -> Row:
    turns = rollout["turns"] or []
    try:
        answer = readers.last_pair(rollout["reply"] or "", "answer")
    except Malformed:
        answer = ""
    texts, searched = [t["text"] for t in turns], [t["valid_search"] for t in turns]
    return {
        "rollout_id": rollout["rollout_id"],
        "prompt_id": prompt["prompt_id"],
        "task_id": prompt["task_id"],
        "answer_tokens": count_tokens(answer, model),
        "format": solver_format(texts, searched, bool(answer)),
        "num_searches": sum(searched),
    }


def read_answer(rollout: Row, prompt: Row) -> Row:
    if rollout["finish_reason"] != "final":
        raise Malformed(UNANSWERED[rollout["finish_reason"]])
    return {"answer": readers.last_pair(rollout["reply"], "answer")}


# ---- rows they share ----------------------------------------------------------------------------------------------


def readable(tasks: list[Row]) -> Iterator[Row]:
    return (task for task in tasks if task["text"] is not None)


def passing(tasks: list[Row], *gates: list[Row]) -> set[str]:
    """QG: ids of the tasks that pass every gate. A gate without a verdict is not passed; with no gate at all, all
    pass."""
    failed = {row["task_id"] for table in gates for row in table if not row["passed"]}
    return {task["task_id"] for task in readable(tasks)} - failed


def criteria_of(rubrics: list[Row]) -> dict[str, list[Row]]:
    """Criteria by task, in order; malformed rubrics have none."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rubrics, key=lambda r: r["position"]):
        if row["criterion"] is not None:
            found[row["task_id"]].append(row)
    return found


def _cut_document(document: Row, *, model: str, limit: int) -> Row:
    return {"title": document["title"] or "", "text": cut_tokens(document["text"], model, limit)}


def _gradable(answer: Row, *, limit: int) -> bool:
    return answer["answer"] is not None and answer["format"]["total"] > 0 and answer["answer_tokens"] <= limit


def _statement(criterion: str) -> str:
    """What a criterion asks for, said as an answer would: without its command verb.

    >>> _statement("Provides Baba has craft lomicr .")
    'Baba has craft lomicr .'
    """
    return criterion.partition(" ")[2]
