"""The corpora that methods learn from.

A corpus is named by a path, by `hf:owner/name?...`, by a run of prepare-corpus, or by its name in a
built-in world.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corpus_prep.read.hub import is_dataset
from corpus_prep.search.settings import EmbeddingConfig
from flows.run import Run
from flows.runtime.hub import check_reachable
from flows.settings.profile import MethodSettings, home, names, read
from flows.worlds.world import PROMPTS, World
from tasks.corpus.documents import corpus_identity, read_documents, take
from tasks.corpus.long_context import clusters_of_sets
from warehouse.address import RUN_NAME
from warehouse.schemas.corpus import DOCUMENT_SETS, DOCUMENTS, MEMBERSHIPS
from warehouse.store import Place, Store, Table

PREPARED = "prepared"  # the label of a prepared corpus's last table
NO_HUB = (
    "save it where there is a network, by `save_to_disk` of the package datasets, and give the"
    " folder instead"
)
RAW = ("a file or folder", "hf:owner/name?revision=...")


def check_corpora(cfg: MethodSettings, store: Store, folder: Path) -> None:
    """Raise ValueError for a corpus that the method cannot learn from.

    The message lists corpora that it can learn from. Paths are relative to `folder`.
    """
    built_in = [f"the built-in {name!r}" for name in cfg.worlds]
    allowed = ["the name of a finished run of prepare-corpus", *built_in]
    for corpus in cfg.learns_from:
        if corpus in cfg.worlds:
            continue
        if cfg.needs_clusters:
            if is_path_or_dataset(corpus, folder):
                raise ValueError(
                    f"corpus {corpus} is not prepared, and this method needs clusters of documents:"
                    f" `selfplay corpus prepare {corpus} --run NAME`, then give NAME"
                )
            if cfg.corpus_profile and corpus == getattr(cfg, "corpus", None):
                find_prepared(store, corpus, [*RAW, *allowed])  # a path is prepared before the run
            else:
                find_prepared(store, corpus, allowed)
            find_memberships(store, corpus)
        elif not is_path_or_dataset(corpus, folder):
            find_prepared(store, corpus, [*RAW, *allowed])


def check_language(cfg: MethodSettings) -> None:
    """Raise ValueError for real documents with prompts in the language of the built-in worlds."""
    real = [corpus for corpus in cfg.learns_from if corpus not in cfg.worlds]
    prompts = getattr(getattr(cfg, "dialogues", None), "prompts", None)
    if real and prompts == PROMPTS:
        folder = home(type(cfg)) / "profiles"
        others = [name for name in names(folder) if read(folder, name).get("world") is None]
        raise ValueError(
            "this profile's models and prompts know only the built-in worlds, not corpus"
            f" {real[0]}: add --profile NAME, one of {', '.join(others)}"
        )


def check_documents(corpus: str | None, folder: Path) -> None:
    """Raise ValueError for documents to prepare that are neither a path, relative to `folder`,
    nor a dataset."""
    if corpus is not None and not is_path_or_dataset(corpus, folder):
        raise ValueError(f"there is no corpus {corpus!r}: give {' or '.join(RAW)}")


def is_path_or_dataset(corpus: str, folder: Path = Path()) -> bool:
    """Whether a corpus is named by a path, relative to `folder`, that exists, or as a dataset
    (`hf:owner/name?...`). The hub is not asked."""
    return (folder / corpus).exists() or is_dataset(corpus)


def world_of_corpus(run: Run[Any], corpus: str) -> World | None:
    """The built-in world that the corpus belongs to; None for a corpus of real documents.

    Raises ValueError for a built-in corpus that the run's world does not have.
    """
    world = run.world
    if corpus not in run.cfg.worlds:
        return None
    if world is None or corpus not in world.corpora:
        raise ValueError(
            f"corpus {corpus!r} belongs to a built-in world that is not the run's: set world, as"
            " the profile micro does, or give another corpus"
        )
    return world.for_training


def open_corpus(
    run: Run[Any], corpus: str, *, seed: int, size: int, label: str | None = None
) -> Table:
    """Documents with their index: `size` documents of a built-in world, drawn with `seed`, or else
    those of `open_documents`.

    Raises ValueError if there is no such corpus.
    """
    world = world_of_corpus(run, corpus)
    if world is not None and world.documents is not None:
        return world.documents(run.place, corpus, seed=seed, size=size, label=label)
    return open_documents(run.place, corpus, label=label)


def open_documents(
    place: Place, corpus: str, embedding: EmbeddingConfig | None = None, label: str | None = None
) -> Table:
    """Documents with their index. Raises ValueError if `corpus` is neither a path, a dataset nor a
    prepared corpus."""
    if is_path_or_dataset(corpus):
        check_reachable(corpus, NO_HUB, place.store.find(place.address(DOCUMENTS.name, label)))
        return read_documents(
            place, corpus, identity=corpus_identity(corpus), embedding=embedding, label=label
        )
    return take(place, find_prepared(place.store, corpus), label=label)


def documents_of_run(run: Run[Any], place: Place) -> Table | None:
    """The documents that a run learns from, with their index; None if it learns from no documents,
    or from those of a built-in world."""
    corpus = next(iter(run.cfg.learns_from), None)
    if corpus is None or corpus in run.cfg.worlds:
        return None
    return open_documents(place, corpus, label="searched")


def prepared_by(store: Store, run: str) -> Table | None:
    """The final documents of a run of prepare-corpus; None if there is no such run."""
    if not RUN_NAME.fullmatch(run):
        return None
    return store.find(store.run(run).address(DOCUMENTS.name, PREPARED))


def find_prepared(store: Store, run: str, allowed: list[str] | None = None) -> Table:
    """The final documents of a run of prepare-corpus.

    Raises ValueError if there is no such run; the message lists what a method can learn from
    (`allowed`).
    """
    table = prepared_by(store, run)
    if table is not None:
        return table
    *others, last = allowed or [*RAW, "a finished run of prepare-corpus"]
    way_out = ""
    if RUN_NAME.fullmatch(run):
        way_out = f"; `selfplay corpus prepare PATH --run {run}` makes it"
    raise ValueError(f"there is no corpus {run!r}: give {', '.join(others)} or {last}{way_out}")


def find_memberships(store: Store, run: str) -> Table:
    """The table that assigns the documents of a prepared corpus to clusters. Raises ValueError if
    it has no clusters."""
    memberships = store.find(store.run(run).address(MEMBERSHIPS.name))
    if memberships is None:
        raise ValueError(
            f"corpus {run} has no clusters: prepare it with an embedding model and clusters.size"
        )
    return memberships


def open_clusters(place: Place, run: str) -> Table:
    """Which documents of a prepared corpus belong together.

    If the corpus has document sets made from its current clusters, each set counts as a cluster;
    otherwise the clusters themselves are used. Raises ValueError if there are no clusters.
    """
    memberships = find_memberships(place.store, run)
    sets = place.store.find(place.store.run(run).address(DOCUMENT_SETS.name))
    if sets is None:
        return memberships
    if sets.recipe["inputs"]["memberships"]["content_hash"] != memberships.content_hash:
        return memberships
    return clusters_of_sets(place, sets, memberships, label=f"sets-of-{run}")


def check_distinct(corpora: Mapping[str, Table]) -> None:
    """Raise ValueError if two corpora share a document id, even for the same document."""
    ids = {name: set(table.arrow["document_id"].to_pylist()) for name, table in corpora.items()}
    for one, other in itertools.combinations(ids, 2):
        if shared := sorted(ids[one] & ids[other]):
            raise ValueError(
                f"corpora {one} and {other} share {len(shared)} document ids, such as {shared[0]}:"
                " prepare them as one corpus, or one of them again with ids made of its files'"
                " names (--set 'columns.id=[]')"
            )
