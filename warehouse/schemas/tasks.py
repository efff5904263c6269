"""Tables of tasks: samples they are written from, gates, rubrics, and what is trained on."""

from __future__ import annotations

from typing import Annotated, TypedDict

from warehouse.schemas.columns import Long, ReplyColumns, WhyMalformed, define


class Sample(TypedDict):
    """A row of `samples`: a document, or several of one cluster, drawn for one prompt."""

    sample_id: Annotated[str, "identity"]
    document_id: Annotated[str, "the document; the first where it is several"]
    task_type: Annotated[str | None, "the type of task asked for", "none in particular"]
    search_turns: Annotated[int | None, "required number of search turns", "none is asked for"]
    cluster: Annotated[int | None, "the cluster they are of", "documents were not drawn by cluster"]
    document_ids: Annotated[
        list[str] | None, "all documents drawn, in the order of the corpus", "it is one"
    ]


SAMPLES = define(
    "samples",
    Sample,
    grain="a document, or several of one cluster, drawn for one prompt",
    key="sample_id",
)


class Choice(TypedDict):
    """A row of `choices`: the type of task that a role chose for a document."""

    rollout_id: Annotated[str, "the rollout that chose"]
    prompt_id: Annotated[str, "its prompt"]
    document_id: Annotated[str | None, "the document", "none was shown"]
    task_type: Annotated[str | None, "the type chosen", "none could be read"]
    malformed: WhyMalformed


CHOICES = define(
    "choices",
    Choice,
    grain="the type of task that a role chose for a document",
    key="rollout_id",
    parsed=ReplyColumns("rollout_id", "task_type"),
)


class Task(TypedDict):
    """A row of `tasks`: a task that one rollout of the proposing role wrote, or that was given,
    such as a benchmark's."""

    task_id: Annotated[str, "identity (the rollout that wrote it)"]
    rollout_id: Annotated[str | None, "that rollout", "it was given, not written by a policy"]
    prompt_id: Annotated[str | None, "its group", "it was given"]
    document_id: Annotated[str | None, "source document", "it has none"]
    task_type: Annotated[str | None, "type asked for", "none in particular"]
    search_turns: Annotated[int | None, "search turns asked for", "none were"]
    difficulty: Annotated[
        int | None, "how many steps a full answer takes: hops, items", "not known"
    ]
    text: Annotated[str | None, "the task", "none could be read"]
    reference: Annotated[
        str | None, "the answer that it was written with", "it has none, or none could be read"
    ]
    accepted: Annotated[list[str] | None, "all answers that are right", "the reference alone"]
    answer_type: Annotated[str | None, "what kind of answer the reference is", "not stated"]
    options: Annotated[list[str] | None, "choices offered, in order", "it offers none"]
    evidence: Annotated[
        list[str] | None, "ids of the source document and all retrieved ones", "it has no document"
    ]
    format: Annotated[
        dict[str, float] | None,
        "parts of the format reward, each 0..1, and `total`",
        "none is paid",
    ]
    malformed: WhyMalformed


TASKS = define(
    "tasks",
    Task,
    grain="a task: one rollout of the proposing role, or one that was given, as a benchmark's",
    key="task_id",
    parsed=ReplyColumns("rollout_id", "text"),
)


class Gate(TypedDict):
    """A row of `gates`: a check of a task."""

    task_id: Annotated[str, "the task"]
    gate: Annotated[str, "name of the check"]
    kind: Annotated[str, "model or rule"]
    passed: Annotated[bool | None, "verdict", "the reply was malformed: not passed"]
    judge_rollout_id: Annotated[str | None, "the rollout that judged", "a rule did"]
    malformed: WhyMalformed


GATES = define(
    "gates",
    Gate,
    grain="a check of a task",
    key="task_id gate",
    parsed=ReplyColumns("judge_rollout_id", "passed"),
)


class Criterion(TypedDict):
    """A row of `rubrics`: a criterion of a task's rubric. A malformed rubric is one row without
    criterion."""

    criterion_id: Annotated[str, "identity: task and position"]
    task_id: Annotated[str, "the task"]
    position: Annotated[int, "0-based place in the rubric"]
    criterion: Annotated[str | None, "one sentence", "the rubric is malformed"]
    priority: Annotated[str | None, "critical, important or bonus", "the rubric is malformed"]
    weight: Annotated[float | None, "weight in the score", "the rubric is malformed"]
    judge_rollout_id: Annotated[
        str | None, "the rollout that wrote it", "it was given with the task"
    ]
    malformed: WhyMalformed


RUBRICS = define(
    "rubrics",
    Criterion,
    grain="a criterion of a task's rubric; a malformed rubric is one row without criterion",
    key="criterion_id",
    parsed=ReplyColumns("judge_rollout_id", "criterion", order="position"),
)


class Selection(TypedDict):
    """A row of `selections`: a candidate task, kept or with the first reason why not."""

    task_id: Annotated[str, "the task"]
    document_id: Annotated[str | None, "its source document", "it has none"]
    kept: Annotated[bool, "whether it is trained on"]
    reason: Annotated[str | None, "first failing test", "kept"]
    num_correct: Annotated[
        Long | None, "verdicts in favour, over all counted rollouts", "no rollout counted"
    ]
    num_judged: Annotated[
        Long | None, "verdicts asked for, over all counted rollouts", "no rollout counted"
    ]
    num_rollouts: Annotated[Long, "rollouts behind the mean score"]
    mean_score: Annotated[
        float | None, "mean score over these rollouts, 0..1", "no rollout counted"
    ]
    bounds: Annotated[str, "the bounds used, as JSON"]


SELECTIONS = define(
    "selections",
    Selection,
    grain="a candidate task: kept, or the first reason why not",
    key="task_id",
)
