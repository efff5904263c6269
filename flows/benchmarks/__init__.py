"""Benchmarks, each with a file in this folder.

The file says where the items are, how they are asked, and how answers are scored; it also holds the
protocol of each paper that reports the benchmark, with the paper's numbers.

`selfplay evaluate MODEL --benchmark gsm8k` runs one (`flows.blocks.evaluation`). To add your own
benchmark, write such a file.
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from flows.settings.errors import error_lines
from flows.settings.profile import Settings
from tasks.benchmarks.items import Columns
from tasks.benchmarks.own_file import columns_of, is_file_of_rows
from tasks.scorers import SCORERS

FOLDER = Path(__file__).parent
RESPONSE_TOKENS = 512  # for a user's questions: a short answer after a few sentences


class Judging(Settings):
    """How a model judges answers: its prompt, which also sets the reply format, and its
    sampling."""

    prompt: (
        Literal[
            "judge",
            "present",
            "grade",
            "true_false_mathematics",
            "true_false_choice",
            "true_false_truthfulness",
            "true_false_general",
            "criterion",
            "pair",
            "pair_graded",
            "report",
            "quality",
            "checklist",
            "coverage",
        ]
        | None
    ) = Field(
        default=None,
        description=(
            "judge prompt in prompts/english; left out: pair, criterion or judge, depending on"
            " what an item contains"
        ),
    )
    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    tokens: int | None = Field(
        default=None,
        ge=1,
        description="maximum number of tokens per verdict; left out: evaluation.judge_tokens",
    )


class Protocol(Settings):
    """How a paper evaluates: its prompt, samples, budgets and judge, and what it reports."""

    prompt: str | None = Field(
        default=None,
        description=(
            "prompt in place of the entry's: a name in prompts/english, or METHOD/NAME for a"
            " prompt that a method trains with"
        ),
    )
    reader: Literal["boxed", "tagged", "element", "stated", "parts", "whole"] | None = Field(
        default=None,
        description="how replies to `prompt` are read; left out: as for the entry's prompt",
    )

    samples: int = Field(
        default=1, ge=1, description="answers per item; several make avg@k of `score`"
    )
    passes: tuple[int, ...] = Field(default=(), description="k of pass@k")
    temperature: float = Field(default=0.0, ge=0)
    reasoning_temperature: float | None = Field(
        default=None,
        ge=0,
        description="temperature for reasoning models, in place of `temperature`",
    )
    top_p: float = Field(default=1.0, gt=0, le=1)
    response_tokens: int = Field(default=4096, ge=1)
    input_tokens: int | None = Field(
        default=None, ge=1, description="a longer context is cut in the middle"
    )
    longest_context: int | None = Field(
        default=None,
        ge=1,
        description=(
            "items whose context has more tokens of the policy's tokenizer are left out and counted"
        ),
    )
    kinds: tuple[str, ...] = Field(default=(), description="only items of these kinds; empty: all")
    searches: int = Field(
        default=0, ge=0, description="maximum number of searches in a document collection"
    )
    judged: bool = Field(
        default=False, description="whether a model decides if an answer matches a reference"
    )
    judge: Judging = Judging()
    metric: tuple[str, ...] = Field(
        default=(), description="`score` is the maximum of these metrics; empty: the scorer's first"
    )
    items: int | None = Field(
        default=None, ge=1, description="number of items to draw, if the benchmark has more"
    )
    published: dict[str, float] = Field(
        default={}, description="model to score, 0..1, as published in the paper"
    )
    differs: tuple[str, ...] = Field(
        default=(),
        description="where this differs from the paper; `published` is then not comparable",
    )

    @model_validator(mode="after")
    def _prompt_is_read(self) -> Self:
        if (self.prompt is None) != (self.reader is None):
            raise ValueError("a protocol names a prompt and its reader together")
        return self


class Benchmark(Settings):
    """One entry.

    `file` is looked up in the folder of benchmarks, then beside the entry; `source` is a dataset on
    the hub.
    """

    name: str = Field(description="name of the benchmark in `selfplay evaluate`: the file's name")
    beside: Path = Field(default=FOLDER, description="folder of the entry")
    title: str = Field(description="printed name")
    source: str = Field(
        default="", description="hf:owner/name?config=...&split=..., without the revision"
    )
    revision: str = Field(default="", description="the commit of `source`")
    file: str = Field(
        default="", description="path of the items in the folder of benchmarks (evaluation.folder)"
    )
    sha256: str = Field(default="", description="hash of that file")
    origin: str = Field(
        default="", description="where that file comes from: repository, commit and path"
    )
    num_items: int | None = Field(
        default=None,
        ge=1,
        description="number of items in the whole split, for plans; left out: it changes",
    )
    num_of_kind: dict[str, int] = Field(default={}, description="number of items of each kind")
    num_criteria: float | None = Field(
        default=None, gt=0, description="mean number of criteria in an item's rubric, for plans"
    )
    licence: str = Field(description="licence of the items")
    gated: bool = Field(
        default=False, description="the hub asks you to accept the source's terms first"
    )
    note: str = Field(default="", description="what to know before you use it")
    columns: Columns | None = Field(
        default=None, description="how items are read from rows; left out: only a harness runs it"
    )
    prompt: Literal["boxed", "letter", "short", "whole"] = Field(
        default="boxed", description="prompt in prompts/english, and how its replies are read"
    )
    scorer: str = Field(
        default="none", description="scorer in tasks/scorers that decides what is right"
    )
    harness: str | None = Field(
        default=None, description="task, or group of tasks, in lm-evaluation-harness"
    )
    num_parts: int = Field(
        default=1, ge=1, description="number of tasks in that group, each with its own limit"
    )
    protocol: dict[str, Protocol] = Field(
        min_length=1, description="protocol of each paper; the first stands for all others"
    )

    @model_validator(mode="after")
    def _can_be_scored(self) -> Self:
        if self.scorer not in SCORERS:
            raise ValueError(
                f"{self.name}: no scorer {self.scorer!r}; there are {', '.join(SCORERS)}"
            )
        if self.columns is None and self.harness is None:
            raise ValueError(
                f"{self.name}: say by columns what its rows hold, or name its task in a harness"
            )
        return self

    def of_paper(self, paper: str | None, method: str) -> Protocol:
        """The protocol of a paper; by default that of the method's own paper, or else the first
        one.

        Raises ValueError if the benchmark has no protocol of this paper.
        """
        return self.protocol[self.paper(paper, method)]

    def paper(self, paper: str | None, method: str) -> str:
        """The name of the protocol that `of_paper` returns.

        Raises ValueError if the benchmark has no protocol of this paper.
        """
        if paper is not None and paper not in self.protocol:
            raise ValueError(
                f"{self.name} has no protocol of {paper}; there are {', '.join(self.protocol)}"
            )
        if (paper or method) in self.protocol:
            return paper or method
        return next(iter(self.protocol))

    def metric(self, protocol: Protocol, judged: bool) -> tuple[str, ...]:
        """The metrics behind `score`: the protocol's (without "judged" if there is no judge), or
        else the scorer's first.

        Raises ValueError if only a judge can score the benchmark.
        """
        metrics = protocol.metric
        if not metrics and protocol.judged:
            metrics = ("judged",)
        if not judged:
            metrics = tuple(name for name in metrics if name != "judged")
        metrics = metrics or SCORERS[self.scorer].metrics[:1]
        if not metrics:
            raise ValueError(
                f"{self.name} is scored by a judge alone: name one, --set models.examiner=MODEL"
            )
        return metrics

    def limit_of_part(self, items: int) -> int:
        """The most items to ask from each part for a total of `items`, or a few more if they cannot
        be divided evenly."""
        return math.ceil(items / self.num_parts)

    def num_asked(self, items: int) -> int:
        """The most items that are asked in total if `items` are wanted."""
        return self.limit_of_part(items) * self.num_parts

    def located(self, folder: Path, file: str | None = None) -> tuple[str, str]:
        """Where to read the items, and the identity of their content.

        The items are in `file`, in the entry's own file in `folder`, or in the dataset. Raises
        ValueError for a file that is not the entry's, and if there is neither a file nor a dataset.
        """
        if file:
            if not Path(file).is_file():
                raise ValueError(f"there is no file {file}")
            return file_and_hash(Path(file))
        own = folder / self.file
        if not own.is_file() and (self.beside / self.file).is_file():
            own = self.beside / self.file
        if self.file and own.is_file():
            path, sha256 = file_and_hash(own)
            if self.sha256 and sha256 != self.sha256:
                raise ValueError(
                    f"{own} is not the {self.name} that its entry names (sha256 {sha256}, not"
                    f" {self.sha256}): replace it, or name it by --file as another revision"
                )
            return path, sha256
        if not self.source:
            raise ValueError(f"{self.name} needs {own}: get it from {self.origin}")
        if not self.revision:
            raise ValueError(
                f"no revision of {self.source} is pinned: add it to"
                f" flows/benchmarks/{self.name}.toml"
            )
        between = "&" if "?" in self.source else "?"
        return f"{self.source}{between}revision={self.revision}", self.revision


def file_and_hash(path: Path) -> tuple[str, str]:
    """A file's path and the SHA-256 of its content."""
    with path.open("rb") as content:
        return str(path), hashlib.file_digest(content, "sha256").hexdigest()


