"""Who is asked what: a proposer and a solver for each task type. One model plays all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from flows.azr.config import Config, TaskType
from flows.azr.programs import (
    Triplet,
    halves,
    measure_format,
    outputs,
    read_block,
    read_inputs_and_message,
    read_program_and_input,
    read_words,
)
from flows.run import Role, templates
from tasks.prompt import Template
from tasks.read import reads
from tasks.readers.fences import block, blocks
from tasks.rollouts.tokens import count_tokens
from warehouse.schemas import ANSWERS, TASKS, Row

ANSWERED_IN: dict[TaskType, str] = {
    "deduction": "output",
    "abduction": "input",
    "induction": "python",
}


class Roles:
    """The roles of one configuration, by task type."""

    def __init__(self, cfg: Config) -> None:
        template = templates(cfg, cfg.dialogues.prompts)
        sampling = cfg.dialogues.sampling
        dialogue = cfg.dialogues.one_reply
        program = partial(read_program_and_input, banned=cfg.proposer.banned)
        read_proposal: dict[TaskType, Callable[[str], str]] = {
            "deduction": program,
            "abduction": program,
            "induction": partial(read_inputs_and_message, num_inputs=cfg.proposer.num_inputs),
        }
        read_answer: dict[TaskType, Callable[[str], str]] = {
            task_type: partial(read_block, name=name) for task_type, name in ANSWERED_IN.items()
        }
        if cfg.reads_words:
            for readers in (read_proposal, read_answer):
                for task_type, read in readers.items():
                    readers[task_type] = partial(read_words, read=read)
        values = {
            "banned": ", ".join(cfg.proposer.banned),
            "num_inputs": cfg.proposer.num_inputs,
        }
        self.proposer = {
            task_type: Role(
                f"propose_{task_type}",
                templates=(template(f"propose_{task_type}"),),
                variables=partial(
                    shown(task_type, cfg.batch_size),
                    template=template(f"propose_{task_type}"),
                    values=values,
                    model=cfg.models.base,
                    limit=cfg.dialogues.content_tokens,
                ),
                sampling=sampling,
                into=TASKS,
                read=reads("text", read_proposal[task_type], measure_format),
                dialogue=dialogue,
                values=values,
            )
            for task_type in cfg.task_types
        }
        # held-out tasks are of all types, whichever types are trained
        self.solver: dict[TaskType, Role] = {
            task_type: Role(
                f"solve_{task_type}",
                templates=(template(f"solve_{task_type}"),),
                variables=partial(show_tasks, task_type=task_type),
                sampling=sampling,
                into=ANSWERS,
                read=reads("answer", read, measure_format),
                dialogue=dialogue,
            )
            for task_type, read in read_answer.items()
        }


def shown(task_type: str, num_prompts: int) -> Callable[..., Iterator[Row]]:
    """The function that yields what the proposer of a task type sees: for induction, drawn
    programs, one per prompt; for the other types, drawn triplets in `num_prompts` prompts."""
    if task_type == "induction":
        return show_programs
    return partial(show_triplets, task_type=task_type, num_prompts=num_prompts)


def show_triplets(
    draws: list[Triplet],
    *,
    task_type: str,
    num_prompts: int,
    template: Template,
    values: Row,
    model: str,
    limit: int,
) -> Iterator[Row]:
    """Yield `num_prompts` prompts for a program with an input, each with its share of the drawn
    triplets; equal triplets are shown once.

    `template` makes a prompt from the triplets and `values`. A triplet that would take the prompt
    over `limit` tokens of `model` is left out.
    """
    size = len(draws) // num_prompts
    for i in range(num_prompts):
        drawn = {draw["text"]: draw for draw in draws[i * size : (i + 1) * size]}
        references: list[Row] = []
        for draw in drawn.values():
            with_draw = [*references, triplet(draw)]
            if count_tokens(template.render(values, references=with_draw), model) <= limit:
                references = with_draw
        yield {"task_type": task_type, "references": references}


def triplet(draw: Triplet) -> Row:
    """A drawn triplet as template values. For an induction task, it has the first input."""
    return {
        "program": block(draw["text"] or "", "python"),
        "input": blocks(draw["text"] or "", "input")[0],
        "output": outputs(draw)[0],
    }


def show_programs(
    draws: list[Triplet], *, template: Template, values: Row, model: str, limit: int
) -> Iterator[Row]:
    """Yield a prompt for each drawn program that asks for inputs and a message.

    `template` makes the prompt from the program and `values`. A program whose prompt has more than
    `limit` tokens of `model` is left out.
    """
    for draw in draws:
        program = block(draw["text"] or "", "python")
        if count_tokens(template.render(values, program=program), model) > limit:
            continue
        yield {"task_type": "induction", "task_id": draw["task_id"], "program": program}


def show_tasks(tasks: list[Triplet], *, task_type: str) -> Iterator[Row]:
    """Yield a prompt for each task of a type, with only the parts that its Solver may see."""
    for task in tasks:
        if task["text"] is not None and task["task_type"] == task_type:
            yield {
                "task_id": task["task_id"],
                "task_type": task["task_type"],
                **visible(task["task_type"], task["text"], outputs(task)),
            }


def visible(task_type: str | None, text: str, all_outputs: Sequence[str]) -> Row:
    """The parts that the Solver sees: deduction hides the output, abduction the input, induction
    the program and half of its inputs."""
    if task_type == "deduction":
        return {"program": block(text, "python"), "input": blocks(text, "input")[0]}
    if task_type == "abduction":
        return {"program": block(text, "python"), "output": all_outputs[0]}
    inputs, _ = halves(blocks(text, "input"))
    shown, _ = halves(all_outputs)
    return {
        "pairs": [
            {"input": given, "output": got} for given, got in zip(inputs, shown, strict=True)
        ],
        "message": block(text, "message"),
    }
