"""The score on questions that are never trained on, as in appendix E.2: n answers each, pass@k, contexts cut to fit."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from flows.micro.training.reading import in_order
from flows.micro.worlds import clusters
from flows.spell.config import TASK_TYPES
from flows.spell.corpus import MICRO
from flows.spell.rewards import pass_at
from flows.spell.rules import covers, truly_covers
from flows.spell.steps import Player, Spell, judge_externally, roll_out
from tasks.ask import ask
from tasks.corpus.documents import corpus_identity
from tasks.evaluate import evaluate
from tasks.match import match
from tasks.prompt import Row
from tasks.read import read_answers
from tasks.stage import Rows, Tables, stage
from warehouse.schemas import DOCUMENTS, TASKS
from warehouse.store import Place, Table


@dataclass(frozen=True)
class HeldOut:
    """Benchmark tasks and their contexts, one document each; None where a run has no benchmark."""

    spell: Spell
    tasks: Table | None = None
    contexts: Table | None = None

    @classmethod
    def prepare(cls, spell: Spell) -> HeldOut:
        cfg = spell.cfg.evaluation
        if cfg.benchmark == "none":
            return cls(spell)
        place = spell.bench.place.iteration(0).phase("benchmark")
        if cfg.benchmark == MICRO:
            made = {"seed": cfg.seed, "num_tasks": cfg.num_tasks}
            return cls(spell, world_tasks(place, **made), world_contexts(place, **made))
        if not Path(cfg.benchmark).is_file():
            raise ValueError(
                f"evaluation.benchmark {cfg.benchmark} is no file: give a .jsonl file, {MICRO!r} or 'none'"
            )
        identity = corpus_identity(cfg.benchmark)
        given = {"path": cfg.benchmark, "identity": identity}
        return cls(spell, read_benchmark(place, **given), read_contexts(place, **given))


def score_held_out(held_out: HeldOut, iteration: Place, player: Player) -> None:
    """Answer every task n times at every input limit; right is what the rule or, where one is named, the judge says."""
    spell, tasks, contexts = held_out.spell, held_out.tasks, held_out.contexts
    if tasks is None or contexts is None:
        return
    cfg, place = spell.cfg.evaluation, iteration.phase("evaluation")
    for limit in cfg.input_tokens:
        label = f"{limit}-tokens"
        asked = ask(place, spell.roles.examinee(limit), tasks, contexts, label=label)
        rollouts = roll_out(spell, place, asked, player.policy, cfg.samples, label=label, cut=True)
        answers = read_answers(place, rollouts, asked, reader=spell.roles.read_answer, label=label)
        compare = truly_covers if cfg.benchmark == MICRO else covers
        matches = match(place, answers, tasks, compare=compare, label=label)
        judged: Tables = judge_externally(spell, place, answers, tasks, model="examiner", label=f"judge-{label}")
        name = Path(cfg.benchmark).stem + ("" if len(cfg.input_tokens) == 1 else f", {limit} tokens")
        pay = partial(measure, passes=cfg.passes)
        evaluate(place, pay, tasks, answers, matches, judged, policy=player.policy.id, benchmark=name, label=label)


def measure(
    tasks: list[Row], answers: list[Row], matches: list[Row], judged: list[Row], *, passes: tuple[int, ...]
) -> Iterator[tuple[str, float]]:
    """`score` is pass@1, the mean over a task's answers; what is not stated, or cannot be compared, is not right.

    Multiple choice goes by the letter alone, the others by the rule or the judge, whichever is kinder.
    """
    voted = {row["rollout_id"] for row in judged if row["vote"]}
    by_rule = {row["rollout_id"] for row in matches if row["matched"]}
    answers_of: dict[str, list[Row]] = {}
    for answer in answers:
        answers_of.setdefault(answer["task_id"], []).append(answer)
    for task in tasks:
        right = by_rule if task["task_type"] == "multiple_choice" else by_rule | voted
        given = answers_of[task["task_id"]]
        num_right = sum(a["rollout_id"] in right for a in given)
        yield "score", num_right / len(given)
        yield f"score_{task['task_type']}", num_right / len(given)
        if task["difficulty"] is not None:
            yield f"score_{task['difficulty']}_hops", num_right / len(given)
        for k in passes:
            if k <= len(given):
                yield f"pass_at_{k}", pass_at(k, len(given), num_right)
        yield "unanswered", sum(a["answer"] is None for a in given) / len(given)


def _drawn(seed: int, num_tasks: int) -> Iterator[tuple[int, str, clusters.Cluster, clusters.Question, list[str], str]]:
    """Number, type, cluster, question, options and answer: types and hops in turn, each about a cluster of its own."""
    rng = random.Random(seed)
    for i in range(num_tasks):
        cluster, task_type = clusters.world_cluster(seed, i % 1000), TASK_TYPES[i % len(TASK_TYPES)]
        hops = i // len(TASK_TYPES) % (clusters.MAX_HOPS + 1)
        question = cluster.draw_question(rng, task_type == "finance_math", hops)
        answer, options = cluster.true_answer(question) or "", []
        if task_type == "multiple_choice":
            options, answer = cluster.draw_options(rng, question, answer)
        yield i, task_type, cluster, question, options, answer


@stage(TASKS)
def world_tasks(*, seed: int, num_tasks: int) -> Rows:
    """Yield the questions of the held-out world; their difficulty is the number of links of the longest path."""
    for i, task_type, _, question, options, answer in _drawn(seed, num_tasks):
        text = clusters.write_question(question)
        yield _task_row(f"cluster-{seed}-{i:04d}", task_type, text, answer, options, question.hops)


@stage(DOCUMENTS)
def world_contexts(*, seed: int, num_tasks: int) -> Rows:
    """Yield what is shown with each question: all documents of its cluster."""
    for i, _, cluster, *_ in _drawn(seed, num_tasks):
        yield _context_row(f"cluster-{seed}-{i:04d}", in_order(cluster, cluster.names), f"micro-world, seed {seed}")


@stage(TASKS)
def read_benchmark(path: str, *, identity: str) -> Rows:
    """Yield the tasks of a .jsonl file: id, task_type, question, answer, context, and options (a list) for choices."""
    for row in _lines(path):
        yield _task_row(row["id"], row["task_type"], row["question"], row["answer"], row.get("options") or [], None)


@stage(DOCUMENTS)
def read_contexts(path: str, *, identity: str) -> Rows:
    """Yield the contexts of the same file."""
    for row in _lines(path):
        yield _context_row(row["id"], row["context"], path)


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


def _task_row(task_id: str, task_type: str, text: str, answer: str, options: list[str], difficulty: int | None) -> Row:
    return {
        "task_id": task_id,
        "document_id": task_id,
        "task_type": task_type,
        "difficulty": difficulty,
        "text": text,
        "reference": answer,
        "options": options or None,
        "evidence": [task_id],
    }


def _context_row(document_id: str, text: str, source: str) -> Row:
    return {"document_id": document_id, "text": text, "source": source, "num_chars": len(text)}
