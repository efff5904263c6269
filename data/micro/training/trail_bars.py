"""The quality bars of the micro model that plays Search Self-Play, in worlds that training never
drew."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data.micro.training.bars import BENCH_WORLD, Bar, share
from data.micro.training.model import MicroModel
from data.micro.training.sampler import last_element, sample
from data.micro.training.tokenizer import EOS
from data.micro.training.trail_transcripts import NUM_SEARCHES, found, user
from flows.worlds.trails import (
    MAX_HOPS,
    World,
    held_out_tasks,
    open_world,
    parse_question,
    write_question,
)

SSP = Path("data/micro/ssp")
NUM_PEOPLE = 200
NUM_TASKS = 500


@dataclass
class Conversation:
    """The text so far, its last turn, and the people whose documents were retrieved."""

    text: str
    final: str = ""
    found: tuple[str, ...] = ()


def converse(
    model: MicroModel,
    openings: Sequence[str],
    world: World,
    role: str,
    num_searches: int,
    temperature: float,
) -> list[Conversation]:
    """Play `role` ("proposer" or "solver") to its last turn; searches look up a person's name."""
    talks = [Conversation(text) for text in openings]
    live = list(talks)
    for turn in range(num_searches + 1):
        replies = sample(model, [talk.text for talk in live], temperature, BENCH_WORLD + turn)
        for talk, reply in zip(live, replies, strict=True):
            talk.final = reply
        searched = [last_element(talk.final, "search") for talk in live]
        going = []
        for talk, person in zip(live, searched, strict=True):
            if person not in world.texts or turn == num_searches:
                continue
            talk.found += (person,)
            name = "searched" if turn + 1 < num_searches else f"{role}_searched_out"
            message, _ = found(name, world.texts[person])
            talk.text += f" {talk.final} {EOS} {message}"
            going.append(talk)
        live = going
        if not live:
            break
    return talks


def solver_bars(model: MicroModel, temperature: float) -> Iterator[Bar]:
    """The share of true answers to held-out questions, deliberately mediocre."""
    world = open_world(BENCH_WORLD, NUM_PEOPLE)
    tasks = held_out_tasks(BENCH_WORLD, NUM_TASKS, NUM_PEOPLE)
    openings = [user("solver", task=write_question(task.question))[0] for task in tasks]
    talks = converse(model, openings, world, "solver", MAX_HOPS, temperature)
    answers = [last_element(talk.final, "answer") for talk in talks]
    right = [answer == task.answer for answer, task in zip(answers, tasks, strict=True)]
    name = "solver" if temperature else "solver, greedy"
    yield Bar(f"{name}: true answers", share(right), NUM_TASKS, 0.30, 0.65)
    for hops in range(1, MAX_HOPS + 1):
        of_hops = [r for r, task in zip(right, tasks, strict=True) if task.question.hops == hops]
        yield Bar(
            f"{name}: {hops} hops",
            share(of_hops),
            len(of_hops),
            low=0.75,
            gates=hops == 1,
        )
    given = [answer is not None for answer in answers]
    yield Bar(f"{name}: answers given", share(given), NUM_TASKS, 0.85, gates=bool(temperature))


def proposer_bars(model: MicroModel, num: int = 400) -> Iterator[Bar]:
    """The shares of the Proposer's questions that are well formed, that have the given answer, and
    that have each number of hops, and the share of conversations that repeat no search."""
    world = open_world(BENCH_WORLD + 1, NUM_PEOPLE)
    rng = random.Random(BENCH_WORLD)
    answers = [rng.choice(world.names) for _ in range(num)]
    openings = [user("proposer", hops=MAX_HOPS, answer=answer)[0] for answer in answers]
    talks = converse(model, openings, world, "proposer", NUM_SEARCHES, temperature=1.0)
    questions = [parse_question(last_element(talk.final, "question") or "") for talk in talks]
    asked = [question is not None for question in questions]
    yield Bar("proposer: in good form", share(asked), num, 0.85, 0.99)
    true = [world.true_answer(q) == a for q, a in zip(questions, answers, strict=True) if q]
    yield Bar("proposer: the answer is the question's", share(true), len(true), 0.70, 0.97)
    for hops in range(1, MAX_HOPS + 1):
        of_hops = [q.hops == hops for q in questions if q]
        yield Bar(f"proposer: {hops} hops", share(of_hops), len(of_hops), gates=False)
    once = [len(set(talk.found)) == len(talk.found) for talk in talks]
    yield Bar("proposer: no search twice", share(once), num, 0.80)


def checker_bars(model: MicroModel, num: int = 400) -> Iterator[Bar]:
    """The share of true answers, given the documents of a question's trail and of another trail."""
    world = open_world(BENCH_WORLD + 2, NUM_PEOPLE)
    rng = random.Random(BENCH_WORLD)
    trails = [world.draw_trail(rng, i % MAX_HOPS + 1) for i in range(num)]
    prompts = []
    for trail in trails:
        names = list(dict.fromkeys([*trail, *rng.choice(trails)]))
        rng.shuffle(names)
        documents = [{"text": world.texts[name]} for name in names]
        task = write_question(world.question_along(trail))
        prompts.append(user("checker", documents=documents, task=task)[0])
    replies = sample(model, prompts, temperature=0.1, seed=BENCH_WORLD)
    right = [
        last_element(reply, "answer") == trail[-1]
        for reply, trail in zip(replies, trails, strict=True)
    ]
    yield Bar("checker: true answers", share(right), num, 0.85)
    for hops in range(1, MAX_HOPS + 1):
        of_hops = [r for r, trail in zip(right, trails, strict=True) if len(trail) == hops + 1]
        yield Bar(f"checker: {hops} hops", share(of_hops), len(of_hops), gates=False)


def trail_bars(model: MicroModel) -> Iterator[Bar]:
    yield from proposer_bars(model)
    yield from checker_bars(model)
    yield from solver_bars(model, temperature=1.0)
    yield from solver_bars(model, temperature=0.0)
