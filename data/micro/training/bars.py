"""The quality bars that micro checkpoints must clear.

`python -m data.micro.training.bars` prints them as a table and exits with 1 if any fails.

All are measured in worlds not seen in training, at the temperatures that the pipeline uses for the
roles.
"""

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from data.micro.training import screening
from data.micro.training.grading import near_criterion, real_answers, statements
from data.micro.training.model import MicroModel, load_checkpoint
from data.micro.training.sampler import answers, converse, last_element, sample
from data.micro.training.transcripts import SEARCH_TURNS, SEARCH_WEIGHTS, Draw, user
from flows.worlds.encyclopaedia import (
    MAX_HOPS,
    TASK_SENTENCES,
    World,
    criterion,
    fact,
    held_out_tasks,
    oracle,
    parse_task,
    states,
)

BASE = Path("data/micro/base")
GRADER = Path("data/micro/grader")
BENCH_WORLD = 7
NUM_ENTITIES = 60
NUM_TASKS = 480
GRADER_LOW = 0.97


@dataclass(frozen=True)
class Bar:
    """A share measured over `n` cases, and the range in which the checkpoint passes.

    If `gates` is False, the share is only shown.
    """

    name: str
    value: float
    n: int
    low: float = 0.0
    high: float = 1.0
    gates: bool = True

    @property
    def holds(self) -> bool:
        return not self.gates or self.low <= self.value <= self.high


def exchanges(draw: Draw, num: int, seed: int) -> Iterator[tuple[str, str]]:
    """One (prompt, expected reply) from each of `num` single-reply transcripts."""
    world = World(seed, NUM_ENTITIES)
    rng = random.Random(seed)
    for _ in range(num):
        transcript = draw(world, rng)
        *asked, (reply, _) = [
            *transcript.trunk,
            *(transcript.branches[0] if transcript.branches else []),
        ]
        yield " ".join(text for text, _ in asked), reply


def share(hits: list[bool]) -> float:
    return sum(hits) / max(1, len(hits))


def rubric_bars(model: MicroModel, num: int = 600) -> Iterator[Bar]:
    """The share of rubrics that state the facts verbatim, by number of hops.

    Leaves out generic tasks, for which any criterion is acceptable.
    """
    hits: dict[int, list[bool]] = {hops: [] for hops in range(MAX_HOPS + 1)}
    cases = list(exchanges(screening.rubric_writer, num, seed=BENCH_WORLD))
    replies = sample(model, [prompt for prompt, _ in cases], temperature=0)
    for (prompt, wanted), reply in zip(cases, replies, strict=True):
        task = parse_task(prompt.split(" task : ")[-1].split(" <|im_end|>")[0])
        if task and not task.generic:
            hits[len(task.path)].append(
                last_element(reply, "rubrics") == last_element(wanted, "rubrics")
            )
    for (hops, found), low in zip(hits.items(), (0.95, 0.90, 0.80, 0.0), strict=True):
        yield Bar(
            f"rubric writing exact, {hops} hops",
            share(found),
            len(found),
            low,
            gates=hops < MAX_HOPS,
        )


def gate_bar(model: MicroModel, name: str, draw: Draw, low: float, num: int = 400) -> Bar:
    cases = list(exchanges(draw, num, seed=BENCH_WORLD + 1))
    replies = sample(model, [prompt for prompt, _ in cases], temperature=0)
    pairs = zip(cases, replies, strict=True)
    return Bar(
        name,
        share([last_element(r, "score") == last_element(w, "score") for (_, w), r in pairs]),
        num,
        low,
    )


def challenger_bars(model: MicroModel, num: int = 400) -> Iterator[Bar]:
    world = World(BENCH_WORLD + 2, NUM_ENTITIES)
    rng = random.Random(BENCH_WORLD)
    turns = rng.choices(SEARCH_TURNS, SEARCH_WEIGHTS, k=num)
    openings = [
        user(
            "challenger",
            task_type=rng.choice(list(TASK_SENTENCES)),
            search_turns=n,
            document=world.texts[rng.choice(world.names)],
        )[0]
        for n in turns
    ]
    talks = converse(model, openings, world, "challenger", turns, temperature=1.0, seed=BENCH_WORLD)
    tasks = [parse_task(last_element(talk.final, "task") or "") for talk in talks]
    yield Bar(
        "Challenger: valid tasks",
        share([world.true_facts(task) is not None for task in tasks]),
        num,
        0.60,
    )
    searched = [len(talk.found) == n for talk, n in zip(talks, turns, strict=True)]
    yield Bar("Challenger: searches as required", share(searched), num, gates=False)
    yield Bar(
        "Challenger: generic tasks", share([bool(t and t.generic) for t in tasks]), num, gates=False
    )
    for hops in range(MAX_HOPS + 1):
        of_hops = [bool(t and not t.generic and len(t.path) == hops) for t in tasks]
        yield Bar(f"Challenger: tasks of {hops} hops", share(of_hops), num, gates=False)


