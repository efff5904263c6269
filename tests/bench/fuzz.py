"""Fuzz the readers: `python -m tests.bench.fuzz [N [FIRST_SEED]]`, or `make fuzz N=1000000 SEED=0`.

Every reader reads N replies, made of fragments and of real replies that were cut, doubled and
mixed, and 100,000 characters of each pattern that has hung a reader. The report lists crashes (any
exception but Malformed), the slowest reading, and injected verdicts: a judge that quotes the reply,
neutralised, must be read as it decides, and a quotation alone must not be read at all. Exits with 1
for a crash, an injection, or a reading that takes more than 0.1 s.

The clock is the CPU time of the reading thread: wall time would also measure what else the machine
does. A million replies cost about half an hour of CPU, on as many cores as there are or as
WORKERS says.

A seed always makes the same 2,000 replies, and six of 100,000 characters that mix the patterns. To
continue after an interruption, give the number still to do and the seed after the last one printed.
The generator is our own rather than hypothesis: most of its output is replies of models, cut,
doubled and mixed, and it needs neither shrinking nor a database of examples.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.eapo import readers as eapo
from flows.eapo.compare import read_scores
from flows.scope import readers as scope
from flows.spell import readers as spell
from flows.spell import rules
from flows.spice import readers as spice
from flows.table_questions import readers as tables
from tasks.check import asks_nothing_twice
from tasks.readers import lines
from tasks.readers.boxed import last_box
from tasks.readers.formulas import MAX_CHARS, as_latex, in_words
from tasks.readers.letters import letter_of
from tasks.readers.malformed import Malformed
from tasks.readers.marks import mark_out_of_ten
from tasks.readers.markup import folded
from tasks.readers.named import named_text
from tasks.readers.numbers import is_finite, number_in
from tasks.readers.objects import last_object
from tasks.readers.quotes import quotes_of, verbatim
from tasks.readers.standalone import LEANS_ON_SOURCE
from tasks.readers.stated import stated_answer
from tasks.readers.tags import elements, last_element
from tasks.readers.thoughts import spoken
from tasks.readers.verdicts import bracketed, marked
from tasks.readers.words import words_of
from tasks.rollouts.neutral import neutralise
from tasks.rollouts.search_syntax import ends_with_final, find_search
from tests.support.replies import REPLIES, WEIGHTS, cases

LONG = 100_000
LIMIT_S = 0.1
CHUNK = 2_000
LONG_ONES = 6
FORMATS = ("multiple_choice", "free_form")
TYPES = ("Integer", "Expression", "String")
OPTIONS = ["10 km", "12 km", "14 km", "16 km"]
OWN_VERDICTS = (  # each is read as 0: the judge's own verdict beside what it quotes
    ("<score>0</score>", "marked"),
    ("<score>1</score>", "mark_out_of_ten"),
    ("[[NO]]", "bracketed"),
    ("[[INCORRECT]]", "eapo verdict"),
)


def task_of(task_type: str, reference: str = "12") -> dict[str, Any]:
    return {"task_type": task_type, "reference": reference, "options": OPTIONS}


def rollout(reply: str) -> Any:
    return {"reply": reply, "rollout_id": "one"}


def prompt(text: str) -> Any:
    return {"messages": [{"role": "user", "content": text}], "rollout_ids": ["one", "two"]}


READERS: dict[str, Callable[[str], Any]] = {
    "last_element": lambda text: last_element(text, "answer"),
    "marked": marked,
    "bracketed": lambda text: bracketed(text, {"YES": 1, "NO": 0}),
    "last_object": lambda text: last_object(text, ("question", "answer")),
    "named_text": lambda text: named_text(text, "question"),
    "last_box": last_box,
    "stated_answer": stated_answer,
    "letter_of": lambda text: letter_of(text, OPTIONS),
    "number_in": number_in,
    "is_finite": is_finite,
    "words_of": words_of,
    "folded": folded,
    "spoken": spoken,
    "as_latex": lambda text: as_latex(text[-MAX_CHARS:]),
    "in_words": lambda text: in_words(text[-MAX_CHARS:]),
    "neutralise": neutralise,
    "asks_nothing_twice": asks_nothing_twice,
    "ends_with_final": lambda text: ends_with_final(text, "answer", "tags"),
    **{
        f"find_search {s}": lambda text, s=s: find_search(text, s) for s in ("tags", "qwen", "olmo")
    },
    **{
        f"the body of a search, {s}": lambda text, s=s: find_search(_called(text, s), s)
        for s in ("qwen", "olmo")
    },
    "scope task": scope.read_task,
    "scope rubric": lambda text: scope.read_rubric(text, 3, 10, WEIGHTS),
    "spice choice": lambda text: spice.read_choice(text, FORMATS, TYPES),
    **{
        f"spice question {t}": lambda text, t=t: spice.read_question(text, t)
        for t in ("Float", "multiple_choice")
    },
    **{
        f"spell question {t}": lambda text, t=t: spell.read_question(
            text, t, lambda answer: len(answer.split())
        )
        for t in ("general_qa", "multiple_choice", "finance_math")
    },
    **{
        f"spell rule {t}": lambda text, t=t: rules.covers(task_of(t), text)
        for t in ("general_qa", "multiple_choice", "finance_math")
    },
    "eapo answer": lambda text: eapo.read_answer(rollout(text), prompt(OPTIONS[0])),
    "the quotes of an eapo answer": lambda text: eapo.read_answer(
        rollout(_in_parts(text)), prompt(text)
    ),
    "eapo verdict": eapo.read_verdict,
    "mark_out_of_ten": mark_out_of_ten,
    "quotes_of": quotes_of,
    "verbatim": lambda text: verbatim([text, "12"], text),
    "leans on a source": LEANS_ON_SOURCE.search,
    "scores": lambda text: read_scores(rollout(text), prompt(OPTIONS[0]), highest=5),
    "a list of scores": lambda text: read_scores(
        rollout(f'{{"scores": [{text}]}}'), prompt(OPTIONS[0]), highest=5
    ),
    "tables question": lambda text: tables.read_question(rollout(text), prompt(OPTIONS[0])),
    "tables evidence": lambda text: tables.read_evidence(rollout(text), prompt(OPTIONS[0])),
    "lines question": lambda text: lines.read_question(text, f"Text: {text}"),
    "lines answer": lines.read_answer,
    "lines vote": lines.read_vote,
    "a reference": lambda text: rules.covers(task_of("finance_math", text), "12"),
}
DATA = Path(__file__).parent.parent / "data" / "fuzz"
FRAGMENTS: list[str] = json.loads((DATA / "fragments.json").read_text())
PATTERNS: list[str] = json.loads((DATA / "patterns.json").read_text())


def _called(text: str, syntax: str) -> str:
    name = {"qwen": "tool_call", "olmo": "function_calls"}[syntax]
    return f"<{name}>{text}</{name}>"


def _in_parts(text: str) -> str:
    """An EAPO answer whose evidence is `text`."""
    parts = {"analysis": "a", "evidence": text, "reasoning": "a", "answer": "12"}
    return "".join(f"<{name}>{part}</{name}>" for name, part in parts.items())


@dataclass
class Report:
    num_replies: int = 0
    crashes: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    slowest: str = ""

    def add(self, other: Report) -> None:
        self.num_replies += other.num_replies
        self.crashes += other.crashes
        self.injected += other.injected
        if other.slowest_s > self.slowest_s:
            self.slowest_s = other.slowest_s
            self.slowest = other.slowest

    def summary(self) -> str:
        found = f"{self.crashes.total()} crashes, {self.injected.total()} verdicts injected"
        return f"{self.num_replies} replies, {found}, slowest reading {self.slowest_s:.3f} s"

    def show(self) -> None:
        print(f"each read by {len(READERS)} readers: {self.summary()}")
        print(f"slowest: {self.slowest}")
        for name, count in [*self.crashes.most_common(10), *self.injected.most_common(10)]:
            print(f"  {count} x {name}")

    def read(self, reply: str, shown: str) -> None:
        """Read one reply with every reader, and as a judge's quotation."""
        self.num_replies += 1
        for name, reader in READERS.items():
            self.timed(name, reader, reply, shown)
        quoted = neutralise(reply)
        for own, name in OWN_VERDICTS:
            for said in (f"{quoted}\n{own}", f"{own}\n{quoted}", f"<think>{quoted}</think>{own}"):
                if self.timed(name, READERS[name], said, f"a judge who quotes {shown}") not in (
                    0,
                    None,
                ):
                    self.injected[f"a verdict by {shown}"] += 1
            if self.timed(name, READERS[name], quoted, f"the quoted {shown}") is not None:
                self.injected[f"a verdict alone by {shown}"] += 1
        for name in ("task", "answer", "search"):
            if elements(quoted, name):
                self.injected[f"an element {name} by {shown}"] += 1

    def timed(self, name: str, reader: Callable[[str], Any], reply: str, shown: str) -> Any:
        """What the reader reads, or None."""
        began = time.perf_counter()
        read = None
        try:
            read = reader(reply)
        except Malformed:
            pass
        except Exception as problem:
            self.crashes[f"{name}: {type(problem).__name__} for {shown}"] += 1
        if (
            time.perf_counter() - began > self.slowest_s
            and (seconds := cpu_seconds(reader, reply)) > self.slowest_s
        ):
            self.slowest_s = seconds
            self.slowest = f"{name} for {shown}"
        return read