def names() -> list[str]:
    """The names of all entries in this folder."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find(name: str, folder: Path = Path()) -> Benchmark:
    """An entry by its name, or by the path of the user's own file, relative to `folder`.

    Such a file is an entry's .toml or the questions themselves (`own_questions`). Raises ValueError
    if there is no such entry, or if its file is invalid.
    """
    if is_file_of_rows(name):
        return own_questions(folder / name)
    path = FOLDER / f"{name}.toml"
    if name.endswith(".toml"):
        path = folder / name
    if not path.is_file():
        raise ValueError(
            f"there is no benchmark {name}; there are {', '.join(names())}, a .toml file like"
            " theirs, or a file of your own questions (.csv, .jsonl, ...)"
        )
    try:
        entry = tomllib.loads(path.read_text(encoding="utf-8"))
        return Benchmark.model_validate(entry | {"name": path.stem, "beside": path.parent})
    except ValidationError as problem:
        lines = [f"{path} is no valid benchmark:", *error_lines(Benchmark, problem)]
        raise ValueError("\n  ".join(lines)) from problem
    except tomllib.TOMLDecodeError as problem:
        raise ValueError(f"{path} is not valid TOML: {problem}") from problem


def own_questions(path: Path) -> Benchmark:
    """The entry for a file of the user's own questions, whose columns are recognised by their
    names.

    Short answers are scored by exact match and F1, multiple choice by the letter. Raises ValueError
    for a file without questions or without answers.
    """
    columns = columns_of(path)
    if not columns.answers:
        raise ValueError(f"{path} has no column answer, which says what is right")
    is_choice = bool(columns.options)
    return Benchmark(
        name=path.stem,
        beside=path.parent,
        title=f"your questions in {path.name}",
        file=str(path.absolute()),  # absolute, to match no other file of this name, as in `folder`
        origin=str(path),
        licence="your own",
        columns=columns,
        prompt="letter" if is_choice else "short",
        scorer="choice" if is_choice else "short",
        protocol={"own": Protocol(response_tokens=RESPONSE_TOKENS)},
    )