def solver_bars(model: MicroModel, num: int = NUM_TASKS) -> Iterator[Bar]:
    """The true score (mean share of criteria met, by the oracle) at temperature 1, deliberately
    mediocre."""
    world = World(BENCH_WORLD, NUM_ENTITIES)
    tasks = held_out_tasks(BENCH_WORLD, num, NUM_ENTITIES)
    given = answers(model, [task.text for task in tasks], world, temperature=1.0, seed=BENCH_WORLD)
    scores = [
        share([oracle(c, answer or "", world) is True for c in task.criteria])
        for task, answer in zip(tasks, given, strict=True)
    ]
    yield Bar("Solver: true score", sum(scores) / num, num, 0.25, 0.45)
    for hops in range(MAX_HOPS + 1):
        of_hops = [score for score, task in zip(scores, tasks, strict=True) if task.hops == hops]
        name = f"Solver: true score, {hops} hops"
        yield Bar(name, sum(of_hops) / len(of_hops), len(of_hops), 0.25, 0.45, gates=hops == 1)
    yield Bar(
        "Solver: answers given", share([answer is not None for answer in given]), num, gates=False
    )


def grading_bars(
    base: MicroModel, model: MicroModel, name: str, low: float, gates: bool = True
) -> Iterator[Bar]:
    """The share of right verdicts on real answers of the base Solver: on the task's own criteria,
    and on near misses."""
    rng = random.Random(BENCH_WORLD)
    own = []
    near = []
    for answer, asked in real_answers(base, 300, seed=BENCH_WORLD):
        own += [(answer, s) for s in asked]
        near += [(answer, near_criterion(rng, statements(answer), asked)) for _ in range(3)]
    for kind, cases in (("own criteria", own), ("near misses", near)):
        prompts = [user("grade", answer=a, criterion=criterion(fact(*s)))[0] for a, s in cases]
        verdicts = [
            last_element(reply, "score")
            for reply in sample(model, prompts, temperature=0, max_tokens=24)
        ]
        truth = [str(int(states(a, fact(*s)))) for a, s in cases]
        yield Bar(
            f"{name}: right on {kind}",
            share([v == t for v, t in zip(verdicts, truth, strict=True)]),
            len(cases),
            low,
            gates=gates,
        )


def base_bars(model: MicroModel) -> Iterator[Bar]:
    yield from rubric_bars(model)
    yield gate_bar(model, "entity gate", screening.entity_gate, 0.95)
    yield gate_bar(model, "source gate", screening.source_gate, 0.90)
    yield from challenger_bars(model)
    yield from solver_bars(model)
    yield from grading_bars(model, model, "base grading", 0.80, gates=False)


def passed(bars: Iterator[Bar]) -> bool:
    """Print each bar as it is measured; return whether all hold."""
    verdicts = []
    for bar in bars:
        limits = f"{bar.low:.2f} .. {bar.high:.2f}" if bar.gates else "shown only"
        print(
            f"{bar.name:38} {bar.value:.3f}  n {bar.n:5}  {limits:12}"
            f" {'ok' if bar.holds else 'FAILS'}",
            flush=True,
        )
        verdicts.append(bar.holds)
    return all(verdicts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, default=BASE, help="folder of the base model")
    parser.add_argument("--grader", type=Path, default=GRADER, help="folder of the grader")
    parser.add_argument("--only", choices=["base", "grader"], help="measure only this model")
    args = parser.parse_args()
    torch.set_num_threads(1)
    base = load_checkpoint(args.base)
    good = True
    if args.only != "grader":
        good = passed(base_bars(base))
    if args.only != "base":
        good &= passed(grading_bars(base, load_checkpoint(args.grader), "grader", GRADER_LOW))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
