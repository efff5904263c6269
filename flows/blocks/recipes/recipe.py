"""Recipes: where the papers' data is published, at which commit, and how it becomes a file that a
method reads.

Each recipe is a file in this folder. `selfplay corpus fetch NAME` downloads the source's files, or
takes them from a folder that holds the repository, and writes documents or questions.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from corpus_prep.read.hub import records_in_dataset
from corpus_prep.read.rows import read_rows
from corpus_prep.read.suffixes import ROW_FILES
from corpus_prep.written import write_documents
from flows.blocks.recipes.readers import READERS, Reading
from flows.runtime.hub import check_reachable
from flows.settings.profile import Settings
from warehouse.schemas import Row

FOLDER = Path(__file__).parent
HUB = "hf:"
GITHUB = "github:"
RAW = "https://raw.githubusercontent.com"
ANSWER_S = 30.0
PIECE = 1 << 20
VECTOR_BYTES = 2  # bytes per number in a search index


class SourceFile(Settings):
    """A file of a repository."""

    path: str
    bytes: int | None = Field(
        default=None, ge=1, description="size of the file; left out: not known beforehand"
    )
    sha256: str = ""
    blob: str = Field(default="", description="Git's hash of the content")


class Recipe(Settings):
    """One source, and how it becomes documents or questions."""

    name: str
    title: str
    paper: str = Field(description="method whose paper uses the data")
    makes: Literal["documents", "questions"]
    repository: str = Field(description="hf:owner/name, a data set, or github:owner/name")
    revision: str = Field(
        default="", description="commit of the repository; empty: --revision names one"
    )
    files: tuple[SourceFile, ...] = ()
    config: str | None = Field(
        default=None, description="configuration of a data set that is streamed"
    )
    split: str | None = Field(
        default=None, description="split of a data set that is streamed; then there are no files"
    )
    reader: str = Field(description="reader of the rows, in readers.py")
    text: tuple[str, ...] = ("text",)
    source: str = "url"
    columns: dict[str, str] = Field(default={}, description="what readers call `pages`")
    rows: int | None = Field(
        default=None, ge=1, description="number of rows in the source, to compare with"
    )
    take: int | None = Field(
        default=None, ge=1, description="use only this many rows, from the beginning"
    )
    draw: int | None = Field(
        default=None, ge=1, description="number of rows to draw from the whole source, by a seed"
    )
    written_bytes: int = Field(ge=1, description="approximate size of the file that is written")
    vectors: int = Field(
        default=0, ge=0, description="number of documents to embed, with `width` numbers each"
    )
    width: int = 768
    needs_tokenizer: bool = False
    needs_pages: bool = False
    licence: str
    gated: bool = Field(
        default=False, description="the hub asks you to accept the source's terms first"
    )
    differs: tuple[str, ...] = Field(
        default=(), description="how this differs from what the paper used"
    )
    then: str = Field(description="the command that uses the result")

    @model_validator(mode="after")
    def _is_read_in_one_way(self) -> Self:
        if self.reader not in READERS:
            raise ValueError(f"no reader {self.reader!r}; there are {', '.join(READERS)}")
        if bool(self.files) == bool(self.split):
            raise ValueError("name either files or the split of a data set that is streamed")
        if not self.repository.startswith((HUB, GITHUB)):
            raise ValueError(f"repository {self.repository} is neither {HUB}... nor {GITHUB}...")
        return self

    @property
    def owner_and_name(self) -> str:
        return self.repository.removeprefix(HUB).removeprefix(GITHUB)

    @property
    def default_out(self) -> Path:
        """Where the file is written by default."""
        if self.makes == "documents":
            return Path("data/corpus") / self.name / "documents.parquet"
        return Path("data/questions") / f"{self.name}.jsonl"

    def needed(self) -> list[Row]:
        """What the recipe needs: the bytes of each part, None if not known in advance."""
        rows: list[Row] = [
            {"part": f"download {each.path}", "bytes": each.bytes} for each in self.files
        ]
        if self.split:
            taken = f"{self.take:,} rows" if self.take else "all rows"
            rows.append({"part": f"stream {taken} of split {self.split}", "bytes": None})
        rows.append({"part": f"write {self.default_out}", "bytes": self.written_bytes})
        if self.vectors:
            vectors = self.vectors * self.width * VECTOR_BYTES
            rows.append({"part": "prepare: vectors, exact search", "bytes": vectors})
            rows.append({"part": "prepare: an IVF-SQ8 index instead", "bytes": vectors // 2})
        return rows

    def rows_of(self, folder: Path | None, downloads: Path, gated: bool) -> Iterator[Row]:
        """The source's rows, from a folder that holds the repository's files or else from the
        network.

        Raises ValueError if the source cannot be read; the message says what to do.
        """
        if self.split:
            rows = self._streamed(folder, gated)
        else:
            paths = [self._located(each, folder, downloads, gated) for each in self.files]
            rows = itertools.chain.from_iterable(map(read_rows, paths))
        return itertools.islice(rows, self.take)

    def _streamed(self, folder: Path | None, gated: bool) -> Iterator[Row]:
        if folder is not None:
            files = sorted(path for path in folder.rglob("*") if _is_readable(path))
            if not files:
                raise ValueError(f"{folder} holds no {', '.join(ROW_FILES)} file")
            return itertools.chain.from_iterable(map(read_rows, files))
        self._check_obtainable(gated)
        config = f"config={self.config}&" if self.config else ""
        source = f"{self.repository}?{config}split={self.split}&revision={self.revision}"
        check_reachable(source, self._by_hand)
        return (dict(record.fields) for record in records_in_dataset(source))

    def _located(self, file: SourceFile, folder: Path | None, downloads: Path, gated: bool) -> Path:
        if folder is not None:
            path = folder / file.path
            if not path.is_file():
                raise ValueError(f"there is no {path}: {self._by_hand}")
        else:
            self._check_obtainable(gated)
            path = self._downloaded(file, downloads)
        check_content(path, file)
        return path

    def _downloaded(self, file: SourceFile, downloads: Path) -> Path:
        if self.repository.startswith(HUB):
            check_reachable(f"{self.repository}?revision={self.revision}", self._by_hand)
            from huggingface_hub import hf_hub_download

            return Path(
                hf_hub_download(
                    self.owner_and_name, file.path, repo_type="dataset", revision=self.revision
                )
            )
        path = downloads / self.owner_and_name / self.revision / file.path
        if not path.is_file():
            _download(f"{RAW}/{self.owner_and_name}/{self.revision}/{file.path}", path, self)
        return path

    @property
    def _by_hand(self) -> str:
        """What to do without a network."""
        if self.repository.startswith(HUB):
            get = (
                f"`hf download {self.owner_and_name} --repo-type dataset --revision"
                f" {self.revision or 'COMMIT'} --local-dir FOLDER`"
            )
        else:
            get = f"clone https://github.com/{self.owner_and_name} and check out {self.revision}"
        return f"where there is a network, {get}; then give that folder: --from FOLDER"

    def _check_obtainable(self, gated: bool) -> None:
        if not self.revision:
            raise ValueError(
                f"no revision of {self.repository} is pinned: --revision COMMIT names one, or"
                " --from FOLDER a copy of it"
            )
        if self.gated and not gated:
            raise ValueError(
                f"gated: accept the terms of {self.repository}, log in, and pass --gated; or"
                " --from FOLDER"
            )


@dataclass(frozen=True)
class WrittenFile:
    """What was written: the path, and the number of rows."""

    path: Path
    num_rows: int


def names() -> list[str]:
    """The names of all recipes in this folder."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find_recipe(name: str) -> Recipe:
    """A recipe by its name. Raises ValueError if there is none, or if its file is not valid."""
    path = FOLDER / f"{name}.toml"
    if not path.is_file():
        raise ValueError(f"there is no recipe {name}; there are {', '.join(names())}")
    try:
        return Recipe.model_validate(tomllib.loads(path.read_text("utf-8")) | {"name": name})
    except (ValidationError, tomllib.TOMLDecodeError) as problem:
        raise ValueError(f"{path}: {problem}") from problem


