"""Import tasks of other loaders as a file of questions, for any method or benchmark that takes one.

A row of the file has `id`, `question`, `answers` if the task states a reference, and `options` if
it offers any. The other loader's scorer is not imported: the project's own rule compares answers
with the reference.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from corpus_prep.read.rows import read_rows
from warehouse.schemas import Row

REFERENCES = (
    "expected_answer",
    "answer",
    "answers",
    "reference",
    "ground_truth",
    "target",
    "solution",
)
REQUEST = "responses_create_params"  # a column of every NeMo Gym row
NESTED = ("task", "info", "verifier_metadata", "reward_model")  # columns that may hold references
# Runs in the interpreter that has verifiers: prints one task per line.
DUMP = """
import json, sys
from verifiers.v1.utils.loaders import load_taskset, taskset_config_type
name, settings, limit = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
taskset = load_taskset(taskset_config_type(name)(id=name, **settings))
for task in taskset.take(limit):
    print(json.dumps({"prompt": task.data.prompt_text, **task.data.model_dump(mode="json")}
        | {"prompt": task.data.prompt_text}))
"""


def from_nemo_gym(file: Path) -> list[Row]:
    """The questions in a NeMo Gym file.

    Raises ValueError for another kind of file, naming its columns, and for a row without a prompt,
    naming the row.
    """
    rows = list(read_rows(file))
    if not rows:
        raise ValueError(f"{file} is no file of NeMo Gym: it has no rows")
    questions = []
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping) or REQUEST not in row:
            has = ", ".join(row) if isinstance(row, Mapping) else type(row).__name__
            raise ValueError(
                f"{file} is no file of NeMo Gym: row {i + 1} has no {REQUEST}, but {has}"
            )
        request = row[REQUEST]
        prompt = prompt_of(request.get("input")) if isinstance(request, Mapping) else ""
        if not prompt.strip():
            raise ValueError(
                f"{file}, row {i + 1}: {REQUEST} has no input that is a text, or a list of messages"
                " with texts"
            )
        questions.append(question_of(prompt, row, f"{file.stem}-{i}"))
    return questions


def from_verifiers(
    name: str, python: str, settings: Mapping[str, Any], limit: int = 1_000_000
) -> list[Row]:
    """The questions of an installed verifiers taskset.

    `python`: an interpreter that has verifiers and the taskset. `settings`: settings of the
    taskset, such as a split. Raises ValueError, with the last line of the error, if it does not
    load.
    """
    done = subprocess.run(
        [python, "-c", DUMP, name, json.dumps(settings), str(limit)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(f"the taskset {name} does not load in {python}: {last}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [
        question_of(row["prompt"], row, row.get("id") or f"{name}-{i}")
        for i, row in enumerate(rows)
    ]


def prompt_of(messages: Any) -> str:
    """The text of a prompt, which is a string or a list of messages, whose contents are joined in
    the given order. Empty for anything else.

    >>> prompt_of([{"role": "user", "content": "Why?"}]), prompt_of("Why?"), prompt_of(7)
    ('Why?', 'Why?', '')
    """
    if isinstance(messages, str):
        return messages
    if not isinstance(messages, list):
        return ""
    contents = (message.get("content") for message in messages if isinstance(message, Mapping))
    return "\n\n".join(_text(content) for content in contents)


def question_of(prompt: str, row: Mapping[str, Any], name: str) -> Row:
    """A row of the file: the question `prompt` with the id `name`, and the references and options
    that the loader's `row` states.

    >>> question_of("2 + 2?", {"expected_answer": 4}, "a-0")
    {'id': 'a-0', 'question': '2 + 2?', 'answers': ['4']}
    """
    question: Row = {"id": name, "question": prompt}
    answers = list(references(row))
    if answers:
        question["answers"] = answers
    options = list(_options(row.get("options")))
    if options:
        question["options"] = options
    return question


def references(row: Mapping[str, Any]) -> Iterator[str]:
    """The accepted answers that a task states, in one of its columns or of its metadata."""
    places = [row, *(row[name] for name in NESTED if isinstance(row.get(name), Mapping))]
    for place in places:
        for name in REFERENCES:
            value = place.get(name)
            if value is None or isinstance(value, Mapping):
                continue
            values = value if isinstance(value, list) else [value]
            yield from (str(each) for each in values)
            return


def _options(options: Any) -> Iterator[str]:
    """The texts of options, given as a list of texts, one mapping such as `{"A": text}`, or a list
    of such mappings."""
    if isinstance(options, Mapping):
        yield from map(str, options.values())
    for option in options if isinstance(options, list) else ():
        if isinstance(option, Mapping):
            yield from map(str, option.values())
        else:
            yield str(option)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "".join(text for text in texts if isinstance(text, str))


def write_questions(questions: Iterable[Row], file: Path) -> int:
    """Write a file of questions, one JSON object per line; return their number.

    Raises ValueError if there are none, or if only some have an answer.
    """
    rows = list(questions)
    num_answered = sum("answers" in row for row in rows)
    if not rows:
        raise ValueError("there are no tasks to import")
    if 0 < num_answered < len(rows):
        raise ValueError(
            f"{num_answered} of {len(rows)} tasks state a reference answer: import those with and"
            " those without apart"
        )
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(rows)