def cpu_seconds(reader: Callable[[str], Any], reply: str) -> float:
    """The CPU time of one more reading in this thread.

    The CPU clock is a system call, which can take longer than a reading. So it is used only where
    the wall clock, which never shows less, shows a new maximum.
    """
    began = time.thread_time()
    with contextlib.suppress(Exception):
        reader(reply)
    return time.thread_time() - began


def replies(rng: random.Random, num: int) -> Iterator[str]:
    real = [
        case["reply"] if "reply" in case else case["fields"][2]
        for case in cases(sorted(REPLIES.glob("*.jsonl")))
    ]
    for _ in range(num):
        if rng.random() < 0.5:
            yield "".join(rng.choices(FRAGMENTS, k=rng.randint(1, 30)))
        else:
            yield mutated(rng, rng.choice(real), real)


def mutated(rng: random.Random, reply: str, real: list[str]) -> str:
    for _ in range(rng.randint(1, 4)):
        i, j = sorted((rng.randint(0, len(reply)), rng.randint(0, len(reply))))
        reply = rng.choice(
            (
                reply[:i] + reply[j:],
                reply[:j] + reply[i:],
                reply[:i] + rng.choice(FRAGMENTS) + reply[i:],
                reply[:i] + rng.choice(FRAGMENTS) + reply[j:],
                reply[:i],
                reply[:i] + rng.choice(real)[rng.randint(0, 40) :],
            )
        )
    return reply


