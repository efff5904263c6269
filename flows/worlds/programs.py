"""A synthetic world of programs: one-line Python functions that compute with digits.

    def f ( x ) : a = x + 3 ; b = a * 7 ; return b % 10

A program has up to eight steps, each with its own variable. Since it returns a remainder modulo
ten, digits are enough to follow it. Every step can be undone, since it adds, subtracts, or
multiplies by a number that has an inverse. A task hides the output, the input, or the program. If
it hides the output or the input, it takes one step of reasoning for every step of the program, so
the program's length is the difficulty. Any program, however long, is equivalent to some program of
two steps: a multiplication and an addition.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from tasks.readers.fences import block, blocks, fenced
from tasks.readers.malformed import Malformed

Operation = Literal["+", "-", "*"]
TaskType = Literal["deduction", "abduction", "induction"]
TASK_TYPES: tuple[TaskType, ...] = get_args(TaskType)
BASE = 10  # digits are remainders modulo this
# inverses of the factors that have one; they undo a multiplication
INVERSE = {1: 1, 3: 7, 7: 3, 9: 9}
FACTORS = (3, 7, 9)
OPERATIONS: dict[Operation, float] = {"+": 0.36, "-": 0.36, "*": 0.28}
ARGUMENT = "x"
VARIABLES = ("a", "b", "c", "d", "e", "g", "h", "k")  # f is the function
MAX_STEPS = len(VARIABLES)
IDENTITY = "def f ( x ) : return x"
NO_HINT = "none"
NUM_INPUTS = 4  # number of inputs of an induction; half of them are shown
_PROGRAM = re.compile(r"def f \( x \) : ((?:\w = \w [-+*] \d ; )+)return (\w) % 10")
_STEP = re.compile(r"(\w) = (\w) ([-+*]) (\d) ; ")


@dataclass(frozen=True)
class Step:
    """One operation with a digit."""

    operation: Operation
    operand: int

    def of(self, digit: int) -> int:
        """The result of the step for a digit.

        >>> Step("*", 7).of(4), Step("-", 5).of(4)
        (8, 9)
        """
        if self.operation == "+":
            return (digit + self.operand) % BASE
        if self.operation == "-":
            return (digit - self.operand) % BASE
        return digit * self.operand % BASE

    @property
    def undone(self) -> Step:
        """The step that undoes this one. If it multiplies, its factor must have an inverse.

        >>> Step("*", 3).undone, Step("-", 5).undone
        (Step(operation='*', operand=7), Step(operation='+', operand=5))
        """
        if self.operation == "*":
            return Step("*", INVERSE[self.operand])
        return Step("-" if self.operation == "+" else "+", self.operand)


@dataclass(frozen=True)
class Program:
    """The steps of a function; without any, it returns its argument."""

    steps: tuple[Step, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        """The argument, then the variable of every step."""
        return (ARGUMENT, *VARIABLES[: len(self.steps)])

    @property
    def text(self) -> str:
        """
        >>> Program((Step("+", 3), Step("*", 7))).text
        'def f ( x ) : a = x + 3 ; b = a * 7 ; return b % 10'
        """
        if not self.steps:
            return IDENTITY
        names = self.variables
        lines = [
            f"{names[n + 1]} = {names[n]} {step.operation} {step.operand} ;"
            for n, step in enumerate(self.steps)
        ]
        return f"def f ( {ARGUMENT} ) : {' '.join(lines)} return {names[-1]} % {BASE}"

    def values(self, number: int) -> list[int]:
        """The number, then its value after each step.

        >>> Program((Step("+", 3), Step("*", 7))).values(4)
        [4, 7, 9]
        """
        values = [number]
        for step in self.steps:
            values.append(step.of(values[-1]))
        return values

    def output(self, number: int) -> int:
        return self.values(number)[-1]

    @property
    def factor(self) -> int:
        """The product of the factors of its multiplications.

        >>> Program((Step("*", 3), Step("+", 1), Step("*", 9))).factor
        7
        """
        factor = 1
        for step in self.steps:
            if step.operation == "*":
                factor = factor * step.operand % BASE
        return factor

    @property
    def hint(self) -> str:
        """The message of an induction task that gives a hint."""
        return f"times {self.factor}"

    @property
    def shortest(self) -> Program:
        """The equivalent program of two steps.

        >>> Program((Step("+", 3), Step("*", 7), Step("-", 2))).shortest.text
        'def f ( x ) : a = x * 7 ; b = a + 9 ; return b % 10'
        """
        return Program((Step("*", self.factor), Step("+", self.output(0))))


def draw_program(rng: random.Random, num_steps: int) -> Program:
    steps = []
    for operation in rng.choices(list(OPERATIONS), list(OPERATIONS.values()), k=num_steps):
        operand = rng.choice(FACTORS) if operation == "*" else rng.randrange(1, BASE)
        steps.append(Step(operation, operand))
    return Program(tuple(steps))


def parse_program(text: str) -> Program | None:
    """Parse a program; None if the text does not follow the grammar."""
    if text == IDENTITY:
        return Program(())
    match = _PROGRAM.fullmatch(text)
    if match is None:
        return None
    steps = []
    before = ARGUMENT
    for variable, argument, operation, operand in _STEP.findall(match[1]):
        step = Step(operation, int(operand))
        if len(steps) == MAX_STEPS or variable != VARIABLES[len(steps)] or argument != before:
            return None
        steps.append(step)
        before = variable
    if match[2] != before:
        return None
    return Program(tuple(steps))


# ---- tasks ----


@dataclass(frozen=True)
class ProgramTask:
    """A task as it is stored: its text in fenced blocks, and the outputs of its program."""

    task_id: str
    task_type: TaskType
    text: str
    reference: str
    num_steps: int


def task_text(program: Program, inputs: Sequence[int], message: str | None = None) -> str:
    """The text of a task; only an induction has a message."""
    parts = [fenced("python", program.text), *(fenced("input", str(number)) for number in inputs)]
    if message is not None:
        parts.append(fenced("message", message))
    return "\n".join(parts)


def draw_inputs(rng: random.Random) -> list[int]:
    """Distinct inputs of an induction. The shown ones determine the factor; two inputs that are 5
    apart would not."""
    while True:
        inputs = rng.sample(range(BASE), NUM_INPUTS)
        if abs(inputs[0] - inputs[1]) != BASE // 2:
            return inputs


def held_out_tasks(seed: int, num_tasks: int) -> Iterator[ProgramTask]:
    """Tasks of each type, with programs of every length equally often; every other induction has a
    hint."""
    rng = random.Random(f"programs {seed}")
    for i in range(num_tasks):
        task_type = TASK_TYPES[i % len(TASK_TYPES)]
        turn = i // len(TASK_TYPES)
        num_steps = 1 + turn % MAX_STEPS
        program = draw_program(rng, num_steps)
        if task_type == "induction":
            inputs = draw_inputs(rng)
            message = program.hint if turn // MAX_STEPS % 2 else NO_HINT
            text = task_text(program, inputs, message)
            reference = json.dumps([str(program.output(number)) for number in inputs])
        else:
            number = rng.randrange(BASE)
            text = task_text(program, [number])
            reference = str(program.output(number))
        yield ProgramTask(f"program-{seed}-{i:04d}", task_type, text, reference, num_steps)


# ---- what is true ----


@dataclass(frozen=True)
class ParsedTask:
    """A task's program, and its inputs with the true outputs."""

    program: Program
    inputs: tuple[int, ...]

    @property
    def outputs(self) -> tuple[int, ...]:
        return tuple(self.program.output(number) for number in self.inputs)


def parse_task(text: str) -> ParsedTask | None:
    """Parse a task's text; None if it does not follow the grammar."""
    try:
        program = parse_program(block(text, "python"))
    except Malformed:
        return None
    inputs = [parse_number(part) for part in blocks(text, "input")]
    numbers = tuple(number for number in inputs if number is not None)
    if program is None or not numbers or len(numbers) < len(inputs):
        return None
    return ParsedTask(program, numbers)


def parse_number(text: str) -> int | None:
    if re.fullmatch(r"-?\d+", text.strip()) is None:
        return None
    return int(text)


def is_right(task_type: str | None, text: str, answer: str) -> bool | None:
    """Whether an answer to a task is right: its output, an input with the same output, or a program
    with the same outputs for all inputs.

    None if the task or the answer does not consist of this world's programs and whole numbers.
    """
    task = parse_task(text)
    if task is None:
        return None
    if task_type == "induction":
        program = parse_program(answer)
        if program is None:
            return None
        return ParsedTask(program, task.inputs).outputs == task.outputs
    number = parse_number(answer)
    if number is None:
        return None
    if task_type == "abduction":
        number = task.program.output(number)
    return number == task.outputs[0]
