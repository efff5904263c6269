"""Triplets of a program, its input and its output as text: how they are read, checked and shown.

The text of a task is its program and its inputs in the same fenced blocks in which a model writes
them; people, pools and prompts all use this text:

    ```python
    def f(a):
        return a
    ```
    ```input
    'Hello World'
    ```

An induction task has several inputs, and a block `message`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypedDict

from tasks.processes.sandbox import arguments_of, canonical, equal
from tasks.readers.fences import block, blocks, fenced, unfolded
from tasks.readers.malformed import Malformed
from tasks.readers.tags import elements
from tasks.readers.thoughts import spoken
from warehouse.schemas import Answer, PromptRow, Row, Task

IDENTITY = "def f(a):\n    return a"  # the program that every run begins with
FIRST_INPUTS = ("'Hello World'", "1", "[1, 2, 3]", "{'a': 1}", "(1.5, 'b')", "None", "True", "[]")
FIRST_MESSAGE = "What comes in goes out."
TOO_LONG = "its Solver's prompt is too long"
REPLY = re.compile(
    r"\s*(?:<think>)?.*?</think>\s*<answer>.*?</answer>\s*(?:<\|[^<>]*\|>\s*)*", re.DOTALL
)


class Triplet(TypedDict):
    """A task, or an entry of a buffer, with what its program returned."""

    task_id: str
    task_type: str | None
    text: str | None
    reference: str | None


# ---- replies ----


def measure_format(rollout: Row, prompt: PromptRow) -> Row:
    """The format reward: 1 for a reply with thoughts and an answer in their tags, else 0. The
    prompt may already have opened the thoughts."""
    is_formed = REPLY.fullmatch(rollout["reply"] or "") is not None
    return {"format": {"total": float(is_formed)}}


def answered(reply: str) -> str:
    """The last `<answer>` element or, without one, the text after the thoughts."""
    parts = elements(reply, "answer")
    return parts[-1].text if parts else spoken(reply)


def read_words(reply: str, *, read: Callable[[str], str]) -> str:
    """What `read` finds in a reply without line breaks, whose fences are in the middle of a line.
    Raises Malformed as `read` does."""
    return read(unfolded(reply))


def read_block(reply: str, *, name: str) -> str:
    """The content of the last block called `name` in a reply's answer: the output, the input or the
    program. Raises Malformed if there is none."""
    return block(answered(reply), name)


def read_program_and_input(reply: str, *, banned: Sequence[str]) -> str:
    """A proposed program with its input, as the text of a task. Raises Malformed if either is
    missing or must not be run."""
    text = answered(reply)
    program = block(text, "python")
    check_program(program, banned)
    return task_text(program, [read_input(block(text, "input"))])


def read_inputs_and_message(reply: str, *, num_inputs: int) -> str:
    """The last `num_inputs` proposed inputs for the program in the prompt, and a message about it,
    as blocks. Raises Malformed if there are too few inputs or no message, or if an input is not
    made of literals."""
    text = answered(reply)
    inputs = [part for part in blocks(text, "input") if part.strip()]
    if len(inputs) < num_inputs:
        raise Malformed("too few inputs")
    message = block(text, "message")
    return task_text(None, [read_input(part) for part in inputs[-num_inputs:]], message)


def read_input(text: str) -> str:
    """The arguments of `f` in canonical form. Raises Malformed if they are not literals."""
    try:
        return inner(arguments_of(text))
    except ValueError as problem:
        raise Malformed("the input is no literal") from problem


def inner(arguments: str) -> str:
    """The text of a tuple without its parentheses.

    >>> inner("(1, 'a')"), inner("([1],)"), inner("()")
    ("1, 'a'", '[1]', '')
    """
    return arguments[1:-1].removesuffix(",")


def check_program(program: str, banned: Sequence[str]) -> None:
    """Raise Malformed unless a program defines one `f` that takes an argument and returns
    something, and imports and names no banned module.

    These are the prompt's requirements, checked so that an unusable program is malformed and is not
    run. What the program really does is seen only when it runs.
    """
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as problem:
        raise Malformed("the program is no Python") from problem
    functions = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "f"
    ]
    if len(functions) != 1:
        raise Malformed("the program does not define one function f")
    arguments = functions[0].args
    if not (arguments.posonlyargs or arguments.args or arguments.vararg):
        raise Malformed("f takes no argument")
    if not any(isinstance(node, ast.Return) and node.value for node in ast.walk(functions[0])):
        raise Malformed("f returns nothing")
    names = set(named_modules(tree))
    for word in banned:
        if word in names:
            raise Malformed(f"the program uses {word}")


def named_modules(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the modules that a program imports, with their parent packages; of the
    functions that it calls; and of attributes of names, such as `os.path`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from prefixes(alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from prefixes(module)
            for alias in node.names:
                yield f"{module}.{alias.name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def prefixes(name: str) -> Iterator[str]:
    """
    >>> list(prefixes("os.path"))
    ['os', 'os.path']
    """
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])


# ---- tasks ----


def task_text(program: str | None, inputs: Sequence[str], message: str | None = None) -> str:
    """The text of a task: its program, inputs and message as fenced blocks. `program` is None if
    the prompt showed it."""
    parts = [] if program is None else [fenced("python", program)]
    parts += [fenced("input", text) for text in inputs]
    if message is not None:
        parts.append(fenced("message", message))
    return "\n".join(parts)


def first_task(
    task_type: str, num_inputs: int, identity: str, inputs: Sequence[str], message: str
) -> tuple[str, str]:
    """The text and the reference of the task that every run begins with: the identity function. An
    induction task repeats the inputs if there are too few."""
    if task_type != "induction":
        return task_text(identity, inputs[:1]), inputs[0]
    all_inputs = [inputs[i % len(inputs)] for i in range(num_inputs)]
    return task_text(identity, all_inputs, message), json.dumps(all_inputs)


def with_programs(
    tasks: Iterable[Task], prompts: Sequence[PromptRow], draws: Sequence[Triplet]
) -> Iterator[Task]:
    """Yield the tasks, each preceded by the program that its prompt showed, if it showed one."""
    program_of = {draw["task_id"]: block(draw["text"] or "", "python") for draw in draws}
    shown = {prompt["prompt_id"]: prompt["task_id"] for prompt in prompts}
    for task in tasks:
        program = program_of.get(shown.get(task["prompt_id"] or "") or "")
        if program is None or task["text"] is None:
            yield task
        else:
            yield {**task, "text": f"{fenced('python', program)}\n{task['text']}"}


def halves(texts: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The half of an induction task's texts that its Solver sees, and the half that judges it."""
    return texts[: len(texts) // 2], texts[len(texts) // 2 :]


def outputs(task: Triplet) -> list[str]:
    """The outputs of a task's inputs, in order."""
    reference = task["reference"]
    assert reference is not None, f"the program of {task['task_id']} was not run"
    if task["task_type"] == "induction":
        return json.loads(reference)
    return [reference]


# ---- what is run ----


def runs_of_tasks(
    tasks: list[Task], prompts: list[PromptRow], draws: list[Triplet]
) -> Iterator[Row]:
    """Yield every proposed program with each of its inputs, as rows for the sandbox. Malformed
    proposals are skipped."""
    for task in with_programs(tasks, prompts, draws):
        if task["text"] is None:
            continue
        program = block(task["text"], "python")
        for position, text in enumerate(blocks(task["text"], "input")):
            yield {
                "subject_id": task["task_id"],
                "position": position,
                "program": program,
                "input": text,
            }


def runs_of_answers(answers: list[Answer], tasks: list[Triplet]) -> Iterator[Row]:
    """Yield the runs that judge answers: a task's program on the answered input (abduction), or an
    answered program on the inputs that its author did not see (induction)."""
    task_of = {task["task_id"]: task for task in tasks}
    for answer in answers:
        task = task_of[answer["task_id"]]
        if answer["answer"] is None:
            continue
        if task["task_type"] == "abduction":
            program = block(task["text"] or "", "python")
            inputs: Sequence[str] = [answer["answer"]]
        else:
            program = answer["answer"]
            _, inputs = halves(blocks(task["text"] or "", "input"))
        for position, text in enumerate(inputs):
            yield {
                "subject_id": answer["rollout_id"],
                "position": position,
                "program": program,
                "input": text,
            }


def is_same_output(task: Row, answer: str) -> bool:
    """Whether an answered output equals the true one, as Python compares literals. An output that
    is not a literal is wrong."""
    try:
        canonical(answer)
    except ValueError:
        return False
    return equal(answer, task["reference"])
