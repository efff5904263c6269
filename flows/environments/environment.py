"""The kept tasks of a run and the scorer of their answers, ready for other loaders."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta

from flows.environments.recorded import Call, Recording
from tasks.generate import index_folder
from tasks.models.engine import Sampling
from tasks.prompt import Prompt
from tasks.read import Reader
from tasks.rollouts.search_syntax import EXAMPLES
from tasks.stage import describe, innermost
from warehouse.draft import hash_json
from warehouse.schemas import ANSWERS, RUBRICS, TASKS, Row

TEST_SHARE = 0.1
# the columns of a task, besides its id, that scorers see
TASK_COLUMNS = (
    "text",
    "reference",
    "accepted",
    "answer_type",
    "options",
    "task_type",
    "difficulty",
)
# replaces the run's own search syntax in prompts
TOOL_EXAMPLE = "call the tool `search` with the words to look for"
JUDGE_SEES = {"task", "answer", "criterion"}  # variables that a judge's template may use


@dataclass(frozen=True)
class Judge:
    """A judge of one criterion: its template, how its reply is read, and how it was sampled.

    `min_coverage`: the minimum share of a rubric's criteria that need a readable verdict.
    """

    template: str
    values: Mapping[str, Any]
    read: Callable[[str], int]
    sampling: Sampling
    model: str
    min_coverage: float


@dataclass(frozen=True)
class Scorer:
    """How an answer is read from a reply, and how it is scored: by a rule, or by a judge with the
    task's rubric.

    `whole`: a truncated reply is malformed. `instructions`: the prompt's own words, which do not
    count as an answer.
    """

    read: Callable[[str], str]
    whole: bool
    instructions: tuple[str, ...]
    compare: Callable[[Row, str], Any] | None = None
    judge: Judge | None = None


@dataclass(frozen=True)
class Search:
    """The search that answers used: the folder of its index, and how much a query returns.

    `example`: the text in the prompts that shows the policy how to search; a tool call replaces it.
    """

    index: Path
    documents_per_query: int
    result_tokens: int
    example: str


@dataclass(frozen=True)
class Environment:
    """Tasks with their prompts, and their scorer.

    A task has `task_id`, `messages`, `split`, `document_id`, the columns of `TASK_COLUMNS`, and
    `criteria` if a judge scores it. `left_out` counts, by reason, kept tasks that this scorer
    cannot score.
    """

    run: str
    tasks: Sequence[Row]
    scorer: Scorer
    left_out: Mapping[str, int] = field(default_factory=dict)
    search: Search | None = None  # None if the search is left out
    searches: bool = False  # whether the run's policy could search
    votes: bool = False  # whether the run's rewards also depend on votes, which are left out


def environment_of(
    recording: Recording,
    run: str,
    most: int | None = None,
    *,
    without_search: bool = False,
    without_votes: bool = False,
) -> Environment:
    """The environment with the kept tasks of a recorded run, or the first `most` of them.

    `without_search`: leave out the search, even if answers used it. `without_votes`: score by the
    rule alone, even if rewards also depend on votes.

    Raises ValueError, with what to do, if the run has no filter, no kept task, or no scorer that
    can be exported.
    """
    kept = kept_ids(recording)
    if not kept:
        raise ValueError(
            f"run {run!r} has no kept tasks: its filter comes after what was played so far, or"
            f" kept nothing; `selfplay status {run}` says which"
        )
    scorer, answers_calls = find_scorer(recording, without_votes)
    searches = any(has_search(recording, call) for call in answers_calls)
    search = None
    if searches and not without_search:
        search = search_of(recording, answers_calls[0])
    messages_of = prompts_of(recording, answers_calls, scorer)
    task_of = tasks_by_id(recording)
    label_of = labels_by_id(recording, answers_calls)
    criteria_of = criteria_by_id(recording)
    answered = answered_ids(recording)
    left_out: dict[str, int] = defaultdict(int)
    rows = []
    for task_id in kept[:most]:
        row = {"task_id": task_id, **task_of[task_id]}
        if task_id in label_of:
            row["reference"] = label_of[task_id]
        row["messages"] = with_tool(messages_of.get(task_id), search)
        row["criteria"] = criteria_of.get(task_id)
        reason = why_not_exported(row, scorer, is_answered=task_id in answered)
        if reason is None:
            rows.append(row)
        else:
            left_out[reason] += 1
    if not rows:
        raise ValueError(f"none of {len(kept)} kept tasks can be exported: {dict(left_out)}")
    return Environment(
        run,
        tasks=[*with_splits(rows)],
        scorer=scorer,
        left_out=dict(left_out),
        search=search,
        searches=searches,
        votes=scorer.compare is not None and any(has_votes(recording)),
    )


def has_votes(recording: Recording) -> Iterator[bool]:
    """For each stage that computed rewards from comparisons, whether it also used votes."""
    for call in recording.scored("matches"):
        yield bool(call.tables("votes"))


def has_search(recording: Recording, reading: Call) -> bool:
    """Whether search was available in the rollouts from which the call `reading` read answers."""
    [rollouts] = reading.tables("rollouts")
    return recording.calls[rollouts.address].arguments["dialogue"].search is not None


def search_of(recording: Recording, reading: Call) -> Search:
    """The search in the rollouts from which the call `reading` read answers.

    Raises ValueError for a search that ranks by embeddings, which would need their model.
    """
    [rollouts] = reading.tables("rollouts")
    [prompts] = reading.tables("prompts")
    sampled = recording.calls[rollouts.address].arguments
    dialogue = sampled["dialogue"]
    folder = index_folder(sampled["index"])
    assert folder is not None, "a dialogue that searches has an index"
    if json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["embedding"] is not None:
        raise ValueError(
            "the run's search ranks by embeddings, and only BM25 is exported: --without-search"
            " exports the tasks all the same"
        )
    values = recording.calls[prompts.address].arguments["values"] or {}
    return Search(
        index=folder,
        documents_per_query=dialogue.documents_per_query,
        result_tokens=dialogue.result_tokens,
        example=values.get("search_example", EXAMPLES[dialogue.search]),
    )


def with_tool(messages: list[Row] | None, search: Search | None) -> list[Row] | None:
    """The messages, with a call of the tool `search` in place of the run's own search syntax.

    A prompt that does not show how to search is unchanged.
    """
    if messages is None or search is None:
        return messages
    return [
        {**message, "content": message["content"].replace(search.example, TOOL_EXAMPLE)}
        for message in messages
    ]


def why_not_exported(row: Row, scorer: Scorer, *, is_answered: bool) -> str | None:
    """Why a task cannot be scored outside the project; None if it can.

    It may lack a prompt whose answers this scorer scored, a rubric for a judge, or a reference for
    a rule. `is_answered`: whether the run has any answers to it, whatever their scorer.
    """
    if row["messages"] is None and is_answered:
        return "its answers have another scorer, which is not exported"
    if row["messages"] is None:
        return "it was never answered, so its prompt is not known"
    if scorer.judge is not None and not row["criteria"]:
        return "it has no rubric"
    if scorer.judge is None and row["reference"] is None:
        return "it has no reference answer"
    return None


def kept_ids(recording: Recording) -> list[str]:
    """The distinct ids of all tasks that the run's filters kept, in the run's order."""
    ids = dict[str, None]()
    for table in recording.filtered():
        for row in table.rows():
            if row["kept"]:
                ids[row["task_id"]] = None
    return list(ids)


# ---- the scorer ----


def find_scorer(recording: Recording, without_votes: bool = False) -> tuple[Scorer, list[Call]]:
    """The scorer on which rewards are based, and the calls that read answers for it.

    If the run scores in several ways, this is the scorer of most tables. Raises ValueError if
    answers are neither compared with a reference nor judged by a rubric or, unless `without_votes`,
    if votes can overrule the comparison.
    """
    by_identity: dict[str, tuple[Scorer, list[Call]]] = {}
    for call in recording.scored("judgments"):
        for answers in call.tables("answers"):
            reading = recording.calls[answers.address]
            judge = judge_of(recording, call)
            _add(by_identity, scorer_of(reading, judge=judge), reading)
    for call in recording.scored("matches"):
        if call.tables("votes") and not without_votes:
            continue
        for matches in call.tables("matches"):
            matching = recording.calls[matches.address]
            for answers in matching.tables("answers"):
                reading = recording.calls[answers.address]
                compare = matching.arguments.get("compare")
                # a scorer that runs programs has no rule of task and answer that could be copied
                if compare is None:
                    continue
                _add(by_identity, scorer_of(reading, compare=compare), reading)
    if not by_identity and any(has_votes(recording)):
        raise ValueError(
            "the run's rewards rest on a rule and on votes of a model, which have no fixed scorer"
            " to export: --without-votes exports the tasks with the rule alone"
        )
    if not by_identity:
        raise ValueError(
            "the run's answers are neither compared with a reference by a rule alone nor judged by"
            " a rubric: marks and votes of a policy that learns have no fixed scorer to export, and"
            " a scorer that runs programs is not exported"
        )
    return max(by_identity.values(), key=lambda scorer_and_calls: len(scorer_and_calls[1]))


def _add(by_identity: dict[str, tuple[Scorer, list[Call]]], scorer: Scorer, reading: Call) -> None:
    identity = hash_json(describe(vars(scorer) | {"judge": scorer.judge and vars(scorer.judge)}))
    _, calls = by_identity.setdefault(identity, (scorer, []))
    if reading not in calls:
        calls.append(reading)


def scorer_of(
    reading: Call,
    *,
    compare: Callable[[Row, str], Any] | None = None,
    judge: Judge | None = None,
) -> Scorer:
    """The scorer, with the rule `compare` or with `judge`, of answers read by the call `reading`.

    Raises ValueError for a reader of whole rollouts, which needs more than the reply's text.
    """
    reader = reading.arguments["reader"]
    assert isinstance(reader, Reader)
    read = reader.read
    if not (isinstance(read, partial) and "read" in read.keywords and "column" in read.keywords):
        raise ValueError(
            f"{innermost(read).__qualname__} reads more than the text of a reply: answers read"
            " with `tasks.read.reads` can be exported"
        )
    instructions = reader.instructions.texts if reader.instructions else ()
    return Scorer(read.keywords["read"], reader.whole, instructions, compare, judge)


def judge_of(recording: Recording, scoring: Call) -> Judge:
    """The judge whose `judgments` the call `scoring` used for rewards.

    Raises ValueError if its prompt shows more than the task, the answer and the criterion.
    """
    [judging] = [recording.calls[table.address] for table in scoring.tables("judgments")]
    [prompts] = judging.tables("prompts")
    [rollouts] = judging.tables("rollouts")
    prompt = recording.calls[prompts.address].arguments["prompt"]
    values = recording.calls[prompts.address].arguments["values"] or {}
    sampled = recording.calls[rollouts.address].arguments
    assert isinstance(prompt, Prompt)
    [template] = prompt.templates
    variables = meta.find_undeclared_variables(jinja2.Environment().parse(template.text))
    unknown = variables - JUDGE_SEES - set(values)
    if unknown:
        raise ValueError(
            f"the judge's prompt {template.name} shows {', '.join(sorted(unknown))}, which no other"
            f" loader has: it may show {', '.join(sorted(JUDGE_SEES))}"
        )
    settings = scoring.arguments["arguments"]
    return Judge(
        template=template.text,
        values=values,
        read=judging.arguments["read"],
        sampling=sampled["sampling"],
        model=sampled["policy"].id,
        min_coverage=settings.get("min_coverage", 0.0),
    )


# ---- the tasks ----


def prompts_of(
    recording: Recording, answers_calls: Sequence[Call], scorer: Scorer
) -> dict[str, list[Row]]:
    """By task id, the messages to which the scorer's answers, read by `answers_calls`, reply.

    Other answers in the run count too if they were read by the same reader: tasks that were kept
    but not trained on were answered only there.
    """
    alike = hash_json(describe(answers_calls[0].arguments["reader"]))
    messages_of: dict[str, list[Row]] = {}
    others = [
        call
        for call in recording.of(ANSWERS)
        if call not in answers_calls and hash_json(describe(call.arguments["reader"])) == alike
    ]
    for call in (*answers_calls, *others):
        [prompts] = call.tables("prompts")
        for row in prompts.rows():
            messages_of.setdefault(row["task_id"], row["messages"])
    return messages_of


def tasks_by_id(recording: Recording) -> dict[str, Row]:
    """What scorers and cards need to know of every readable task, by its id: the columns
    `TASK_COLUMNS`, `document_id`, and the ids of all `documents` behind the task."""
    return {
        row["task_id"]: {
            **{name: row.get(name) for name in TASK_COLUMNS},
            "document_id": row["document_id"],
            "documents": documents_behind(row),
        }
        for call in recording.of(TASKS)
        for row in call.table.rows()
        if row["text"] is not None
    }


def documents_behind(task: Row) -> list[str]:
    """The distinct ids of the document that a task was made from and of its evidence."""
    evidence: list[str] = task.get("evidence") or []
    if task["document_id"] is None:
        return list(dict.fromkeys(evidence))
    return list(dict.fromkeys([task["document_id"], *evidence]))


def labels_by_id(recording: Recording, answers_calls: Sequence[Call]) -> dict[str, str]:
    """By task id, the label that the answers of `answers_calls` are compared with in place of a
    reference."""
    read = {call.table.address for call in answers_calls}
    label_of: dict[str, str] = {}
    for call in recording.scored("matches"):
        for matches in call.tables("matches"):
            matching = recording.calls[matches.address]
            if any(table.address in read for table in matching.tables("answers")):
                for labels in matching.tables("labels"):
                    for row in labels.rows():
                        if row["answer"] is not None:
                            label_of[row["task_id"]] = row["answer"]
    return label_of


def answered_ids(recording: Recording) -> set[str]:
    """The ids of all tasks that were answered in the run, however the answers were scored."""
    return {row["task_id"] for call in recording.of(ANSWERS) for row in call.table.rows()}


def criteria_by_id(recording: Recording) -> dict[str, list[Row]]:
    """The criteria, in order and with their weights, of every task that has a rubric, by the
    task's id."""
    criteria: dict[str, list[Row]] = defaultdict(list)
    for call in recording.of(RUBRICS):
        for row in call.table.rows():
            if row["criterion"] is not None:
                criteria[row["task_id"]].append(row)
    return {
        task_id: [
            {"criterion": row["criterion"], "weight": row["weight"]}
            for row in sorted(rows, key=lambda row: row["position"])
        ]
        for task_id, rows in criteria.items()
    }


# ---- splits ----


def with_splits(rows: Sequence[Row]) -> Iterator[Row]:
    """Assign the tasks to splits: about a tenth to testing, with no document behind tasks of both.

    Tasks that share a document, even indirectly through other tasks, are in one split. The split is
    a hash of the smallest name among the connected documents, or of the task's own id, so it does
    not depend on other tasks unless they add a connection.
    """
    root_of: dict[str, str] = {}

    def root(name: str) -> str:
        while root_of.setdefault(name, name) != name:
            name = root_of[name]
        return name

    for row in rows:
        first, *others = row["documents"] or [row["task_id"]]
        for other in others:
            low, high = sorted((root(first), root(other)))
            root_of[high] = low
    for row in rows:
        name = root((row["documents"] or [row["task_id"]])[0])
        is_test = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) < TEST_SHARE * 16**8
        rest = {key: value for key, value in row.items() if key != "documents"}
        yield {**rest, "split": "test" if is_test else "train"}
