"""MAE's roles: what each is asked, and how its reply is read. One model plays them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from flows.blocks.questions import readers as question_readers
from flows.mae.config import Config
from flows.mae.rewards import measure_format, measure_line
from flows.run import Role, templates
from tasks.ask import answered_tasks, readable_tasks
from tasks.prompt import Malformed, Row
from tasks.read import Reader, reads
from tasks.readers.lines import read_vote
from tasks.readers.marks import mark_out_of_ten
from tasks.readers.tags import last_element
from tasks.readers.thoughts import spoken
from warehouse.schemas import ANSWERS, MARKS, TASKS, Draw


class Roles:
    """The roles of one configuration. The Judge has two prompts: for questions and for answers."""

    def __init__(self, cfg: Config) -> None:
        template = templates(cfg, cfg.dialogues.prompts)
        sampling = cfg.dialogues.sampling
        dialogue = cfg.dialogues.one_reply
        read_mark = tagged("score", "mark", mark_out_of_ten)
        read_task = tagged("question", "text")
        read_solution = tagged("answer", "answer")
        read_trial = reads("answer", element_or_reply, measure=read_solution.measure, whole=False)
        if cfg.reads_lines:
            read_question, read_result = question_readers(in_lines=True)
            read_mark = in_line("mark", read_yes)
            read_task = in_line("text", read_question)
            read_solution = in_line("answer", read_result)
            read_trial = read_solution
        self.proposer = Role(
            "proposer",
            templates=(template("propose"), template("propose_harder")),
            variables=propose,
            sampling=sampling,
            into=TASKS,
            read=read_task,
            dialogue=dialogue,
        )
        self.solver = Role(
            "solver",
            templates=(template("solve"),),
            variables=readable_tasks,
            sampling=sampling,
            into=ANSWERS,
            read=read_solution,
            dialogue=dialogue,
        )
        # Answers to a new question only measure its difficulty. As in the released code, an answer
        # without tags or without an end is judged as it is: the Proposer is not rewarded for the
        # Solver's format errors, nor for questions that make the Solver ramble.
        self.trial = replace(self.solver, read=read_trial)
        self.question_judge = Role(
            "judge",
            templates=(template("judge_question"),),
            variables=readable_tasks,
            sampling=sampling,
            into=MARKS,
            read=read_mark,
            dialogue=dialogue,
        )
        self.answer_judge = Role(
            "judge",
            templates=(template("judge_answer"),),
            variables=answered_tasks,
            sampling=sampling,
            into=MARKS,
            read=read_mark,
            dialogue=dialogue,
        )


def tagged(name: str, column: str, read: Callable[..., Any] = last_element) -> Reader:
    """The reader of the last `<name>` element, stored as `column`.

    The format reward is measured even for a reply without such an element; it is 0 for a reply
    whose element cannot be read.
    """
    read_named = partial(read, name=name)
    return reads(column, read_named, measure=partial(measure_format, name=name, read=read_named))


def in_line(column: str, read: Callable[[str], Any]) -> Reader:
    """The reader of a reply that is the rest of a line, stored as `column`.

    The format reward is 1 for a line that can be read, else 0.
    """
    return reads(column, read, measure=partial(measure_line, read=read), whole=False)


def read_yes(reply: str) -> float:
    """The Judge's verdict in one token: a mark of 1 or 0."""
    return float(read_vote(reply))


def element_or_reply(reply: str) -> str:
    """The last `<answer>` element or, without one, the text after the thoughts.

    >>> element_or_reply("So <answer>7</answer>"), element_or_reply("<think>Hm.</think> It is 7.")
    ('7', 'It is 7.')
    """
    try:
        return last_element(reply, "answer")
    except Malformed:
        text = spoken(reply).strip()
        if not text:
            raise
        return text


def propose(draws: list[Draw], *, count: int) -> Iterator[Row]:
    """Yield `count` prompts for a new question. The first ones each show a drawn question of D,
    which the new question should surpass in difficulty."""
    for draw in draws:
        yield {"template": "propose_harder", "task_id": draw["task_id"], "reference": draw["text"]}
    for _ in range(count - len(draws)):
        yield {"template": "propose"}
