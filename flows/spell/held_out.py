"""The score on questions that are never trained on, as in appendix E.2 (n answers each, pass@k, contexts cut to fit),
and how hard an iteration's own questions are for a fixed responder (figure 4)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from flows.micro.tables import cluster_contexts, cluster_tasks
from flows.micro.worlds.clusters import same_answer
from flows.run import Player
from flows.spell.config import TASK_TYPES
from flows.spell.rewards import pass_at
from flows.spell.rules import covers
from flows.spell.steps import Round, Spell, answer, judge_externally
from tasks.corpus.documents import corpus_identity
from tasks.evaluate import evaluate
from tasks.match import match
from tasks.prompt import Row
from tasks.stage import Rows, stage
from warehouse.schemas import DOCUMENTS, TASKS, Answer, Match, Task, Vote
from warehouse.store import Place, Table

QUESTIONS = "questions of the iteration"


def open_benchmark(spell: Spell) -> tuple[Table, Table]:
    """The held-out tasks and their contexts. Raises ValueError for a benchmark that is no file."""
    cfg, place = spell.run.cfg.evaluation, spell.run.place.iteration(0).phase("benchmark")
    if cfg.benchmark in spell.run.cfg.worlds:
        made = {"seed": cfg.seed, "num_tasks": cfg.num_tasks}
        return cluster_tasks(place, **made), cluster_contexts(place, **made)
    if not Path(cfg.benchmark).is_file():
        raise ValueError(f"evaluation.benchmark {cfg.benchmark} is no file: give a .jsonl file, 'micro' or 'none'")
    given = {"path": cfg.benchmark, "identity": corpus_identity(cfg.benchmark)}
    return read_benchmark(place, **given), read_contexts(place, **given)


def score_held_out(spell: Spell, iteration: Place, player: Player) -> None:
    """Answer every task n times at every input limit; right is what the rule or, where one is named, the judge says."""
    run, cfg, place = spell.run, spell.run.cfg.evaluation, iteration.phase("evaluation")
    if cfg.benchmark == "none":
        return
    tasks, contexts = open_benchmark(spell)
    compare = truly_covers if cfg.benchmark in run.cfg.worlds else covers
    for limit in cfg.input_tokens:
        label = f"{limit}-tokens"
        about = {"tasks": tasks, "contexts": contexts}
        said = run.ask(place, spell.roles.examinee(limit), player.policy, n=cfg.samples, label=label, **about)
        matches = match(place, said.rows, tasks, compare=compare, label=label)
        judged = judge_externally(spell, place, said.rows, tasks, model="examiner", label=f"judge-{label}")
        name = Path(cfg.benchmark).stem + ("" if len(cfg.input_tokens) == 1 else f", {limit} tokens")
        evaluate(
            place,
            partial(measure, passes=cfg.passes),
            policy=player.policy.id,
            benchmark=name,
            label=label,
            tasks=tasks,
            answers=said.rows,
            matches=matches,
            judged=judged,
        )


def truly_covers(task: Row, answer_text: str) -> bool:
    """The truth of the micro-world: the true value, letter or number, in digits or in words."""
    return same_answer(answer_text.strip(), task["reference"])


def measure(
    tasks: list[Task], answers: list[Answer], matches: list[Match], judged: list[Vote], *, passes: tuple[int, ...]
) -> Iterator[tuple[str, float]]:
    """`score` is pass@1, the mean over a task's answers; what is not stated, or cannot be compared, is not right.

    Multiple choice goes by the letter alone, the others by the rule or the judge, whichever is kinder.
    """
    voted = {row["rollout_id"] for row in judged if row["vote"]}
    by_rule = {row["rollout_id"] for row in matches if row["matched"]}
    answers_of: dict[str, list[Answer]] = defaultdict(list)
    for given in answers:
        answers_of[given["task_id"]].append(given)
    for task in tasks:
        right = by_rule if task["task_type"] == "multiple_choice" else by_rule | voted
        given = answers_of[task["task_id"]]
        num_right = sum(a["rollout_id"] in right for a in given)
        yield "score", num_right / len(given)
        yield f"score_{task['task_type']}", num_right / len(given)
        if task["difficulty"]:
            yield f"score_{task['difficulty'] - 1}_hops", num_right / len(given)
        for k in passes:
            if k <= len(given):
                yield f"pass_at_{k}", pass_at(k, len(given), num_right)
        yield "unanswered", sum(a["answer"] is None for a in given) / len(given)


@stage(TASKS)
def read_benchmark(path: str, *, identity: str) -> Rows:
    """Yield the tasks of a .jsonl file: id, task_type, question, answer, context, and options (a list) for choices."""
    for row in _lines(path):
        ids = {"task_id": row["id"], "document_id": row["id"], "task_type": row["task_type"]}
        yield {**ids, "text": row["question"], "reference": row["answer"], "options": row.get("options") or None}


@stage(DOCUMENTS)
def read_contexts(path: str, *, identity: str) -> Rows:
    """Yield the contexts of the same file."""
    for row in _lines(path):
        text = row["context"]
        yield {"document_id": row["id"], "text": text, "source": path, "num_chars": len(text)}


def _lines(path: str) -> Iterator[Row]:
    """Raises ValueError naming the first line that lacks something."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(filter(str.strip, file), start=1):
            row = json.loads(line)
            missing = {"id", "task_type", "question", "answer", "context"} - row.keys()
            if missing or row["task_type"] not in TASK_TYPES:
                what = (
                    f"lacks {', '.join(sorted(missing))}" if missing else f"has no task_type of {', '.join(TASK_TYPES)}"
                )
                raise ValueError(f"{path}, line {number} {what}")
            yield {**row, "id": str(row["id"]), "answer": str(row["answer"])}


def probe_questions(spell: Spell, iteration: Place, played: tuple[Round, ...]) -> None:
    """Let the fixed responder answer the well-formed questions of a step, over the same documents."""
    num_answers, place = spell.run.cfg.evaluation.probe_answers, iteration.phase("probe")
    if not num_answers:
        return
    prober, tasks = Player("prober", spell.run.model("prober")), [r.tasks for r in played]
    shown = {"documents": [r.documents for r in played], "memberships": spell.corpus.clusters}
    role = replace(spell.roles.responder, judge="prober" in spell.run.models)
    said, matches = answer(spell, place, role, prober, n=num_answers, label="responder", tasks=tasks, **shown)
    about = {"tasks": tasks, "answers": said.rows, "matches": matches}
    evaluate(place, difficulty, policy=prober.policy.id, benchmark=QUESTIONS, **about)


def difficulty(tasks: list[Task], answers: list[Answer], matches: list[Match]) -> Iterator[tuple[str, float]]:
    """1 - pass@1 of every question, by the rule."""
    matched = {row["rollout_id"]: bool(row["matched"]) for row in matches}
    right: dict[str, list[bool]] = defaultdict(list)
    for given in answers:
        right[given["task_id"]].append(matched[given["rollout_id"]])
    for task in tasks:
        if task["task_id"] in right:
            value = 1 - sum(right[task["task_id"]]) / len(right[task["task_id"]])
            yield "difficulty", value
            yield f"difficulty_{task['task_type']}", value
