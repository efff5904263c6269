"""The quality bars of the micro model that plays SPELL's three roles, in clusters not seen in
training.

`python -m data.micro.training.reading_bars` prints them for a checkpoint. A checkpoint from
`data.micro.training.bootstrap spell` must clear them.
"""

import argparse
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from data.micro.training import asking, reading
from data.micro.training.bars import BENCH_WORLD, Bar, passed, share
from data.micro.training.model import MicroModel, load_checkpoint
from data.micro.training.sampler import sample
from data.micro.training.tokenizer import EOS
from flows.worlds.clusters import (
    MAX_HOPS,
    Cluster,
    Question,
    parse_question,
    same_answer,
    world_cluster,
    write_question,
)
from tasks.readers.letters import LETTERS, letter_of
from tasks.readers.malformed import Malformed
from tasks.readers.numbers import number_in
from tasks.readers.objects import last_object
from tasks.readers.stated import stated_answer
from tasks.readers.verdicts import bracketed

SPELL = Path("data/micro/spell")


def ask(model: MicroModel, prompts: list[str], temperature: float = 1.0) -> list[str]:
    replies = sample(
        model, [reading.opened(prompt) for prompt in prompts], temperature, seed=BENCH_WORLD
    )
    return [reply.removesuffix(EOS).strip() for reply in replies]


def questioner_bars(model: MicroModel, num: int = 300) -> Iterator[Bar]:
    """The shares of the model's questions that are well formed, that are answerable in the cluster,
    and that have the true answer."""
    for again in (False, True):
        rng = random.Random(BENCH_WORLD)
        cases = []
        for i in range(num):
            cluster = world_cluster(BENCH_WORLD, i)
            task_type = reading.TASK_TYPES[i % 3]
            pairs = []
            num_shown = asking.SHOWN
            name = f"questioner_{task_type}"
            if again:
                pairs = [asking.pair(cluster, rng, task_type) for _ in range(2)]
                num_shown = 4
                name = f"questioner_{task_type}_again"
            shown = rng.sample(cluster.names, num_shown)
            cases.append(
                (
                    cluster,
                    task_type,
                    reading.render(name, context=reading.in_order(cluster, shown), pairs=pairs),
                )
            )
        read = [
            _read(cluster, task_type, reply)
            for (cluster, task_type, _), reply in zip(
                cases, ask(model, [prompt for *_, prompt in cases]), strict=True
            )
        ]
        name = "questioner with memory" if again else "questioner"
        yield Bar(f"{name}: in good form", share([r is not None for r in read]), num, 0.75, 0.99)
        known = [r for r in read if r is not None]
        yield Bar(
            f"{name}: answerable",
            share([truth is not None for _, truth, _ in known]),
            len(known),
            0.70,
        )
        true = [truth == reference for _, truth, reference in known if truth is not None]
        yield Bar(f"{name}: reference true", share(true), len(true), 0.65)
        for hops in range(MAX_HOPS + 1):
            of_hops = [bool(q and q.hops == hops) for q, _, _ in known]
            yield Bar(f"{name}: {hops} hops", share(of_hops), len(known), gates=False)


def _read(
    cluster: Cluster, task_type: str, reply: str
) -> tuple[Question | None, str | None, str] | None:
    try:
        found = last_object(reply, ("question", "answer"))
        question = parse_question(str(found.get("question")).strip())
        reference = _reference(task_type, found)
    except Malformed:
        return None
    return question, cluster.true_answer(question), reference


def _reference(task_type: str, found: dict[str, Any]) -> str:
    """The reference answer of a question; for multiple choice, the text of the option. Raises
    Malformed."""
    answer = str(found.get("answer", "")).strip()
    options = found.get("options")
    if task_type == "finance_math" and not number_in(answer).value:
        raise Malformed("nothing to calculate")
    if task_type == "multiple_choice":
        if isinstance(options, dict):
            texts = {letter: str(text).strip() for letter, text in options.items()}
        else:
            texts = {}
        whole = set(texts) == set(LETTERS) and len(
            {text.lower() for text in texts.values()}
        ) == len(LETTERS)
        answer = texts.get(letter_of(answer) or "", "") if whole else ""
    if not answer or not found.get("question"):
        raise Malformed("no question with an answer")
    return answer


def responder_bars(model: MicroModel, num: int = 480) -> Iterator[Bar]:
    """The share of true answers at temperature 1, deliberately mediocre."""
    rng = random.Random(BENCH_WORLD)
    cases = []
    for i in range(num):
        cluster = world_cluster(BENCH_WORLD, i % 1000)
        task_type = reading.TASK_TYPES[i % 3]
        hops = i // 3 % (MAX_HOPS + 1)
        question = cluster.draw_question(rng, task_type == "finance_math", hops)
        answer = cluster.true_answer(question) or ""
        if i % 3 == 2:
            options, letter = cluster.draw_options(rng, question, answer)
        else:
            options = []
            letter = answer
        context = reading.in_order(cluster, cluster.names)
        prompt = reading.prompt_of(task_type, context, question, options)
        cases.append((task_type, hops, letter, prompt))
    replies = ask(model, [prompt for *_, prompt in cases])
    right = [is_right(reply, truth) for reply, (_, _, truth, _) in zip(replies, cases, strict=True)]
    yield Bar("responder: true answers", share(right), num, 0.30, 0.65)
    for name, at in (("type", 0), ("hops", 1)):
        for kind in sorted({case[at] for case in cases}, key=str):
            found = [r for r, case in zip(right, cases, strict=True) if case[at] == kind]
            yield Bar(f"responder: {name} {kind}", share(found), len(found), gates=False)


def is_right(reply: str, truth: str) -> bool:
    """Whether a reply states the true answer."""
    try:
        return same_answer(stated_answer(reply), truth)
    except Malformed:
        return False


def verifier_bars(model: MicroModel, num: int = 400) -> Iterator[Bar]:
    rng = random.Random(BENCH_WORLD)
    cases = []
    for i in range(num):
        cluster = world_cluster(BENCH_WORLD, i)
        task_type = reading.TASK_TYPES[i % 3]
        question = cluster.draw_question(rng, task_type == "finance_math", rng.randint(0, MAX_HOPS))
        reference = rng.choice("ABCD") if i % 3 == 2 else cluster.true_answer(question) or ""
        answer = reading.answer_to_judge(rng, question, reference, task_type)
        prompt = reading.render(
            "verifier", question=write_question(question), answer=answer, reference=reference
        )
        cases.append((same_answer(answer, reference), prompt))
    votes = [_vote(reply) for reply in ask(model, [prompt for _, prompt in cases])]
    yield Bar(
        "verifier: right votes",
        share([v == int(t) for v, (t, _) in zip(votes, cases, strict=True)]),
        num,
        0.75,
        0.97,
    )
    yield Bar("verifier: readable", share([v is not None for v in votes]), num, 0.97)


def _vote(reply: str) -> int | None:
    try:
        return bracketed(reply, {"YES": 1, "NO": 0})
    except Malformed:
        return None


def reading_bars(model: MicroModel) -> Iterator[Bar]:
    yield from questioner_bars(model)
    yield from responder_bars(model)
    yield from verifier_bars(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=SPELL, help="folder of the checkpoint")
    torch.set_num_threads(1)
    sys.exit(0 if passed(reading_bars(load_checkpoint(parser.parse_args().model))) else 1)


if __name__ == "__main__":
    main()
