"""English texts to train on and those held out."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from flows.runtime.store_root import SOURCE

RUN_WORDS = 13  # as many words in a row are an overlap, as for `prepare-corpus`
# rows whose paragraphs share a run with held-out ones; data/english/README.md names them
KNOWN = {
    "articles": set[str](),
    "peps": {"pep-0314-0"},
    "reports": {"fin-123-1", "fin-148-1", "fin-148-2", "fin-148-3"},
}


def runs_of(row: dict[str, str]) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", row["context"].lower())
    return {tuple(words[i : i + RUN_WORDS]) for i in range(len(words) - RUN_WORDS + 1)}


def rows_of(file: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (SOURCE / file).read_text("utf-8").splitlines()]


@pytest.mark.parametrize("name", KNOWN)
def test_no_paragraph_to_train_on_shares_words_with_a_held_out_one_unless_it_is_known(name):
    study = tomllib.loads((SOURCE / f"data/english/{name}-claims.toml").read_text("utf-8"))
    settings = study["settings"]
    held_out = set[tuple[str, ...]]().union(
        *map(runs_of, rows_of(settings["evaluation.benchmark"]))
    )
    variants = [settings, *(part.get("settings", {}) for part in study["without"].values())]
    files = {variant["given"] for variant in variants if variant.get("given")}
    rows = [row for file in files for row in rows_of(file)]
    shared = [row for row in rows if runs_of(row) & held_out]
    known = [row for row in shared if row["id"] in KNOWN[name]]
    assert {row["id"] for row in known} == KNOWN[name]
    known_paragraphs = [runs_of(row) for row in known]
    assert [row["id"] for row in shared if runs_of(row) not in known_paragraphs] == []
    described = (SOURCE / "data/english/README.md").read_text("utf-8")
    assert [row for row in KNOWN[name] if f"`{row}`" not in described] == []


def test_every_study_of_given_questions_is_compared():
    folder: Path = SOURCE / "data/english"
    assert {path.name.removesuffix("-claims.toml") for path in folder.glob("*-claims.toml")} == set(
        KNOWN
    )
