"""Benchmarks: a file for each in this folder says where its items are, how they are asked, and how answers are scored;
it also holds the protocol of each paper that reports the benchmark, with the paper's numbers.

`selfplay evaluate MODEL --benchmark gsm8k` runs them (`flows.evaluation`). To add your own benchmark, write such a
file.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from flows.profile import Settings
from tasks.items import Columns
from tasks.scorers import SCORERS

FOLDER = Path(__file__).parent


class Protocol(Settings):
    """How a paper evaluates: its samples, budgets and judge, and what it reports."""

    samples: int = Field(default=1, ge=1, description="answers to an item; several make avg@k of `score`")
    passes: tuple[int, ...] = Field(default=(), description="k of pass@k")
    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    response_tokens: int = Field(default=4096, ge=1)
    input_tokens: int | None = Field(default=None, ge=1, description="a longer context is cut in its middle")
    searches: int = Field(default=0, ge=0, description="of a document collection, at most")
    judged: bool = Field(default=False, description="a model decides whether an answer says what a reference says")
    metric: tuple[str, ...] = Field(default=(), description="`score` is the best of them; none: the scorer's first")
    items: int | None = Field(default=None, ge=1, description="drawn, where the benchmark has more")
    published: dict[str, float] = Field(default={}, description="model to score, 0..1, as the paper has it")


class Benchmark(Settings):
    """One entry. `file` is looked for in the folder of benchmarks, then beside the entry; `source` is a dataset of the
    hub."""

    name: str
    beside: Path = Field(default=FOLDER, description="the entry's own folder")
    title: str
    source: str = Field(default="", description="hf:owner/name?config=...&split=..., without the revision")
    revision: str = Field(default="", description="the commit of `source`")
    file: str = Field(default="", description="its path in the folder of benchmarks (evaluation.folder)")
    sha256: str = Field(default="", description="of that file")
    origin: str = Field(default="", description="where that file is from: repository, commit and path")
    licence: str
    gated: bool = Field(default=False, description="the hub asks to accept its terms first")
    note: str = ""
    columns: Columns | None = Field(default=None, description="None: only a harness asks it")
    prompt: Literal["boxed", "letter", "short", "whole"] = "boxed"
    scorer: str = "none"
    harness: str | None = Field(default=None, description="its task in lm-evaluation-harness")
    protocol: dict[str, Protocol] = Field(min_length=1, description="by paper; the first stands for all others")

    @model_validator(mode="after")
    def _can_be_scored(self) -> Self:
        if self.scorer not in SCORERS:
            raise ValueError(f"{self.name}: no scorer {self.scorer!r}; there are {', '.join(SCORERS)}")
        if self.columns is None and self.harness is None:
            raise ValueError(f"{self.name}: say by columns what its rows hold, or name its task in a harness")
        return self

    def of_paper(self, paper: str | None, method: str) -> Protocol:
        """The protocol of a paper; by default that of the method's own paper, or the first. Raises ValueError."""
        if paper is not None and paper not in self.protocol:
            raise ValueError(f"{self.name} has no protocol of {paper}; there are {', '.join(self.protocol)}")
        return self.protocol.get(paper or method, next(iter(self.protocol.values())))

    def metric(self, protocol: Protocol, judged: bool) -> tuple[str, ...]:
        """The metrics behind `score`: without a judge, the remaining ones of the protocol, or the scorer's first.

        Raises ValueError if only a judge could score.
        """
        wanted = protocol.metric or (("judged",) if protocol.judged else ())
        left = tuple(name for name in wanted if judged or name != "judged") or SCORERS[self.scorer].metrics[:1]
        if not left:
            raise ValueError(f"{self.name} is scored by a judge alone: name one, --set models.examiner=MODEL")
        return left

    def located(self, folder: Path, file: str | None = None) -> tuple[str, str]:
        """Where to read the items, and the identity of the content: `file`, the entry's own file in `folder`, or the
        dataset. Raises ValueError for a file that is not the entry's, and if there is neither file nor dataset."""
        own = Path(file) if file else folder / self.file
        if file and not own.is_file():
            raise ValueError(f"there is no file {file}")
        if not own.is_file() and (self.beside / self.file).is_file():
            own = self.beside / self.file
        if (file or self.file) and own.is_file():
            with own.open("rb") as content:
                sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            if not file and self.sha256 and sha256 != self.sha256:
                raise ValueError(
                    f"{own} is not the {self.name} that its entry names (sha256 {sha256}, not {self.sha256}): "
                    "replace it, or name it by --file as another revision"
                )
            return str(own), sha256
        if not self.source:
            raise ValueError(f"{self.name} needs {own}: get it from {self.origin}")
        if not self.revision:
            raise ValueError(f"no revision of {self.source} is pinned: add it to flows/benchmarks/{self.name}.toml")
        between = "&" if "?" in self.source else "?"
        return f"{self.source}{between}revision={self.revision}", self.revision


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find(name: str, folder: Path = Path()) -> Benchmark:
    """An entry by its name, or by the path of a file of your own, relative to `folder`. Raises ValueError."""
    path = folder / name if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        raise ValueError(f"there is no benchmark {name}; there are {', '.join(names())}, or a .toml file like theirs")
    try:
        entry = tomllib.loads(path.read_text(encoding="utf-8"))
        return Benchmark(**{**entry, "name": path.stem, "beside": path.parent})
    except (ValidationError, tomllib.TOMLDecodeError) as problem:
        raise ValueError(f"{path}: {problem}") from problem
