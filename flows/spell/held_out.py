"""The score on questions that are never trained on, as in appendix E.2 (n answers each, pass@k, contexts cut to fit),
and how hard an iteration's own questions are for a fixed responder (figure 4)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from flows.evaluation import score_benchmarks
from flows.micro.tables import cluster_contexts, cluster_tasks
from flows.run import Player, Role
from flows.spell.config import TASK_TYPES
from flows.spell.rewards import pass_at
from flows.spell.rules import accepted, covers, truly_covers
from flows.spell.steps import Round, Spell, answer, judge_externally
from tasks.corpus.documents import corpus_identity
from tasks.evaluate import evaluate
from tasks.match import match
from tasks.prompt import Row
from tasks.readers.words import overlap, words_of
from tasks.stage import Rows, stage
from warehouse.schemas import DOCUMENTS, TASKS, Answer, Match, Task, Vote
from warehouse.store import Place, Table

QUESTIONS = "questions of the iteration"


@dataclass(frozen=True)
class Benchmark:
    """Held-out tasks and their contexts."""

    name: str
    tasks: Table
    contexts: Table

    @classmethod
    def open(cls, spell: Spell, name: str) -> Benchmark:
        """Raises ValueError for one that is no file."""
        cfg, place = spell.run.cfg.evaluation, spell.run.place.iteration(0).phase("benchmark")
        if name in spell.run.cfg.worlds:
            made = {"seed": cfg.seed, "num_tasks": cfg.num_tasks}
            return cls(name, cluster_tasks(place, **made), cluster_contexts(place, **made))
        if not Path(name).is_file():
            raise ValueError(f"evaluation.benchmark {name} is no file: give a .jsonl file, 'micro' or 'none'")
        label = None if name == cfg.benchmark else Path(name).stem
        given = {"path": name, "identity": corpus_identity(name), "label": label}
        return cls(Path(name).stem, read_benchmark(place, **given), read_contexts(place, **given))


def score_held_out(spell: Spell, iteration: Place, player: Player) -> None:
    """Answer every task n times at every input limit; before the first iteration also as the baselines have it."""
    cfg = spell.run.cfg.evaluation
    score_benchmarks(spell.run, iteration, player)
    if cfg.benchmark == "none":
        return
    for name in (cfg.benchmark, *cfg.also):
        benchmark = Benchmark.open(spell, name)
        first = "" if name == cfg.benchmark else f"{benchmark.name}-"
        for limit in cfg.input_tokens:
            shown = benchmark.name + ("" if len(cfg.input_tokens) == 1 else f", {limit} tokens")
            role = spell.roles.examinee(spell.run.cfg, limit)
            examine(spell, iteration, role, player, benchmark, f"{first}{limit}-tokens", shown)
            for baseline in cfg.baselines if iteration.at.iteration == 0 else ():
                role = spell.roles.examinee(spell.run.cfg, limit, baseline)
                label, also = f"{first}{limit}-tokens-{baseline.prompts}", f"{shown}, {baseline.prompts}"
                examine(spell, iteration, role, player, benchmark, label, also)


def examine(
    spell: Spell, iteration: Place, role: Role, player: Player, benchmark: Benchmark, label: str, name: str
) -> None:
    """Scores under `name`: right is what the rule or, where one is named, the judge says."""
    run, cfg, place = spell.run, spell.run.cfg.evaluation, iteration.phase("evaluation")
    tasks, compare = benchmark.tasks, truly_covers if benchmark.name in run.cfg.worlds else covers
    said = run.ask(place, role, player.policy, n=cfg.samples, label=label, tasks=tasks, contexts=benchmark.contexts)
    about = {
        "tasks": tasks,
        "answers": said.rows,
        "matches": match(place, said.rows, tasks, compare=compare, label=label),
        "judged": judge_externally(spell, place, said.rows, tasks, model="examiner", label=f"judge-{label}"),
    }
    measured = partial(measure, passes=cfg.passes)
    evaluate(place, measured, policy=player.policy.id, benchmark=name, label=label, **about)


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
        if task["task_type"] == "general_qa":
            yield "exact_match", mean([exact(task, a["answer"]) for a in given])
            yield "f1", mean([best_overlap(task, a["answer"]) for a in given])


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def exact(task: Task, answer: str | None) -> float:
    """1 for an answer that has the words of an accepted one and no others."""
    return float(answer is not None and any(words_of(answer) == words_of(a) for a in accepted(task)))


def best_overlap(task: Task, answer: str | None) -> float:
    """F1 with the accepted answer that is nearest."""
    return 0.0 if answer is None else max(overlap(a, answer) for a in accepted(task))


@stage(TASKS)
def read_benchmark(path: str, *, identity: str) -> Rows:
    """Yield the tasks of a .jsonl file: id, task_type, question, context, answer or answers (a list of all that are
    right), and options (a list) for choices."""
    for row in _lines(path):
        ids = {"task_id": row["id"], "document_id": row["id"], "task_type": row["task_type"]}
        answers = {"reference": row["answers"][0], "accepted": row["answers"] if len(row["answers"]) > 1 else None}
        yield {**ids, **answers, "text": row["question"], "options": row.get("options") or None}


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
            row.setdefault("answers", [row["answer"]] if "answer" in row else [])
            missing = {"id", "task_type", "question", "context"} - row.keys()
            missing |= set() if row["answers"] else {"answer"}
            if missing or row["task_type"] not in TASK_TYPES:
                what = (
                    f"lacks {', '.join(sorted(missing))}" if missing else f"has no task_type of {', '.join(TASK_TYPES)}"
                )
                raise ValueError(f"{path}, line {number} {what}")
            with_words = [answer for answer in map(str, row["answers"]) if words_of(answer)]
            yield {**row, "id": str(row["id"]), "answers": with_words or list(map(str, row["answers"]))}


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
