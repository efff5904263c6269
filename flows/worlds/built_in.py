"""The built-in worlds: an encyclopaedia, clusters of documents, ledgers, haystacks, programs, and
trails."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from corpus_prep.search.settings import EmbeddingConfig
from flows.worlds import tables
from flows.worlds.clusters import CONFIRMED
from flows.worlds.encyclopaedia import follows_grammar
from flows.worlds.ledgers import NUM_ITEMS, NUM_ITEMS_DEEP, NUM_ITEMS_LONG
from flows.worlds.world import CORPUS, Needles, RubricTruth, World
from warehouse.store import Place, Table


def _encyclopaedia_documents(
    place: Place,
    corpus: str = CORPUS,
    *,
    seed: int,
    size: int,
    embedding: EmbeddingConfig | None = None,
    label: str | None = None,
) -> Table:
    return tables.encyclopaedia_documents(
        place, seed=seed, num_documents=size, embedding=embedding, label=label
    )


def _encyclopaedia_truth(seed: int, num_documents: int) -> RubricTruth:
    return RubricTruth(
        oracle=partial(tables.encyclopaedia_oracle, seed=seed, num_documents=num_documents),
        sound=partial(tables.encyclopaedia_sound, seed=seed, num_documents=num_documents),
    )


def _trail_documents(
    place: Place,
    corpus: str = CORPUS,
    *,
    seed: int,
    size: int,
    embedding: EmbeddingConfig | None = None,
    label: str | None = None,
) -> Table:
    return tables.trail_documents(
        place, seed=seed, num_documents=size, embedding=embedding, label=label
    )


def _ledger_documents(
    place: Place,
    corpus: str = CORPUS,
    *,
    seed: int,
    size: int,
    embedding: EmbeddingConfig | None = None,
    label: str | None = None,
    num_items: int = NUM_ITEMS,
) -> Table:
    """The documents of a world of ledgers, without embeddings, because nobody searches ledgers."""
    return tables.ledger_documents(
        place, corpus, seed=seed, num_documents=size, label=label, num_items=num_items
    )


def _cluster_documents(
    place: Place,
    corpus: str = CORPUS,
    *,
    seed: int,
    size: int,
    embedding: EmbeddingConfig | None = None,
    label: str | None = None,
    confirmed: float | None = None,
) -> Table:
    """The documents of `size` clusters, without an index, because nobody searches them."""
    return tables.cluster_documents(
        place, seed=seed, num_clusters=size, label=label, confirmed=confirmed
    )


def _cluster_memberships(
    place: Place, *, seed: int, size: int, confirmed: float | None = None
) -> Table:
    return tables.cluster_memberships(place, seed=seed, num_clusters=size, confirmed=confirmed)


def _famous_clusters(confirmed: float) -> World:
    """The world of clusters of famous entities, of whose attributes a share is as known by
    heart."""
    return replace(
        CLUSTERS,
        name="famous-clusters",
        documents=partial(_cluster_documents, confirmed=confirmed),
        memberships=partial(_cluster_memberships, confirmed=confirmed),
        tasks=partial(tables.cluster_tasks, confirmed=confirmed),
        contexts=partial(tables.cluster_contexts, confirmed=confirmed),
        oracle=partial(tables.cluster_oracle, confirmed=confirmed),
        sound=partial(tables.cluster_sound, confirmed=confirmed),
    )


ENCYCLOPAEDIA = World(
    name="encyclopaedia",
    corpora=(CORPUS,),
    documents=_encyclopaedia_documents,
    tasks=tables.encyclopaedia_tasks,
    rubrics=tables.encyclopaedia_rubrics,
    num_held_out_documents=tables.BENCHMARK_ENTITIES,
    rubric_truth=_encyclopaedia_truth,
    gates={"grammar": follows_grammar},
)

CLUSTERS = World(
    name="clusters",
    corpora=(CORPUS,),
    documents=_cluster_documents,
    memberships=_cluster_memberships,
    tasks=tables.cluster_tasks,
    contexts=tables.cluster_contexts,
    oracle=tables.cluster_oracle,
    sound=tables.cluster_sound,
    compare=tables.cluster_compare,
)

# what a model knows by heart is mostly what the documents to learn from state, but never what the
# held-out ones state
FAMOUS_CLUSTERS = replace(_famous_clusters(0.0), training=_famous_clusters(CONFIRMED))

LEDGERS = World(
    name="ledgers",
    corpora=tuple(tables.LEDGER_KINDS),
    documents=_ledger_documents,
    tasks=tables.ledger_tasks,
    oracle=tables.ledger_oracle,
    sound=tables.ledger_sound,
    describe=tables.describe_ledger_question,
)

# some questions about these always stay too hard for a model of this size
LONG_LEDGERS = replace(
    LEDGERS,
    name="long-ledgers",
    documents=partial(_ledger_documents, num_items=NUM_ITEMS_LONG),
    tasks=partial(tables.ledger_tasks, num_items=NUM_ITEMS_LONG),
)

DEEP_LEDGERS = replace(
    LEDGERS,
    name="deep-ledgers",
    documents=partial(_ledger_documents, num_items=NUM_ITEMS_DEEP),
    tasks=partial(tables.ledger_tasks, num_items=NUM_ITEMS_DEEP),
)

MASKED_LEDGERS = World(
    name="masked-ledgers",
    corpora=LONG_LEDGERS.corpora,
    documents=LONG_LEDGERS.documents,
    tasks=tables.masked_ledger_tasks,
    oracle=tables.masked_ledger_oracle,
    sound=tables.masked_ledger_sound,
    describe=tables.describe_masked_ledger,
)

# its documents, those of clusters, are only text to hide needles in: no run learns from them
HAYSTACKS = World(
    name="haystacks",
    documents=_cluster_documents,
    tasks=tables.haystack_tasks,
    contexts=tables.haystack_contexts,
    evidence=tables.haystack_evidence,
    mark=tables.haystack_mark,
    needles=Needles(
        tasks=tables.needle_tasks,
        sentences=tables.needle_sentences,
        foreign=tables.is_of_another,
    ),
)

# guessing "yes" is right mostly in training, but only half of the time in held-out tasks
LEADING_QUESTIONS = replace(
    HAYSTACKS,
    name="leading-questions",
    tasks=partial(tables.haystack_tasks, share_yes=0.5),
    needles=None,
    training=replace(
        HAYSTACKS,
        name="leading-questions",
        tasks=partial(tables.haystack_tasks, share_yes=0.7),
        needles=None,
    ),
)

# has no documents: its model makes up everything that it learns from
PROGRAMS = World(
    name="programs",
    tasks=tables.program_tasks,
    oracle=tables.program_oracle,
    sound=tables.program_sound,
    describe=tables.describe_program,
)

TRAILS = World(
    name="trails",
    corpora=(CORPUS,),
    documents=_trail_documents,
    tasks=tables.trail_tasks,
    num_held_out_documents=tables.HELD_OUT_PEOPLE,
    oracle=tables.trail_oracle,
    sound=tables.trail_sound,
    describe=tables.describe_trail_question,
)

BUILT_IN = {
    world.name: world
    for world in (
        ENCYCLOPAEDIA,
        CLUSTERS,
        FAMOUS_CLUSTERS,
        LEDGERS,
        LONG_LEDGERS,
        DEEP_LEDGERS,
        HAYSTACKS,
        LEADING_QUESTIONS,
        PROGRAMS,
        TRAILS,
        MASKED_LEDGERS,
    )
}


def open_world(name: str) -> World:
    """A built-in world. Raises ValueError, which lists the names, for an unknown name."""
    if name not in BUILT_IN:
        raise ValueError(
            f"world: there is no built-in world {name!r}; there are {', '.join(BUILT_IN)}"
        )
    return BUILT_IN[name]