def make(recipe: Recipe, rows: Iterator[Row], reading: Reading, out: Path) -> WrittenFile:
    """Read `rows` and write them to `out`, all or nothing.

    Raises ValueError if no row can be used.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.draft")
    made = READERS[recipe.reader](rows, reading)
    try:
        if recipe.makes == "documents":
            num_rows = write_documents(draft, made, recipe.licence)
        else:
            num_rows = _write_questions(draft, made, recipe)
        if num_rows == 0:
            raise ValueError(f"{recipe.name}: no row of {recipe.repository} can be used")
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)
    return WrittenFile(out, num_rows)


def _write_questions(path: Path, rows: Iterator[Row], recipe: Recipe) -> int:
    num_rows = 0
    origin = f"{recipe.repository}@{recipe.revision}"
    with path.open("w", encoding="utf-8") as lines:
        for row in rows:
            row = {**row, "origin": origin, "licence": recipe.licence}
            lines.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
            num_rows += 1
    return num_rows


def check_content(path: Path, file: SourceFile) -> None:
    """Raise ValueError if a file's SHA-256 or Git hash is not the one that the recipe names. If the
    recipe names neither, any file will do."""
    if not (file.sha256 or file.blob):
        return
    sha256 = hashlib.sha256()
    blob = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as content:
        while piece := content.read(PIECE):
            sha256.update(piece)
            blob.update(piece)
    pairs = ((sha256.hexdigest(), file.sha256), (blob.hexdigest(), file.blob))
    for found, wanted in pairs:
        if wanted and found != wanted:
            raise ValueError(
                f"{path} is not the file that the recipe names (its hash is {found}, not {wanted}):"
                " remove it and fetch it again, or check out the recipe's revision"
            )


def _is_readable(path: Path) -> bool:
    return path.is_file() and path.name.endswith(ROW_FILES)


def _download(address: str, path: Path, recipe: Recipe) -> None:
    import httpx

    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    try:
        with ExitStack() as stack:
            reply = stack.enter_context(
                httpx.stream("GET", address, timeout=ANSWER_S, follow_redirects=True)
            )
            reply.raise_for_status()
            content = stack.enter_context(draft.open("wb"))
            for piece in reply.iter_bytes(PIECE):
                content.write(piece)
        draft.replace(path)
    except httpx.HTTPError as problem:
        raise ValueError(f"{address} cannot be read: {problem}\n{recipe._by_hand}") from problem
    finally:
        draft.unlink(missing_ok=True)
