"""The corpora that methods learn from. A corpus is named by a path, `hf:owner/name?...`, a run of prepare-corpus, or a
built-in world."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from corpus_prep.read.hub import is_dataset
from corpus_prep.search.settings import EmbeddingConfig
from flows.hub import check_reachable
from flows.profile import MethodSettings, home, names
from tasks.corpus.documents import corpus_identity, read_documents, take
from tasks.corpus.long_context import clusters_of_sets
from warehouse.address import RUN_NAME
from warehouse.schemas.corpus import DOCUMENT_SETS, DOCUMENTS, MEMBERSHIPS
from warehouse.store import Place, Store, Table

PREPARED = "prepared"  # the label of a prepared corpus' last table
NO_HUB = "save it where there is a network, by `save_to_disk` of the package datasets, and give the folder instead"
RAW = ("a file or folder", "hf:owner/name?revision=...")


def check_corpora(cfg: MethodSettings, store: Store, folder: Path) -> None:
    """Raise ValueError for a corpus that the method cannot learn from; the message lists those that it can. Paths are
    relative to `folder`."""
    for corpus in cfg.learns_from:
        if corpus in cfg.worlds:
            continue
        allowed = ["the name of a finished run of prepare-corpus", *map("the built-in {!r}".format, cfg.worlds)]
        if cfg.needs_clusters:
            if is_path_or_dataset(corpus, folder):
                raise ValueError(
                    f"corpus {corpus} is not prepared, and this method needs clusters of documents: "
                    f"`selfplay corpus prepare {corpus} --run NAME`, then give NAME"
                )
            find_prepared(store, corpus, allowed)
            find_memberships(store, corpus)
        elif not is_path_or_dataset(corpus, folder):
            find_prepared(store, corpus, [*RAW, *allowed])


def check_language(cfg: MethodSettings) -> None:
    """Raise ValueError for real documents if the prompts are in the language of the built-in worlds."""
    real = [corpus for corpus in cfg.learns_from if corpus not in cfg.worlds]
    if real and getattr(getattr(cfg, "dialogues", None), "prompts", None) == "micro":
        profiles = [name for name in names(home(type(cfg)) / "profiles") if not name.startswith("micro")]
        raise ValueError(
            f"this profile's models and prompts know only the built-in worlds, not corpus {real[0]}: "
            f"add --profile NAME, one of {', '.join(profiles)}"
        )


def check_documents(corpus: str | None, folder: Path) -> None:
    """Raise ValueError for documents to prepare that are neither a path, relative to `folder`, nor a dataset."""
    if corpus is not None and not is_path_or_dataset(corpus, folder):
        raise ValueError(f"there is no corpus {corpus!r}: give {' or '.join(RAW)}")


def is_path_or_dataset(corpus: str, folder: Path = Path()) -> bool:
    return (folder / corpus).exists() or is_dataset(corpus)


def open_documents(
    place: Place, corpus: str, embedding: EmbeddingConfig | None = None, label: str | None = None
) -> Table:
    """Documents with their index. Raises ValueError if there is neither such a path nor such a prepared corpus."""
    if is_path_or_dataset(corpus):
        check_reachable(corpus, NO_HUB, place.store.find(place.address(DOCUMENTS.name, label)))
        return read_documents(place, corpus, identity=corpus_identity(corpus), embedding=embedding, label=label)
    return take(place, find_prepared(place.store, corpus), label=label)


def prepared_by(store: Store, run: str) -> Table | None:
    """The documents that a run of prepare-corpus ended with."""
    return store.find(store.run(run).address("documents", PREPARED)) if RUN_NAME.fullmatch(run) else None


def find_prepared(store: Store, run: str, allowed: list[str] | None = None) -> Table:
    """The documents that a run of prepare-corpus ended with. Raises ValueError, with what else a method can learn from,
    if there is no such run."""
    table = prepared_by(store, run)
    if table is None:
        others = allowed or [*RAW, "a finished run of prepare-corpus"]
        way_out = f"; `selfplay corpus prepare PATH --run {run}` makes it" if RUN_NAME.fullmatch(run) else ""
        raise ValueError(f"there is no corpus {run!r}: give {', '.join(others[:-1])} or {others[-1]}{way_out}")
    return table


def find_memberships(store: Store, run: str) -> Table:
    """Which documents of a prepared corpus are in which cluster. Raises ValueError if it has no clusters."""
    memberships = store.find(store.run(run).address(MEMBERSHIPS.name))
    if memberships is None:
        raise ValueError(f"corpus {run} has no clusters: prepare it with an embedding model and clusters.size")
    return memberships


def open_clusters(place: Place, run: str) -> Table:
    """Which documents of a prepared corpus belong together. If it has document sets made from its current clusters,
    each set counts as a cluster; else the clusters themselves. Raises ValueError if there are none."""
    memberships = find_memberships(place.store, run)
    sets = place.store.find(place.store.run(run).address(DOCUMENT_SETS.name))
    if sets is None or sets.recipe["inputs"]["memberships"]["content_hash"] != memberships.content_hash:
        return memberships
    return clusters_of_sets(place, sets, memberships, label=f"sets-of-{run}")


def check_distinct(corpora: Mapping[str, Table]) -> None:
    """Raise ValueError if two corpora share a document id, even for the same document."""
    ids = {name: set(table.arrow["document_id"].to_pylist()) for name, table in corpora.items()}
    for one, other in itertools.combinations(ids, 2):
        if shared := sorted(ids[one] & ids[other]):
            raise ValueError(
                f"corpora {one} and {other} share {len(shared)} document ids, such as {shared[0]}: prepare them as one "
                "corpus, or one of them again with ids made of its files' names (--set 'columns.id=[]')"
            )
