"""Training text of the micro model about programs, in the formats of Absolute Zero's micro prompts.

It proposes programs, mostly short ones, and solves tasks about them. It can follow a program
forwards and backwards, but often stops early, and the further it has got, the likelier it stops.
When it has to find a program, it mostly assumes that the program does not multiply.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from data.micro.training.ledger_transcripts import LEDGER_WORDS
from data.micro.training.tokenizer import EOS, START
from data.micro.training.transcripts import Segment, Transcript, forked, think
from flows.runtime.store_root import SOURCE
from flows.worlds.encyclopaedia import World
from flows.worlds.programs import (
    ARGUMENT,
    BASE,
    INVERSE,
    MAX_STEPS,
    NO_HINT,
    NUM_INPUTS,
    VARIABLES,
    Program,
    Step,
    draw_inputs,
    draw_program,
)
from tasks.prompt import Template

PROMPTS = SOURCE / "flows" / "azr" / "prompts" / "micro"
_WORDS = (
    "```python ```input ```output ```message ``` def f ( x ) = ; - * % return deduce abduce induce"
    " propose deduction abduction induction input output message gives times last"
)
PROGRAM_WORDS = tuple(dict.fromkeys([*LEDGER_WORDS, *_WORDS.split(), *VARIABLES]))

NUM_REPLIES = 2
COUNTS = range(MAX_STEPS + 1)
# Long programs are rare: the model must learn to propose them. Now and then it proposes the
# identity.
PROPOSED = [0.02, *(0.6**count for count in range(1, MAX_STEPS + 1))]
NEAR = 0.5  # share of the proposals that are about as long as the longest program shown
# it continues after step n with probability GOES_ON[n - 1], else answers with its result so far
GOES_ON = (0.85, 0.76, 0.67, 0.58, 0.50, 0.42, 0.36)
CAREFUL = 0.30  # share of inductions in which it works out the factor
HINTED = 0.5  # share of the proposed inductions with a hint
SLOPPY = 0.04  # share of the replies in which a fence or a tag is missing
UNDEFINED = 0.04  # share of the proposed programs that return an undefined variable


@cache
def _template(name: str) -> Template:
    return Template.load(PROMPTS, name)


def user(name: str, **values: Any) -> Segment:
    return f"{START} user {_template(name).render(**values)} {EOS} {START} assistant", 0.0


def inline(name: str, text: str | int) -> str:
    """
    >>> inline("output", 4)
    '```output 4 ```'
    """
    return f"```{name} {text} ```"


def replied(thought: str, *answers: str) -> str:
    return f"{think(thought)} <answer> {' '.join(answers)} </answer>"


def sloppy(rng: random.Random, reply: str) -> str:
    """The reply, but in rare cases without the ends of its fences or of its answer."""
    kind = rng.random()
    if kind < SLOPPY / 2:
        return reply.replace("``` ", "")
    if kind < SLOPPY:
        return reply.removesuffix(" </answer>")
    return reply


# ---- what the Solver does ----


def forwards(program: Program, number: int, reached: int) -> list[str]:
    """The first `reached` steps applied to a number.

    >>> forwards(Program((Step("+", 3), Step("*", 7))), 4, 2)
    ['x is 4 ;', 'a = 4 + 3 is 7 ;', 'b = 7 * 7 is 9 ;']
    """
    values = program.values(number)
    return [f"{ARGUMENT} is {number} ;"] + [
        f"{program.variables[n + 1]} = {values[n]} {step.operation} {step.operand} is"
        f" {values[n + 1]} ;"
        for n, step in enumerate(program.steps[:reached])
    ]


def backwards(program: Program, output: int, reached: int) -> tuple[list[str], int]:
    """The last `reached` steps undone, and the digit that results.

    >>> backwards(Program((Step("+", 3), Step("*", 7))), 9, 2)
    (['b is 9 ;', 'a = 9 * 3 is 7 ;', 'x = 7 - 3 is 4 ;'], 4)
    """
    names = program.variables
    lines = [f"{names[-1]} is {output} ;"]
    value = output
    for n in range(len(program.steps), len(program.steps) - reached, -1):
        step = program.steps[n - 1].undone
        before = step.of(value)
        lines.append(f"{names[n - 1]} = {value} {step.operation} {step.operand} is {before} ;")
        value = before
    return lines, value


def reached_steps(rng: random.Random, num_steps: int, *, sound: bool) -> int:
    """How many steps the model takes; the mediocre base often stops before the last one."""
    if sound:
        return num_steps
    stops = (n for n in range(1, num_steps) if rng.random() > GOES_ON[n - 1])
    return next(stops, num_steps)


def deducer(world: World, rng: random.Random, sound: bool = False) -> Transcript:
    program = draw_program(rng, rng.choice(COUNTS))
    number = rng.randrange(BASE)
    replies = []
    for _ in range(NUM_REPLIES):
        reached = reached_steps(rng, len(program.steps), sound=sound)
        output = program.values(number)[reached]
        thought = " ".join(forwards(program, number, reached))
        replies.append(sloppy(rng, replied(thought, inline("output", output))))
    return forked([user("solve_deduction", program=program.text, input=number)], replies)


def abducer(world: World, rng: random.Random, sound: bool = False) -> Transcript:
    program = draw_program(rng, rng.choice(COUNTS))
    output = program.output(rng.randrange(BASE))
    replies = []
    for _ in range(NUM_REPLIES):
        lines, number = backwards(
            program, output, reached_steps(rng, len(program.steps), sound=sound)
        )
        replies.append(sloppy(rng, replied(" ".join(lines), inline("input", number))))
    return forked([user("solve_abduction", program=program.text, output=output)], replies)


def inducer(world: World, rng: random.Random, sound: bool = False) -> Transcript:
    program = draw_program(rng, rng.choice(COUNTS))
    inputs = draw_inputs(rng) if sound or rng.random() < 0.7 else rng.choices(range(BASE), k=2)
    hint = program.hint if rng.random() < HINTED else NO_HINT
    replies = []
    for _ in range(NUM_REPLIES):
        careful = sound or rng.random() < CAREFUL
        thought, found = induction(rng, program, inputs[:2], hint=hint, careful=careful)
        replies.append(sloppy(rng, replied(thought, inline("python", found.text))))
    pairs = [{"input": number, "output": program.output(number)} for number in inputs[:2]]
    return forked([user("solve_induction", pairs=pairs, message=hint)], replies)


def induction(
    rng: random.Random, program: Program, inputs: Sequence[int], *, hint: str, careful: bool
) -> tuple[str, Program]:
    """How a program of two steps is found from two pairs.

    The factor is hinted at or follows from the differences; the summand follows from the factor and
    the first pair. Unless `careful`, the factor is assumed to be 1.

    >>> some = Program((Step("*", 7), Step("+", 2)))
    >>> induction(random.Random(0), some, (1, 4), hint="none", careful=True)[0]
    '4 - 1 is 3 ; 0 - 9 is 1 ; times 7 ; 1 * 7 is 7 ; 9 - 7 is 2 ;'
    """
    first, second = inputs
    out = program.output(first)
    lines = []
    factor = 1
    if careful and hint != NO_HINT:
        factor = program.factor
    elif careful:
        distance = Step("-", first).of(second)
        rise = Step("-", out).of(program.output(second))
        lines += [f"{second} - {first} is {distance} ;"]
        lines += [f"{program.output(second)} - {out} is {rise} ;"]
        factor = rng.choice([some for some in INVERSE if some * distance % BASE == rise])
    product = Step("*", factor).of(first)
    summand = Step("-", product).of(out)
    lines += [f"times {factor} ;"]
    lines += [f"{first} * {factor} is {product} ; {out} - {product} is {summand} ;"]
    return " ".join(lines), Program((Step("*", factor), Step("+", summand)))


# ---- what the Proposer does ----


def proposer(world: World, rng: random.Random, task_type: str = "deduction") -> Transcript:
    """Write a program with an input; the last variable is chosen first."""
    shown = [draw_program(rng, rng.choice(COUNTS)) for _ in range(rng.choice((0, 1, 1)))]
    references = [{"program": some.text, "input": rng.randrange(BASE)} for some in shown]
    replies = []
    for _ in range(NUM_REPLIES):
        count = rng.choices(COUNTS, PROPOSED)[0]
        if shown and rng.random() < NEAR:
            longest = max(len(some.steps) for some in shown)
            count = min(MAX_STEPS, max(1, longest + rng.choice((-1, 0, 1))))
        program = draw_program(rng, count)
        text = program.text
        if rng.random() < UNDEFINED and 0 < count < MAX_STEPS:
            text = text.replace("return " + VARIABLES[count - 1], "return " + VARIABLES[count])
        blocks = [inline("python", text), inline("input", rng.randrange(BASE))]
        replies.append(sloppy(rng, replied(f"last {program.variables[-1]} ;", *blocks)))
    return forked([user(f"propose_{task_type}", references=references)], replies)


def induction_proposer(world: World, rng: random.Random) -> Transcript:
    """Write inputs for a program and, half of the time, its factor as a hint."""
    program = draw_program(rng, rng.choice(COUNTS))
    replies = []
    for _ in range(NUM_REPLIES):
        inputs = [inline("input", number) for number in rng.sample(range(BASE), NUM_INPUTS)]
        thought = f"{NO_HINT} ;"
        message = NO_HINT
        if rng.random() < HINTED:
            thought = factors(program)
            message = program.hint
        replies.append(sloppy(rng, replied(thought, *inputs, inline("message", message))))
    return forked([user("propose_induction", program=program.text)], replies)


def factors(program: Program) -> str:
    """The product of a program's factors, step by step.

    >>> factors(Program((Step("*", 3), Step("+", 1), Step("*", 9))))
    'times 1 ; a * 3 times 3 ; c * 9 times 7 ;'
    """
    lines = ["times 1 ;"]
    for n, step in enumerate(program.steps):
        if step.operation == "*":
            product = Program(program.steps[: n + 1]).factor
            lines.append(f"{VARIABLES[n]} * {step.operand} times {product} ;")
    return " ".join(lines)


# ---- small skills ----


def digit_drill(world: World, rng: random.Random) -> Transcript:
    """Isolated sums, differences and products, worded as in the replies, and the factor that maps
    one difference to another."""
    segments: list[Segment] = [(f"{START} user deduce {EOS} {START} assistant", 0.0)]
    for _ in range(12):
        digit = rng.randrange(BASE)
        kind = rng.random()
        if kind < 0.25:
            first = rng.randrange(BASE)
            out = rng.randrange(BASE)
            factor = rng.choice([*INVERSE])
            distance = rng.choice([n for n in range(1, BASE) if n != BASE // 2])
            second = Step("+", first).of(distance)
            rise = Step("*", factor).of(distance)
            last = Step("+", out).of(rise)
            told = f"{second} - {first} is {distance} ; {last} - {out} is {rise} ; times"
            segments += [(told, 0.0), (f"{factor} ;", 1.0)]
            continue
        operation = rng.choice(("+", "-", "*"))
        operand = rng.choice([*INVERSE]) if operation == "*" else rng.randrange(BASE)
        segments += [(f"{digit} {operation} {operand} is", 0.0)]
        segments += [(f"{Step(operation, operand).of(digit)} ;", 1.0)]
    return Transcript(segments)