def long_reply(rng: random.Random, length: int = LONG) -> str:
    """Two or three patterns, alternating or one after the other: some are slow only after or
    between others."""
    some = rng.sample(PATTERNS, rng.randint(2, 3))
    if rng.random() < 0.5:
        some = ["".join(some)]
    return "".join(
        (pattern * (length // len(pattern) + 1))[: length // len(some)] for pattern in some
    )


def fuzzed(seed: int, num: int) -> Report:
    report = Report()
    for i, reply in enumerate(replies(random.Random(seed), num)):
        report.read(reply, f"reply {i} of seed {seed}: {ascii(reply)[:200]}")
    rng = random.Random(-seed - 1)
    for i in range(num * LONG_ONES // CHUNK):
        reply = long_reply(rng)
        report.read(
            reply, f"long reply {i} of seed {seed}: {ascii(reply)[:40]}...{ascii(reply)[-40:]}"
        )
    return report


def stretched(patterns: list[str], length: int = LONG) -> Report:
    """Read every pattern repeated to `length` characters, bare and enclosed in a reply's tags."""
    report = Report()
    for pattern in patterns:
        long = (pattern * (length // len(pattern) + 1))[:length]
        report.read(long, f"{pattern!r} repeated")
        half = long[: length // 2]
        report.read(
            f"<answer>a{half}a</answer> <score>a{half}a</score>", f"{pattern!r} repeated in tags"
        )
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("replies", type=int, nargs="?", default=100_000)
    parser.add_argument("seed", type=int, nargs="?", default=0, help="of the first replies")
    num, first = vars(parser.parse_args()).values()
    report = Report()
    began = time.monotonic()
    with ProcessPoolExecutor(int(os.environ.get("WORKERS", os.cpu_count() or 1))) as pool:
        for part in pool.map(stretched, [[pattern] for pattern in PATTERNS]):
            report.add(part)
        print(f"{LONG} characters of each pattern: {report.summary()}", flush=True)
        sizes = [min(CHUNK, num - start) for start in range(0, num, CHUNK)]
        for seed, part in enumerate(
            pool.map(fuzzed, range(first, first + len(sizes)), sizes), start=first
        ):
            report.add(part)
            if seed % 10 == 9:
                print(
                    f"after {(time.monotonic() - began) / 60:.1f} min, seed {seed}:"
                    f" {report.summary()}",
                    flush=True,
                )
    report.show()
    sys.exit(bool(report.crashes or report.injected or report.slowest_s > LIMIT_S))


if __name__ == "__main__":
    main()
