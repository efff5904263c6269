"""Models of search and ranking are known by their content, as policies are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from corpus_prep.search.settings import EmbeddingConfig
from flows.eapo.reranker import RerankerConfig
from tasks.stage import describe


@pytest.mark.parametrize("kind", [EmbeddingConfig, RerankerConfig])
def test_another_model_in_the_same_folder_is_another_setting(
    tmp_path: Path, kind: type[EmbeddingConfig | RerankerConfig]
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    weights = folder / "model.safetensors"
    weights.write_text("first")
    os.utime(weights, (1, 1))
    config = kind(model=str(folder), revision=None)
    first = describe(config)
    shutil.copytree(folder, tmp_path / "moved")
    assert describe(kind(model=str(tmp_path / "moved"), revision=None)) == first
    weights.write_text("other")
    os.utime(weights, (2, 2))
    assert describe(config) != first


@pytest.mark.parametrize("kind", [EmbeddingConfig, RerankerConfig])
def test_a_pinned_model_is_known_by_its_name(kind: type[EmbeddingConfig | RerankerConfig]) -> None:
    config = kind(model="owner/name", revision="abc")
    assert describe(config) == config.model_dump(mode="json")
